"""What the source of a route has, and some of its destinations do not."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from headwater.change import Lsn, Position, SnapshotId
from headwater.config import Config, DuckLake, Route
from headwater.errors import HeadwaterError
from headwater.feed.opening import opened_table
from headwater.state import State

__all__ = ["Backlog", "RouteLag", "lake_backlog", "log_backlog"]


class RouteLag(NamedTuple):
    """How far a position is behind the source; None: it cannot be known."""

    snapshots: int | None  # None too for a route that reads a log
    seconds: float | None
    complete: bool = False  # it has everything


@dataclass(frozen=True, slots=True)
class Backlog:
    """The newest position of a source, and the pieces that some destination lacks: where each ends, and its time.

    A destination has the pieces that end at its position or below it.
    """

    kind: type[Position]
    newest: int | None = None
    ends: tuple[int, ...] = ()  # in order
    times: tuple[datetime, ...] = ()
    error: str | None = None  # why nothing is known

    def lag(self, position: int | None, now: datetime) -> RouteLag:
        """Of a destination that is complete up to here; None: it has nothing yet."""
        if position is None or self.newest is None:
            return RouteLag(None, None)
        first = bisect_right(self.ends, position)
        lacking = len(self.ends) - first
        seconds = (now - self.times[first]).total_seconds() if lacking else 0.0
        return RouteLag(lacking if self.kind is SnapshotId else None, max(round(seconds, 3), 0.0), not lacking)

    def text(self, position: int | None) -> str | None:
        """A position as people read it."""
        return None if position is None else str(self.kind(position))


def lake_backlog(config: Config, env: Mapping[str, str], route: Route, after: int | None) -> Backlog:
    """Ask a lake once for everything after a position; None: only for its newest one."""
    lake = config.lakes[route.source.lake or ""]
    assert isinstance(lake, DuckLake), "the config refuses other lakes"
    try:
        with opened_table(lake, env, route.source.table) as table:
            newest = table.newest().snapshot
            pieces = table.times_after(newest if after is None else after)
    except HeadwaterError as error:
        return Backlog(SnapshotId, error=error.message)
    ends, times = tuple(id_ for id_, _ in pieces), tuple(time for _, time in pieces)
    return Backlog(SnapshotId, max(newest, ends[-1]) if ends else newest, ends, times)


def log_backlog(state: State, route: Route, after: int | None) -> Backlog:
    """The same of a group's log, as far as the group's own lake is, which a route does not overtake.

    A position in it does not include the transaction that commits there.
    """
    group, table = route.source.group or "", route.source.table
    rows = (row for row in state.tables(group) if row.configured == table and row.state != "REMOVED")
    row = next((row for row in rows if row.position is not None), None)
    if row is None or row.position is None:
        return Backlog(Lsn, error=f"table {str(table)!r} of group {group!r} has not been copied yet")
    pieces = state.query(
        "SELECT p.last_lsn, s.first_commit_at FROM headwater.segments s"
        " JOIN headwater.segment_parts p ON p.segment_id = s.id JOIN headwater.relations r ON r.id = p.relation_id"
        " WHERE s.group_name = %s AND r.oid = %s AND p.last_lsn >= %s AND p.first_lsn < %s ORDER BY p.last_lsn",
        (group, row.oid, row.position if after is None else Lsn(after), row.position),
    )
    upto = row.position.value
    ends, times = tuple(min(lsn.value + 1, upto) for lsn, _ in pieces), tuple(time for _, time in pieces)
    return Backlog(Lsn, upto, ends, times)
