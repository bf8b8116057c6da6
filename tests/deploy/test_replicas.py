"""Several servers show one mirror, each of them all of it: the dashboard and the alerts count it once.

Prometheus itself evaluates the queries: of one `run`; then of a pod that captures and two that deliver, of which one is
replaced.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.web.looks import Group, Looks, everything
from tools.dashboard import expressions

from headwater.change import Lsn
from headwater.state.deliveries import DeliveryRow, Phases
from headwater.web.metrics import Metrics

PROMETHEUS = Path(__file__).parents[2] / "deploy" / "prometheus"
OF_MIRROR = [each for each in expressions() if "process_" not in each]  # the others are about a server's own host
OF_SERVERS = {"HeadwaterServerDown", "HeadwaterStale", "HeadwaterServerRestarts"}
PODS = ("capture-0", "deliver-a", "deliver-b")
STEP, STEPS = 15, 61  # seconds between scrapes, and scrapes
ONE, SEVERAL = 1_700_000_000, 1_700_020_000  # Unix time of the last scrape

pytestmark = pytest.mark.skipif(
    not shutil.which("prometheus") or not shutil.which("promtool"), reason="prometheus is not installed"
)

Series = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(series: Series, labels: Mapping[str, str], end: int, steps: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Lines of OpenMetrics, with their times; counters and histograms begin with the server, and grow."""
    for age, step in enumerate(steps):
        at = end - (STEPS - 1 - step) * STEP
        for (name, own), value in series.items():
            grows = re.search("_(total|bucket|count|sum)$", name)
            text = ",".join(f"{key}={json.dumps(each)}" for key, each in (*own, *labels.items()))
            yield at, f"{name}{{{text}}} {age * 3 if grows else value} {at}"


def exported(database: str, folder: Path) -> Series:
    """What `/metrics` has of a group with everything."""
    phases = Phases(wait=1.0, fold=0.2, locate=0.1, write=0.3, commit=0.05)
    with closing(Group(database, folder, "public.orders")) as group:
        looks = Looks(group.config)
        metrics = Metrics(looks)
        looks.show(everything(looks.see()))
        looks.deliver(DeliveryRow(1, "g", datetime.now(UTC), Lsn(100), 7, 120, 2, 60, 30, 10, 4096, 1.7, phases, (1,)))
        body, _ = metrics.exposition("text/plain;version=0.0.4")
    samples = [each for family in text_string_to_metric_families(body.decode()) for each in family.samples]
    spelled = {"instance": "exported_instance"}  # as Prometheus does: it has an `instance` of its own
    return {(each.name, tuple((spelled.get(k, k), v) for k, v in each.labels.items())): each.value for each in samples}


def history(series: Series) -> Iterator[tuple[int, str]]:
    """One server until ONE; then three in pods, of which the last ends and is replaced, until SEVERAL."""
    yield from scraped(series, {"job": "headwater", "instance": "127.0.0.1:8080"}, ONE, range(STEPS))
    of_all = {"job": "headwater", "namespace": "headwater", "service": "headwater-pods"}
    lives = {pod: range(STEPS) for pod in PODS} | {PODS[-1]: range(45), "deliver-c": range(50, STEPS)}
    for number, (pod, steps) in enumerate(lives.items()):
        yield from scraped(series, of_all | {"pod": pod, "instance": f"10.0.0.{number}:8080"}, SEVERAL, steps)


@contextmanager
def prometheus(lines: Iterable[tuple[int, str]], folder: Path) -> Iterator[str]:
    """The address of one that has these samples."""
    file, data, config = folder / "samples", folder / "data", folder / "prometheus.yml"
    file.write_text("\n".join([*(line for _, line in sorted(lines)), "# EOF\n"]))
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file), str(data)]
    subprocess.run(made, check=True, capture_output=True)
    config.write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}", "--log.level=error"]
    command += [f"--web.listen-address={address}", "--storage.tsdb.retention.time=100y"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://{address}"
        finally:
            process.terminate()


def asked(address: str, expression: str, at: int) -> list[tuple[dict[str, str], float]]:
    """The result of a query, without what a scrape adds to its labels."""
    plain = re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "5m"))
    for _ in range(150):
        try:
            with urlopen(f"{address}/api/v1/query?{urlencode({'query': plain, 'time': at})}") as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                break
        except URLError:  # it starts
            time.sleep(0.2)
    scrapes = {"job", "namespace", "service", "pod", "instance"}
    shown = [({k: v for k, v in each["metric"].items() if k not in scrapes}, each["value"][1]) for each in found]
    return sorted(((labels, float(f"{float(value):.6g}")) for labels, value in shown), key=str)


def test_the_dashboard_shows_the_same_of_one_server_and_of_several(database: str, tmp_path: Path) -> None:
    series = exported(database, tmp_path)
    with prometheus(history(series), tmp_path) as address:
        one, several = ({each: asked(address, each, at) for each in OF_MIRROR} for at in (ONE, SEVERAL))
    ages = [each for each in OF_MIRROR if "time()" in each]
    assert {each: several[each] for each in OF_MIRROR if several[each] != one[each] and each not in ages} == {}
    assert {each for each in OF_MIRROR if not one[each]} == set()


def test_an_alert_about_the_mirror_is_raised_once_however_many_servers_show_it(tmp_path: Path) -> None:
    """Every test of the rules again, with each of its series from three servers."""
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())
    for test in tests["tests"]:
        test["input_series"] = [each for one in test["input_series"] for each in from_every_pod(one)]
        test["alert_rule_test"] = [each for each in test["alert_rule_test"] if each["alertname"] not in OF_SERVERS]
    (tmp_path / "alerts.yml").write_text((PROMETHEUS / "alerts.yml").read_text())
    (tmp_path / "test.yml").write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def from_every_pod(series: dict[str, str]) -> list[dict[str, str]]:
    name, _, rest = series["series"].rstrip("}").partition("{")
    labels = rest.split(", ") if rest else []
    if name == "process_start_time_seconds" or any(each.startswith("pod=") for each in labels):
        return [series]
    labels = [each for each in labels if not each.startswith("instance=")]
    return [
        series
        | {"series": f"{name}{{{', '.join([*labels, f'pod={json.dumps(pod)}', f'instance={json.dumps(pod)}'])}}}"}
        for pod in PODS
    ]
