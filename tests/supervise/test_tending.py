"""The lakes of a route's destinations are maintained like any other."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.routed import RoutedShop

from headwater.config import Maintenance
from headwater.flow.routing import OpenRoute
from headwater.supervise.beside import Beside
from headwater.supervise.sources import opened_source, route_rules
from headwater.supervise.tending import RouteMaintenance, is_due
from headwater.supervise.turns import RouteTurns


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[RoutedShop]:
    with closing(RoutedShop(database, tmp_path)) as made:
        yield made


def turned(shop: RoutedShop, spark: SparkSession, beside: Beside) -> None:
    """Turns of the route as `run` takes them, until all destinations have everything."""
    with opened_source(shop.config, {}, "by_company") as source:
        route = shop.config.routes["by_company"]
        opened = OpenRoute(shop.id, source, route_rules(route), route.seed, shop.state, spark)
        turns = RouteTurns(shop.config, {}, opened, shop.owner, beside)
        while not turns.take():
            pass


def maintaining(shop: RoutedShop, spark: SparkSession, beside: Beside) -> RouteMaintenance:
    return RouteMaintenance(shop.config, Maintenance(), spark, threading.Event(), beside, first=0)


def rows(shop: RoutedShop, lake: str) -> list[tuple[object, ...]]:
    return shop.sql(f"SELECT id, total FROM {lake}.main.orders ORDER BY id")


def test_rows_that_small_shares_left_in_the_catalogs_become_files(shop: RoutedShop, spark: SparkSession) -> None:
    shop.rewrite(("    keys: [id]", "    keys: [id]\n    inline: {rows: 20}"))
    beside = Beside()
    shop.sql("INSERT INTO shop.main.orders SELECT i, 'acme', i FROM range(10) r(i)")
    turned(shop, spark, beside)
    for number in range(3):
        first = 100 + 10 * number
        shop.sql(f"INSERT INTO shop.main.orders SELECT i, 'acme', i FROM range({first}, {first + 10}) r(i)")
        shop.sql(f"UPDATE shop.main.orders SET total = -{number} WHERE id < 5")
        turned(shop, spark, beside)
    shop.attach("acme")
    before = rows(shop, "acme")
    assert inlined_rows(shop, "acme") == 15
    maintaining(shop, spark, beside).visit_all(shop.state)
    assert inlined_rows(shop, "acme") == 0
    assert rows(shop, "acme") == before
    shop.sql("UPDATE shop.main.orders SET total = 7 WHERE id % 2 = 0", "DELETE FROM shop.main.orders WHERE id = 101")
    turned(shop, spark, beside)
    assert rows(shop, "acme") == rows(shop, "shop")


def inlined_rows(shop: RoutedShop, lake: str) -> int:
    """Rows of the destination's table that are in its catalog, alive or not."""
    catalog = f"__ducklake_metadata_{lake}"
    names = shop.sql(f"SELECT table_name FROM {catalog}.ducklake_inlined_data_tables")
    return sum(int(shop.sql(f"SELECT count(*) FROM {catalog}.{name}")[0][0]) for (name,) in names)


def with_rows_to_flush(shop: RoutedShop, spark: SparkSession) -> Beside:
    """Three destinations, each with more rows in its catalog than may stay there."""
    shop.rewrite(("    keys: [id]", "    keys: [id]\n    inline: {rows: 10}"))
    beside = Beside()
    shop.sql("INSERT INTO shop.main.orders VALUES (1, 'acme', 1), (2, 'globex', 2), (3, 'x', 3)")
    turned(shop, spark, beside)
    shop.sql("INSERT INTO shop.main.orders SELECT i, ['acme', 'globex', 'x'][1 + i % 3], i FROM range(10, 28) r(i)")
    turned(shop, spark, beside)
    return beside


def test_a_lake_that_is_gone_does_not_keep_the_others_from_being_maintained(
    shop: RoutedShop, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    beside = with_rows_to_flush(shop, spark)
    (shop.folder / "globex.sqlite").rename(shop.folder / "away")
    maintaining(shop, spark, beside).visit_all(shop.state)
    assert caplog.text.count("is left for later") == 1
    for lake in ("acme", "rest"):
        shop.attach(lake)
        assert (inlined_rows(shop, lake), len(rows(shop, lake))) == (0, 7)


def test_a_lake_that_another_client_holds_does_not_keep_the_others_from_being_maintained(
    shop: RoutedShop, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    beside = with_rows_to_flush(shop, spark)
    with closing(sqlite3.connect(shop.folder / "globex.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        maintaining(shop, spark, beside).visit_all(shop.state)
    assert "globex.sqlite stayed locked" in caplog.text
    for lake in ("acme", "rest"):
        shop.attach(lake)
        assert (inlined_rows(shop, lake), len(rows(shop, lake))) == (0, 7)


@pytest.mark.parametrize(
    ("delivered", "visited", "due"),  # minutes ago
    [
        pytest.param(1, None, True, id="never visited"),
        pytest.param(3, 2, True, id="something was delivered"),
        pytest.param(3, 0.5, False, id="visited just now"),
        pytest.param(14, 6, True, id="rows were young when it was visited"),
        pytest.param(30, 15, False, id="idle"),
        pytest.param(90, 61, True, id="idle for an hour"),
    ],
)
def test_a_destination_is_visited_when_something_may_have_to_be_done(
    shop: RoutedShop, delivered: float, visited: float | None, due: bool
) -> None:
    shop.seeded()
    now = datetime.now(UTC)
    last = datetime.min.replace(tzinfo=UTC) if visited is None else now - timedelta(minutes=visited)
    row = replace(shop.state.destinations("by_company")[0], delivered_at=now - timedelta(minutes=delivered))
    assert is_due(row, last, now) is due
    assert not is_due(replace(row, state="PAUSED"), last, now)


def test_rows_that_are_neither_many_nor_old_stay_in_the_catalog(shop: RoutedShop, spark: SparkSession) -> None:
    beside = Beside()
    shop.sql("INSERT INTO shop.main.orders SELECT i, 'acme', i FROM range(10) r(i)")
    turned(shop, spark, beside)
    shop.sql("INSERT INTO shop.main.orders VALUES (100, 'acme', 1)")
    turned(shop, spark, beside)
    maintaining(shop, spark, beside).visit_all(shop.state)
    shop.attach("acme")
    assert inlined_rows(shop, "acme") == 1


def test_a_destination_that_has_failed_is_left_alone(
    shop: RoutedShop, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    beside = Beside()
    shop.sql("INSERT INTO shop.main.orders SELECT i, 'acme', i FROM range(10) r(i)")
    turned(shop, spark, beside)
    (shop.folder / "acme.sqlite").rename(shop.folder / "away")
    shop.sql("INSERT INTO shop.main.orders VALUES (100, 'acme', 1)")
    turned(shop, spark, beside)
    assert [row.state for row in shop.state.destinations("by_company") if row.value == "acme"] == ["ERRORED"]
    caplog.clear()
    maintaining(shop, spark, beside).visit_all(shop.state)
    assert "is left for later" not in caplog.text
