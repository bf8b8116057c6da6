"""Who needs the log, and from where on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.change import Lsn, TableName
from headwater.state import TableOptions, TableRow, TableState
from headwater.state.holding import Holder, holders, needed_from
from headwater.state.routes import RouteRow

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def row(state: TableState, **other: Any) -> TableRow:
    """Copied at 0/5, where it still is; ERRORED, it waits to try again."""
    name, retry_at = TableName("public", "orders"), NOW if state == "ERRORED" else None
    plain: dict[str, Any] = {
        "group": "shop", "oid": 7, "source": name, "lake": name, "state": state, "position": Lsn(5), "copy_lsn": Lsn(5),
        "copied_rows": 0, "copy_total": None, "inserted": 0, "updated": 0, "deleted": 0, "error": None, "failures": 0,
        "retry_at": retry_at, "configured": name, "options": TableOptions(), "quarantined": 0, "resync": None,
        "resync_lsn": Lsn(0), "published": None, "replaces": (), "dropped_lsn": None, "updated_at": NOW,
    }  # fmt: skip
    return TableRow(**(plain | other))


@pytest.mark.parametrize(
    ("of", "needed"),
    [
        (row("STREAMING", position=Lsn(9)), 9),
        (row("CATCHUP"), 5),
        (row("ERRORED"), 5),
        (row("PAUSED"), 5),
        (row("REMOVED"), None),
        (row("ERRORED", retry_at=None, dropped_lsn=Lsn(7)), None),  # of a table that was dropped nothing more comes
        (row("ERRORED", retry_at=None), 5),
        (row("PENDING", position=None, copy_lsn=None), None),  # the copy brings all from before it
        (row("SNAPSHOT", position=None, copy_lsn=Lsn(8)), 8),
        (row("PAUSED", position=None, copy_lsn=Lsn(8)), 8),  # a copy that was under way may still land
        (row("PENDING", resync="a gap", resync_lsn=Lsn(7)), None),
        (row("SNAPSHOT", resync="a gap", resync_lsn=Lsn(7), copy_lsn=Lsn(8)), 8),
        (row("SNAPSHOT", resync="a gap", resync_lsn=Lsn(9), copy_lsn=Lsn(8)), None),  # it will not do
        (row("PAUSED", resync="a gap", resync_lsn=Lsn(7)), None),
        (row("PAUSED", resync="a gap", resync_lsn=Lsn(7), copy_lsn=Lsn(8)), 8),
        (row("PAUSED", position=Lsn(6), resync="a gap"), None),  # its copy is from before
    ],
    ids=str,
)
def test_a_table_needs_the_log_from_its_position_on_unless_a_copy_brings_what_it_lacks(
    of: TableRow, needed: int | None
) -> None:
    assert needed_from(of) == (None if needed is None else Lsn(needed))


def route(name: str, position: int | None, table: int = 7, error: str | None = None) -> RouteRow:
    return RouteRow(name, "all", "1-db/shop", table, position, False, NOW, 0, 0, error)


def test_the_hindmost_comes_first_and_routes_hold_the_log_as_tables_do() -> None:
    other = row("ERRORED", oid=8, source=TableName("public", "lines"), position=Lsn(6))
    routes = [
        route("reads", 5),
        route("failed", 7, error="no disk"),
        route("new", None),
        route("before the copy", 4),
        route("of no table", 1, table=99),
    ]
    found = holders([row("STREAMING", position=Lsn(9)), other], routes)
    assert found == [
        Holder("route", "reads", 7, Lsn(5), None, Lsn(5)),
        Holder("table", "public.lines", 8, Lsn(6), "ERRORED", Lsn(6)),
        Holder("route", "failed", 7, Lsn(7), "ERROR", Lsn(7)),
        Holder("table", "public.orders", 7, Lsn(9), "STREAMING", Lsn(9)),
    ]
    assert [str(each) for each in found[:2]] == ["route reads", "table public.lines, which is ERRORED"]
