"""A destination whose catalog hangs: the others go on, the turns do not wait for it, and it catches up by itself."""

from __future__ import annotations

import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.proof.processes import wait_for
from tests.route.routebench import RouteBench

from headwater.sink.ducklake.address import DuckLakeAddress

ROWS = "INSERT INTO orders SELECT i, ['a', 'b', 'c'][1 + i % 3], i, 'note ' || i FROM range({}, {}) r(i)"
MANY = [f"t{i}" for i in range(8)]
SHORT, LONG = 1, 120  # seconds that a destination is waited for


@pytest.fixture
def route(new_route: Callable[..., RouteBench]) -> RouteBench:
    return seeded(new_route(patience=SHORT))


def seeded(route: RouteBench) -> RouteBench:
    route.sql(ROWS.format(0, 9))
    route.turn()
    return route


@contextmanager
def locked_file(route: RouteBench, tenant: str, mode: str = "IMMEDIATE") -> Iterator[None]:
    """Another client has a transaction in the tenant's catalog."""
    with closing(sqlite3.connect(route.folder / f"tenant_{tenant}.sqlite", isolation_level=None)) as other:
        other.execute(f"BEGIN {mode}")
        yield
        other.execute("ROLLBACK")


@contextmanager
def session(database: str, statement: str) -> Iterator[None]:
    """Another client has a transaction in which it has done this."""
    with psycopg.connect(database) as other:
        other.execute(statement.encode())
        yield
        other.rollback()


@contextmanager
def without_waiting(route: RouteBench) -> Iterator[None]:
    """Inside, whoever waits for a lock waits so long that it is noticed."""
    begun, route.patience = time.monotonic(), LONG
    yield
    assert time.monotonic() - begun < LONG / 2
    route.patience = SHORT


def others_go_on(route: RouteBench, *firsts: int) -> None:
    """While tenant `a` hangs, every turn brings new rows to each of the others."""
    for first in firsts:
        route.sql(ROWS.format(first, first + 9), f"DELETE FROM orders WHERE id = {first - 1}")
        route.turn()
        assert (route.shown("b"), route.shown("c")) == (route.wanted("b"), route.wanted("c"))


def catches_up(route: RouteBench, *tenants: str) -> None:
    """By itself, as soon as it answers, and exactly once."""
    route.retry()

    def caught_up() -> bool:
        route.turn()
        return all((route.row(each).state, route.row(each).behind) == ("ACTIVE", None) for each in tenants)

    wait_for(caught_up, "it has caught up")
    route.check()


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_others_go_on_while_another_client_holds_the_catalog_of_one(route: RouteBench, journal: str) -> None:
    with closing(sqlite3.connect(route.folder / "tenant_a.sqlite")) as other:
        other.execute(f"PRAGMA journal_mode = {journal}")  # that of our own lakes, and that of lakes made by DuckDB
    with locked_file(route, "a", "EXCLUSIVE"):
        others_go_on(route, 9)
        row = route.row("a")
        assert (row.state, row.failures, row.behind is not None) == ("ERRORED", 1, True)
        assert "stayed locked" in (row.error or "")
        with without_waiting(route):
            route.retry()
            others_go_on(route, 18, 27)
        assert route.row("a").waiting_rows > 0
    catches_up(route, "a")


def test_a_probe_that_fails_makes_the_destination_wait_longer(route: RouteBench) -> None:
    with locked_file(route, "a"):
        others_go_on(route, 9)
        route.retry()
        wait_for(lambda: route.turn() and route.row("a").failures > 1, "the probe has failed, too")
        retry_at, error = route.row("a").retry_at, route.row("a").error
    assert retry_at is not None
    assert "stayed locked" in (error or "")


def test_many_that_hang_at_once_hold_up_the_others_once_and_not_one_after_the_other(
    new_route: Callable[..., RouteBench],
) -> None:
    route = new_route(tenants=(*MANY, "b", "c"), patience=SHORT)
    route.turn()

    def grow(first: int) -> None:
        values = ", ".join(f"({first + i}, '{each}', 1, 'x')" for i, each in enumerate((*MANY, "b", "c")))
        route.sql(f"INSERT INTO orders VALUES {values}")

    with ExitStack() as held:
        for each in MANY:
            held.enter_context(locked_file(route, each))
        grow(0)
        turn = route.turn()
        assert (len(turn.failed), set(turn.landed)) == (len(MANY), {"=b", "=c"})
        with without_waiting(route):
            route.retry()
            grow(100)
            assert set(route.turn().landed) == {"=b", "=c"}
    catches_up(route, *MANY)


