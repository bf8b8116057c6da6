"""Who still needs a group's log, and from where on. No IO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from headwater.change import Lsn
from headwater.state.routes import RouteRow
from headwater.state.rows import TableRow, TableState

__all__ = ["Holder", "holders", "needed_from"]


@dataclass(frozen=True, slots=True)
class Holder:
    """A table or a route that needs the log from `lsn` on. A route has the OID of the table that it reads."""

    kind: Literal["table", "route"]
    name: str
    oid: int
    lsn: Lsn
    state: TableState | Literal["ERROR"] | None  # None: a route that reads on
    position: Lsn | None  # what it has already; None: it is being copied

    @property
    def paused(self) -> bool:
        return self.state == "PAUSED"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f", which is {self.state}" if self.state else "")


def holders(tables: Iterable[TableRow], routes: Iterable[RouteRow]) -> list[Holder]:
    """Those of the group's tables, and of the routes that read them, that need the log; the hindmost first."""
    rows = {row.oid: row for row in tables}
    return sorted([*_tables(rows.values()), *_routes(routes, rows)], key=lambda each: each.lsn)


def _tables(rows: Iterable[TableRow]) -> Iterator[Holder]:
    for row in rows:
        if (lsn := needed_from(row)) is not None:
            yield Holder("table", str(row.source), row.oid, lsn, row.state, row.position)


def _routes(routes: Iterable[RouteRow], tables: dict[int, TableRow]) -> Iterator[Holder]:
    for route in routes:
        if route.position is None:
            continue  # it will begin with the rows of the mirror
        at, table = Lsn(route.position), tables.get(route.source_table)
        if table is None or (table.copy_lsn is not None and table.copy_lsn > at):
            continue  # what was copied since then comes to it from the mirror, too
        yield Holder("route", route.name, table.oid, at, "ERROR" if route.error else None, at)


def needed_from(row: TableRow) -> Lsn | None:
    """From where on a table needs the log; None: not at all, or a copy is to come that brings all from before it."""
    if row.state == "REMOVED" or (row.stopped and row.dropped_lsn is not None):
        return None
    if row.resync is not None:
        return _of_copy(row)
    if row.position is None:
        return row.copy_lsn if row.state in ("SNAPSHOT", "PAUSED") else None
    return row.position


def _of_copy(row: TableRow) -> Lsn | None:
    """Of a table that is to be copied again: where the copy begins that is under way, if there is one that will do."""
    at = row.copy_lsn
    will_do = at is not None and at >= row.resync_lsn and (row.position is None or at >= row.position)
    return at if will_do else None
