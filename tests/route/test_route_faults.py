"""What one destination meets stays its own: the others go on, and it comes back by itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from tests.proof.processes import wait_for
from tests.route.routebench import RouteBench

from headwater.state import State

ROWS = "INSERT INTO orders SELECT i, ['a', 'b', 'c'][1 + i % 3], i, 'note ' || i FROM range({}, {}) r(i)"


def broken(route: RouteBench, tenant: str) -> Path:
    """The tenant's catalog is no database any more; returns where the good one is kept."""
    catalog = route.folder / f"tenant_{tenant}.sqlite"
    kept = catalog.with_suffix(".kept")
    shutil.move(catalog, kept)
    catalog.write_bytes(b"this is no database, whoever put it here" * 100)
    return kept


def mended(route: RouteBench, tenant: str, kept: Path) -> None:
    for each in route.folder.glob(f"tenant_{tenant}.sqlite*"):
        each.unlink()
    shutil.move(kept, route.folder / f"tenant_{tenant}.sqlite")
    route.retry()


def test_a_broken_destination_leaves_the_others_alone_and_comes_back(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    kept = broken(route, "a")
    for first in (9, 18):
        route.sql(ROWS.format(first, first + 9), "DELETE FROM orders WHERE id = 0")
        route.turn()
        assert (route.shown("b"), route.shown("c")) == (route.wanted("b"), route.wanted("c"))
    row = route.row("a")
    assert row.state == "ERRORED"
    assert row.behind is not None
    assert row.error is not None
    assert row.retry_at is not None
    assert row.waiting_rows == 3
    mended(route, "a", kept)
    route.turns()
    route.check()
    row = route.row("a")
    assert (row.state, row.behind, row.error, row.failures, row.waiting_rows) == ("ACTIVE", None, None, 0, 0)


def test_a_destination_that_fails_again_and_again_waits_longer_each_time(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    broken(route, "a")
    waits = []
    for first in range(9, 36, 9):
        route.sql(ROWS.format(first, first + 9))
        route.retry()
        begun = datetime.now(UTC)
        route.turn()
        retry_at = route.row("a").retry_at
        assert retry_at is not None
        waits.append((retry_at - begun).total_seconds())
    assert waits[0] < waits[1] < waits[2]
    assert route.row("a").failures == 3


def test_the_shared_read_does_not_go_back_for_a_broken_destination(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    kept = broken(route, "a")
    route.sql(ROWS.format(9, 18))
    route.turn()
    before = route.row("a").behind
    route.sql(ROWS.format(18, 27))
    turn = route.turn()
    assert set(turn.landed) == {"=b", "=c"}
    assert sum(each.inserted for each in turn.landed.values()) == 6
    assert route.row("a").behind == before
    mended(route, "a", kept)
    route.turns()
    route.check()


def test_a_paused_destination_stays_as_it_is_and_goes_on_where_it_was(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    shown = route.shown("a")
    assert route.state.pause_destinations("by_tenant", ["=a"]) == 1
    route.sql(ROWS.format(9, 18), "DELETE FROM orders WHERE id < 3")
    route.turns()
    assert route.shown("a") == shown
    assert route.shown("b") == route.wanted("b")
    assert route.state.resume_destinations("by_tenant", ["=a"]) == 1
    route.turns()
    route.check()


def test_a_paused_destination_whose_snapshots_expire_is_seeded_again(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    route.state.pause_destinations("by_tenant", ["=a"])
    route.sql(ROWS.format(9, 18))
    route.turns()
    route.sql("DELETE FROM orders WHERE id IN (0, 9)")
    route.sql("CALL ducklake_expire_snapshots('source', older_than => now() + INTERVAL 1 hour)")
    route.state.resume_destinations("by_tenant", ["=a"])
    route.turns()
    route.check()


def test_a_table_that_another_client_dropped_in_the_destination_is_seeded_again(route: RouteBench) -> None:
    from headwater.ducklake.extension import attach, connect
    from headwater.ducklake.url import parse_lake_url

    route.sql(ROWS.format(0, 9))
    route.turns()
    with connect() as con:
        attach(con, parse_lake_url(route.address("a").catalog), "theirs")  # type: ignore[attr-defined]
        con.execute("DROP TABLE theirs.main.orders")
    route.sql(ROWS.format(9, 18))
    route.turn()
    assert route.row("a").reseed is not None
    route.retry()
    route.turns()
    route.check()


def test_a_destination_that_another_process_has_is_left_alone(
    new_route: Callable[..., RouteBench], database: str
) -> None:
    route = new_route()
    route.sql(ROWS.format(0, 9))
    with closing(State.connect(database)) as other, other.lock("route:other"):
        other.ensure_destinations("by_tenant", [])
        _ = route.destinations  # known now, and ours
        with route.state.transaction() as connection:
            connection.execute("UPDATE headwater.destinations SET owner = 'route:other' WHERE id = '=a'")
        assert route.destinations.mine == {"=b", "=c"}
        route.turns()
        assert route.row("a").landed is None
    wait_for(lambda: route.destinations.mine == {"=a", "=b", "=c"}, "its process has ended")
    route.turns()
    route.check()


def test_two_instances_share_a_route(new_route: Callable[..., RouteBench]) -> None:
    from headwater.state.routes import RouteId

    route = new_route()
    route.sql(ROWS.format(0, 30))
    route.turns()
    first, second = RouteId("by_tenant", "0 of 2"), RouteId("by_tenant", "1 of 2")
    route.id = first
    route.state.claim(first, ["=a", "=b"], "one")
    route.state.claim(second, ["=c"], "two")
    rows = {row.id: row for row in route.state.destinations("by_tenant")}
    assert {id_: row.instance for id_, row in rows.items()} == {"=a": "0 of 2", "=b": "0 of 2", "=c": "1 of 2"}
    assert all(row.behind is not None for row in rows.values()), "each keeps the position that it had"
