"""Destinations in schemas of one PostgreSQL database: they are committed together, and each stands for itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from tests.route.routebench import RouteBench

from headwater.sink.ducklake.address import DuckLakeAddress

ROWS = "INSERT INTO orders SELECT i, ['a', 'b', 'c'][1 + i % 3], i, 'note ' || i FROM range({}, {}) r(i)"


@pytest.fixture
def route(new_route: Callable[..., RouteBench], other_database: str, tmp_path: Path) -> RouteBench:
    sep = "&" if "?" in other_database else "?"
    addresses = {
        f"tenant_{tenant}": DuckLakeAddress(
            f"{other_database}{sep}schema=tenant_{tenant}", str(tmp_path / f"tenant_{tenant}")
        )
        for tenant in "abc"
    }
    return new_route(addresses=addresses)


def test_every_destination_gets_its_rows(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 30))
    route.turns()
    route.check()
    route.sql("UPDATE orders SET amount = -1 WHERE id < 9", "DELETE FROM orders WHERE id % 7 = 0", ROWS.format(30, 40))
    route.sql("UPDATE orders SET tenant = 'b' WHERE id IN (3, 6)")
    route.turns()
    route.check()
    route.check_no_leak()
    assert [(route.files(tenant), route.inlined(tenant) > 0) for tenant in "abc"] == [(1, True)] * 3


def test_one_that_fails_does_not_disturb_those_that_it_shares_a_transaction_with(
    route: RouteBench, other_database: str
) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    with psycopg.connect(other_database) as connection:
        connection.execute("ALTER TABLE tenant_a.headwater_position RENAME TO elsewhere")
    route.sql(ROWS.format(9, 18))
    turn = route.turn()
    assert list(turn.failed) == ["=a"]
    assert (route.shown("b"), route.shown("c")) == (route.wanted("b"), route.wanted("c"))
    with psycopg.connect(other_database) as connection:
        connection.execute("ALTER TABLE tenant_a.elsewhere RENAME TO headwater_position")
    route.retry()
    route.turns()
    route.check()


def test_one_that_another_client_changes_meanwhile_is_planned_again(route: RouteBench) -> None:
    from headwater.ducklake.extension import attach, connect
    from headwater.ducklake.url import parse_lake_url

    route.sql(ROWS.format(0, 9))
    route.turns()
    with connect() as con:
        attach(con, parse_lake_url(route.address("b").catalog), "theirs")  # type: ignore[attr-defined]
        con.execute("CREATE TABLE theirs.main.notes (i INTEGER)")
        con.execute("INSERT INTO theirs.main.notes VALUES (1)")
    route.sql(ROWS.format(9, 18), "DELETE FROM orders WHERE id = 1")
    route.turns()
    route.check()
