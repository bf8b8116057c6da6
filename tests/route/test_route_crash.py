"""Killed with SIGKILL at each named step, and started again: every destination has exactly its rows, none twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.route.killed import turn_and_be_killed
from tests.route.routebench import INLINE_ROWS, RouteBench

from headwater.failpoints import FAILPOINTS
from headwater.feed.source import Bound
from headwater.flow.routesource import RouteRules

ROWS = "INSERT INTO orders SELECT i, ['a', 'b', 'c'][1 + i % 3], i, 'note ' || i FROM range({}, {}) r(i)"
USUAL = ("seed.committed", "route.committed")  # where data has landed, and the state does not know it


def steps(kind: str) -> list[object]:
    found = [name for name in FAILPOINTS if name.startswith(kind)]
    return [name if name in USUAL else pytest.param(name, marks=pytest.mark.long) for name in found]


def files(route: RouteBench) -> set[Path]:
    return {each for tenant in route.tenants for each in (route.folder / f"tenant_{tenant}").rglob("*.parquet")}


def registered(route: RouteBench) -> set[str]:
    found = set()
    for tenant in route.tenants:
        rows = route.ask(tenant, "SELECT path FROM __ducklake_metadata_lake.ducklake_data_file")
        found |= {path.rsplit("/", 1)[-1] for (path,) in rows}
    return found


def check_after_the_crash(route: RouteBench) -> None:
    route.collect()
    route.retry()
    route.turns()
    route.check()
    route.check_no_leak()
    assert {each.name for each in files(route)} == registered(route)
    for tenant in route.tenants:
        changes = route.ask(tenant, f"FROM lake.table_changes('orders', 1, {route.snapshots(tenant)[-1]})")
        assert len(changes) == len(set(changes)), "a change has landed twice"


@pytest.mark.parametrize("failpoint", steps("seed."))
def test_a_seed_that_is_killed_heals(route: RouteBench, failpoint: str) -> None:
    route.sql(ROWS.format(0, 30))
    turn_and_be_killed(route, failpoint)
    check_after_the_crash(route)


@pytest.mark.parametrize("inline_rows", [INLINE_ROWS, pytest.param(None, marks=pytest.mark.long)])
@pytest.mark.parametrize("failpoint", steps("route."))
def test_a_poll_that_is_killed_heals(
    new_route: Callable[..., RouteBench], failpoint: str, inline_rows: int | None
) -> None:
    route = new_route(inline_rows=inline_rows)
    route.sql(ROWS.format(0, 30))
    route.turns()
    route.sql(ROWS.format(30, 40), "UPDATE orders SET amount = -1 WHERE id < 10", "DELETE FROM orders WHERE id = 12")
    turn_and_be_killed(route, failpoint)
    # More has happened when it comes back: a key that the killed poll has delivered is gone, another one is new.
    route.sql("DELETE FROM orders WHERE id = 31", "UPDATE orders SET tenant = 'b' WHERE id = 30")
    check_after_the_crash(route)


@contextmanager
def forgotten(route: RouteBench) -> Iterator[None]:
    """What is delivered inside has landed, and the state does not know it: as if the process was killed just then."""
    row, landed = route.state.route(route.id), [(each.landed, each.id) for each in route.destination_rows()]
    assert row is not None
    yield
    with route.state.transaction() as connection:
        connection.execute("UPDATE headwater.routes SET position = %s", (row.position,))
        connection.cursor().executemany("UPDATE headwater.destinations SET landed = %s WHERE id = %s", landed)


def test_a_destination_that_a_killed_poll_has_brought_further_did_not_go_back_later(
    route: RouteBench, caplog: pytest.LogCaptureFixture
) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    route.sql("INSERT INTO orders VALUES (100, 'a', 1, 'x')")
    with forgotten(route):
        route.turn()
    for id_, tenant in ((101, "b"), (102, "a"), (103, "c"), (104, "a")):
        route.sql(f"INSERT INTO orders VALUES ({id_}, '{tenant}', 1, 'x')")
        assert route.turn().failed == {}
    route.check()
    assert "went back" not in caplog.text


def test_what_a_killed_poll_has_delivered_is_not_appended_again_by_shorter_polls(
    new_route: Callable[..., RouteBench],
) -> None:
    route = new_route(rules=RouteRules("tenant", append=True))
    route.turns()
    for id_ in range(3):
        route.sql(f"INSERT INTO orders VALUES ({id_}, 'a', 1, 'x'), ({id_}, 'b', 1, 'x')")
    with forgotten(route):
        route.turn()
    route.most = Bound(1, 1)
    route.sql("INSERT INTO orders VALUES (9, 'a', 1, 'x')")
    route.turns()
    route.check()


def test_a_column_that_came_after_a_killed_poll_reaches_those_that_had_landed(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    route.sql(ROWS.format(9, 12))
    with forgotten(route):
        route.turn()
    route.sql("ALTER TABLE orders ADD COLUMN extra INTEGER DEFAULT 4")
    route.turns()
    route.check()


def test_what_landed_before_the_state_knew_it_is_not_delivered_again(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    route.sql(ROWS.format(9, 12))
    turn_and_be_killed(route, "route.polled")
    before = {tenant: route.snapshots(tenant) for tenant in route.tenants}
    route.turns()
    assert {tenant: route.snapshots(tenant) for tenant in route.tenants} == before
    route.check()


def test_a_lake_that_was_restored_from_a_backup_is_brought_up_again(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    catalog = route.folder / "tenant_a.sqlite"
    backup = catalog.read_bytes()
    route.sql(ROWS.format(9, 12), "DELETE FROM orders WHERE id = 0")
    route.turns()
    for each in route.folder.glob("tenant_a.sqlite*"):
        each.unlink()
    catalog.write_bytes(backup)
    route.sql(ROWS.format(12, 15))
    route.turns()
    route.check()
