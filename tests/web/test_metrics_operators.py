"""What operators get beside the metrics: explanations, a dashboard, alerts. All of them name the same metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from tools.dashboard import dashboard, expressions
from tools.metrictable import TOPICS, with_metric_tables

from headwater.web.exposition.metric import Metric
from headwater.web.metrics import METRICS, Metrics
from tests.web.looks import Group, Looks, everything

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
DASHBOARD = ROOT / "deploy" / "grafana" / "headwater.json"
PROMETHEUS = ROOT / "deploy" / "prometheus"
BY_NAME = {each.name: each for each in METRICS}
OF_SCRAPES = {"instance", "job", "pod"}  # labels that Prometheus adds


def rules() -> list[dict[str, str]]:
    (group,) = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    found: list[dict[str, str]] = group["rules"]
    return found


def documented() -> list[str]:
    """The expressions of the page's examples."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "? | `" in line]
    return [row.split("? | `")[1].rstrip("` |") for row in rows]


def expressions_of_variables() -> list[str]:
    return [each["definition"] for each in dashboard()["templating"]["list"] if each["type"] == "query"]


def metric(name: str) -> Metric:
    """The metric that has a series of this name."""
    plain = re.sub(r"_(bucket|sum|count)$", "", name)
    found = BY_NAME[plain] if plain in BY_NAME and BY_NAME[plain].kind == "histogram" else BY_NAME.get(name)
    assert found is not None, f"there is no metric {name!r}"
    assert (name == plain) == (found.kind != "histogram"), f"{name!r} of {found.name!r} is no series"
    return found


def used(expression: str) -> Iterator[tuple[Metric, set[str]]]:
    """Each metric of an expression, and the labels that are asked for of it."""
    lists = re.findall(r"\b(?:by|without|on|ignoring) ?\(([^)]*)\)", expression)
    grouped = {label for each in lists for label in each.split(", ")}
    names = re.findall(r"\b((?:headwater|process)_\w+)(?:\{([^}]*)\})?", re.sub(r'"[^"]*"', '""', expression))
    assert names, expression
    known = set[str]().union(*(metric(name).labels for name, _ in names))
    assert grouped <= known | OF_SCRAPES | {"le"}, expression
    for name, matchers in names:
        yield metric(name), set(re.findall(r"(\w+) ?(?:=~|!~|!=|=)", matchers))


def test_the_page_explains_exactly_the_metrics_that_there_are() -> None:
    assert with_metric_tables(PAGE) == PAGE, "run `python -m tools.metrictable`"
    shown = re.findall(r"^\| `(\w+)` \| (?:gauge|counter|histogram|info) \|", PAGE, re.MULTILINE)
    assert sorted(shown) == sorted(BY_NAME)
    assert {each for metrics in TOPICS.values() for each in metrics} == set(METRICS)
    assert "(metrics.md)" in (ROOT / "docs" / "operations.md").read_text()


@pytest.mark.parametrize("metric", METRICS, ids=lambda each: each.name)
def test_a_metric_is_called_as_prometheus_wants_it(metric: Metric) -> None:
    assert re.fullmatch(r"(headwater|process)_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.endswith("_info") == (metric.kind == "info")
    assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|percent)(_|$)", metric.name)
    assert metric.explanation.endswith(".")
    assert "|" not in metric.explanation


@pytest.mark.parametrize("expression", [*(each["expr"] for each in rules()), *documented()])
def test_an_alert_and_an_example_name_metrics_that_exist_with_their_labels(expression: str) -> None:
    for each, labels in used(expression):
        assert labels <= {*each.labels, *OF_SCRAPES}, each.name


@pytest.mark.parametrize("expression", [*expressions(), *expressions_of_variables()])
def test_a_query_of_the_dashboard_names_metrics_that_exist_with_their_labels(expression: str) -> None:
    for each, labels in used(expression):
        assert labels <= {*each.labels, *OF_SCRAPES}, each.name


def test_a_name_that_no_metric_has_is_found() -> None:
    for wrong in ("headwater_lag", "headwater_delivery_lag_seconds", "headwater_group_lag_seconds_sum"):
        with pytest.raises(AssertionError):
            list(used(f"rate({wrong}[5m])"))
    with pytest.raises(AssertionError):
        list(used("sum by (table) (headwater_group_lag_seconds)"))
    assert list(used('headwater_group_lag_seconds{group="g"}')) == [(BY_NAME["headwater_group_lag_seconds"], {"group"})]


def test_the_dashboard_is_the_one_that_the_tool_draws() -> None:
    assert json.loads(DASHBOARD.read_text()) == dashboard(), "run `python -m tools.dashboard`"


def test_the_panels_of_the_dashboard_do_not_overlap_and_have_what_grafana_needs() -> None:
    panels = dashboard()["panels"]
    taken: set[tuple[int, int]] = set()
    for each in panels:
        place = each["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, each["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({each["id"] for each in panels}) == len(panels)
    assert {each["name"] for each in dashboard()["templating"]["list"]} == {"datasource", "group", "table", "route"}
    queried = [target for each in panels for target in each.get("targets", ())]
    assert {target["datasource"]["uid"] for target in queried} == {"${datasource}"}
    assert [target["expr"] for target in queried] == expressions()


def test_every_alert_says_what_to_do_and_is_tested_both_ways() -> None:
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    tried = [(each["alertname"], bool(each.get("exp_alerts"))) for test in tests for each in test["alert_rule_test"]]
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "description"}  # type: ignore[attr-defined]
        assert (rule["alert"], True) in tried
        assert (rule["alert"], False) in tried


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    return found


def run(*command: str, text: str | None = None) -> str:
    """What a command says; it must succeed."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_alerts_fire_when_they_should_and_not_otherwise(promtool: str) -> None:
    run(promtool, "check", "rules", str(PROMETHEUS / "alerts.yml"))
    run(promtool, "test", "rules", str(PROMETHEUS / "alerts_test.yml"))


def test_prometheus_understands_every_query_of_the_dashboard_and_of_the_page(promtool: str, tmp_path: Path) -> None:
    plain = [re.sub(r"\$\w+", "x", each.replace("$__rate_interval", "5m")) for each in (*expressions(), *documented())]
    recorded = [{"record": f"query:{number}", "expr": each} for number, each in enumerate(plain)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]}))
    assert f"{len(plain)} rules found" in run(promtool, "check", "rules", str(file))


def test_prometheus_has_nothing_to_say_against_the_exposition(promtool: str, database: str, tmp_path: Path) -> None:
    with closing(Group(database, tmp_path, r'public."a ""quoted\ {name=""x""}"')) as group:
        looks = Looks(group.config)
        metrics = Metrics(looks)
        looks.show(everything(looks.see()))
        body, content_type = metrics.exposition("text/plain;version=0.0.4")
    assert content_type.startswith("text/plain; version=0.0.4")
    assert run(promtool, "check", "metrics", text=body.decode()) == ""
