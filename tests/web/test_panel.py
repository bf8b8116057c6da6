"""A table's panel in a real browser, over a real lake: what is in it, and what becomes of what is asked there."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from pyspark.sql import SparkSession

from headwater.testing.postgres import EmbeddedPostgres
from tests.captured_group import until
from tests.conftest import new_database
from tests.mirror import Mirror
from tests.serving import handled
from tests.web.browser import launched, visiting
from tests.web.documented import check_answer
from tests.web.served import TOKEN, Served, served

PATIENCE = 240_000  # milliseconds: a verification starts a Spark of its own
NOT_FITTING = "1000000000000000000000000000000"

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def mirror(
    browser: Browser, postgres: EmbeddedPostgres, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirror]:
    """A table in a DuckLake, copied, with one delivery since, and with values that do not fit."""
    del browser  # without it nothing is started
    with (
        new_database(postgres) as url,
        closing(Mirror(url, spark, tmp_path_factory.mktemp("panel"))) as mirror,
    ):
        mirror.execute(
            "CREATE TABLE prices (id bigint PRIMARY KEY, amount numeric, tags text[], at timestamptz)",
            "INSERT INTO prices VALUES (1, 'NaN', NULL, now()), (2, 1.5, '{a,b}', now())",
        )
        mirror.start()
        mirror.execute(f"INSERT INTO prices VALUES (3, {NOT_FITTING}, NULL, now())")
        mirror.sync()
        yield mirror


@pytest.fixture(scope="module")
def site(mirror: Mirror) -> Iterator[Served]:
    file = mirror.folder / "served.yaml"
    file.write_text(f"{mirror.file.read_text()}server: {{port: 0, token: {TOKEN}}}\n")
    with served(file) as found:
        yield found


@pytest.fixture
def page(browser: Browser, site: Served) -> Iterator[Page]:
    site.look()
    with visiting(browser, site.address) as visit:
        page = visit.open(f"#token={TOKEN}")
        page.get_by_role("link", name="public.prices", exact=True).click()
        expect(page.locator("#panel .inside:not([aria-busy])")).to_be_visible()
        yield page
        assert visit.said == []


def cells(page: Page, part: str) -> list[list[str]]:
    rows = page.get_by_role("table", name=part).locator("tbody tr")
    return [row.locator("td").all_inner_texts() for row in rows.all()]


def confirm(page: Page, button: str) -> Locator:
    """Press it, and say yes; the note that says what becomes of it."""
    panel = page.locator("#panel")
    panel.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("dialog", name=f"{button} public.prices?")).to_be_visible()
    page.locator("#confirmation-yes").click()
    expect(page.locator("#confirmation")).to_be_hidden()
    return panel.locator(".activity-note").first


def test_columns_have_their_types_on_both_sides(page: Page) -> None:
    assert cells(page, "Columns") == [
        ["idkey", "bigint", "int64"],
        ["amount", "numeric", "decimal(38,18)"],
        ["tags", "text[]", "string[]"],
        ["at", "timestamp with time zone", "timestamptz"],
    ]


def test_what_did_not_fit_is_listed_with_its_key(page: Page) -> None:
    expect(page.get_by_role("region", name="Quarantine")).to_contain_text("2 values.")
    found = {json.loads(key)["id"]: [column, value] for key, column, value, _ in cells(page, "Values in quarantine")}
    assert found == {1: ["amount", "NaN"], 3: ["amount", NOT_FITTING]}


def extensions(folder: Path) -> Path:
    """A folder of DuckDB's in which those that we depend on are installed, as tests have no network to do that."""
    for name in ("ducklake", "sqlite_scanner"):
        package = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert package is not None
        assert package.submodule_search_locations is not None
        for file in Path(package.submodule_search_locations[0]).rglob("*.duckdb_extension"):
            (platform,) = duckdb.sql("PRAGMA platform").fetchone() or ()
            place = folder / f"v{duckdb.__version__}" / platform
            place.mkdir(parents=True, exist_ok=True)
            (place / file.name).symlink_to(file)
    return folder


def amounts(lines: list[str], folder: Path) -> list[Any]:
    """Give the lines to a DuckDB of its own, one after the other; the amounts that the last one lists."""
    with duckdb.connect(config={"extension_directory": str(extensions(folder))}) as plain:
        (*_, answer) = [plain.sql(line) for line in lines]
        assert answer.columns == ["id", "amount", "tags", "at"]
        return [amount for _, amount, *_ in sorted(answer.fetchall(), key=lambda row: row[0])]


def test_the_lines_for_duckdb_run_as_they_are_though_the_lake_has_a_name_of_duckdb(page: Page, tmp_path: Path) -> None:
    assert amounts(page.locator("#panel .typed code").all_inner_texts(), tmp_path) == [None, Decimal("1.5"), None]


def test_the_deliveries_of_the_table_name_the_snapshots_of_the_lake(page: Page, mirror: Mirror) -> None:
    snapshots = {str(each) for each in mirror.snapshots("prices")}
    (*_, (_, changes, _, which)) = cells(page, "Deliveries")
    assert (changes, which.rpartition(" → ")[2] in snapshots) == ("1", True)


def test_a_verification_compares_source_and_lake(page: Page, site: Served) -> None:
    note = confirm(page, "Verify now")
    until(lambda: site.facts.look() and site.get("/api/v1/verifications/1").json["state"] != "running", 240, 1)
    expect(note).to_contain_text("the lake equals the source: 1 comparison")
    expect(note.locator("li")).to_have_text("equal public.prices")
    found = site.get("/api/v1/verifications/1")
    check_answer(found, "get", "/verifications/{id}")
    assert [found.json["state"], found.json["equal"], found.json["tables"]] == ["done", True, ["public.prices"]]


def test_a_resync_copies_the_table_again(page: Page, site: Served, mirror: Mirror) -> None:
    before = mirror.ask("SELECT max(snapshot_id) FROM lake.snapshots()")
    note = confirm(page, "Resync")
    expect(note).to_contain_text("the service acts on it in a moment")
    (request,) = handled(mirror.config, mirror.m.state)
    assert (request.verb, request.table, request.failed) == ("resync_table", "public.prices", False)
    expect(note).to_contain_text(str(request.outcome))
    site.look()
    expect(page.locator("#panel .trouble")).to_contain_text("To be copied again")
    assert mirror.settle()
    site.look()
    expect(page.locator("#panel .trouble")).to_be_hidden()
    expect(page.locator("#panel .pill").first).to_have_text("STREAMING")
    expect(page.get_by_role("region", name="History")).to_contain_text("resync table: public.prices")
    assert mirror.ask("SELECT max(snapshot_id) FROM lake.snapshots()") > before
    assert mirror.ask("SELECT count(*) FROM lake.public.prices") == [(3,)]