def test_a_destination_that_hangs_before_its_seed_holds_up_no_other(new_route: Callable[..., RouteBench]) -> None:
    route = new_route(patience=SHORT)
    with closing(sqlite3.connect(route.folder / "tenant_a.sqlite")) as other:
        other.execute("CREATE TABLE something_of_others (i INTEGER)")
    route.sql(ROWS.format(0, 9))
    with locked_file(route, "a", "EXCLUSIVE"):
        turn = route.turn()
        assert (set(turn.seeded), set(turn.failed)) == ({"=b", "=c"}, {"=a"})
        assert "stayed locked" in (route.row("a").error or "")
        with without_waiting(route):
            route.retry()
            others_go_on(route, 9)
    catches_up(route, "a")


def test_a_destination_that_hangs_is_not_asked_in_every_turn_what_a_killed_poll_has_left_there(
    route: RouteBench,
) -> None:
    killed = "0" * 32
    route.state.begin_poll(route.id, killed)
    with locked_file(route, "a"):
        others_go_on(route, 9)
        assert (route.row("a").state, route.row("a").behind is not None) == ("ERRORED", True)
        with without_waiting(route):
            route.retry()
            others_go_on(route, 18)
        assert route.state.attempts(route.id) == [killed]
    catches_up(route, "a")
    route.turn()
    assert route.state.attempts(route.id) == []


@pytest.fixture
def in_postgres(new_route: Callable[..., RouteBench], other_database: str, tmp_path: Path) -> RouteBench:
    """Destinations in schemas of one database, which commit together."""
    found = {f"tenant_{tenant}": f"{other_database}&schema=tenant_{tenant}" for tenant in "abc"}
    addresses = {name: DuckLakeAddress(url, str(tmp_path / name)) for name, url in found.items()}
    return seeded(new_route(addresses=addresses, patience=SHORT))


HELD = {
    "everything": "LOCK TABLE tenant_a.ducklake_snapshot IN ACCESS EXCLUSIVE MODE",
    "metadata": "LOCK TABLE tenant_a.ducklake_metadata, tenant_a.headwater_position IN ACCESS EXCLUSIVE MODE",
    "writing": "LOCK TABLE tenant_a.ducklake_snapshot IN SHARE ROW EXCLUSIVE MODE",
    "a position": "UPDATE tenant_a.headwater_position SET source = source",
    "a snapshot": "INSERT INTO tenant_a.ducklake_snapshot SELECT max(snapshot_id) + 1 FROM tenant_a.ducklake_snapshot",
}


@pytest.mark.parametrize("held", HELD)
def test_others_of_one_database_go_on_while_another_session_holds_the_catalog_of_one(
    in_postgres: RouteBench, other_database: str, held: str
) -> None:
    route = in_postgres
    with session(other_database, HELD[held]):
        others_go_on(route, 9)
        assert "stayed locked" in (route.row("a").error or "")
        with without_waiting(route):
            route.retry()
            others_go_on(route, 18)
    catches_up(route, "a")


def test_a_server_that_accepts_connections_and_never_answers_holds_up_no_other(
    new_route: Callable[..., RouteBench], tmp_path: Path
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"postgresql://x@127.0.0.1:{server.getsockname()[1]}/x"
        silent = [f"t{i}" for i in range(20)]
        names = [f"tenant_{each}" for each in ("a", *silent)]
        addresses = {name: DuckLakeAddress(f"{url}?schema={name}", str(tmp_path / name)) for name in names}
        route = new_route(addresses=addresses, tenants=(*silent, "a", "b", "c"), patience=2)
        route.sql(ROWS.format(0, 9))
        turn = route.turn()
        assert (set(turn.seeded), len(turn.failed)) == ({"=b", "=c"}, 21)
        with without_waiting(route):
            route.retry()
            others_go_on(route, 9)
        assert "does not answer" in (route.row("a").error or "")
