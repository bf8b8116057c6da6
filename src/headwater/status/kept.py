"""What a group's log keeps: its size, and the oldest change in it that a table or a route has not got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from headwater.change import Lsn
from headwater.state import State
from headwater.state.holding import Holder
from headwater.status.lag import Staged

__all__ = ["LogSize", "OldestChange", "log_size", "oldest_change"]


class LogSize(NamedTuple):
    """The registered segments. `needed` are bytes that some table or route has not passed, except paused tables."""

    segments: int
    bytes: int
    needed: int


@dataclass(frozen=True, slots=True)
class OldestChange:
    """The oldest change in the log that a table or a route has not got, and which one that is."""

    lsn: str
    seconds: float  # since the first commit of its segment, by the source's clock
    held_by: str  # `table public.orders`, `route by_company`
    state: str | None  # the table's; ERROR: the route cannot go on; None: it can


def log_size(state: State, group: str, holding: Sequence[Holder]) -> LogSize:
    needed = min((each.lsn for each in holding if not each.paused), default=None)
    rows = state.query(
        "SELECT count(*), coalesce(sum(file_bytes), 0)::bigint,"
        " coalesce(sum(file_bytes) FILTER (WHERE end_lsn > %s), 0)::bigint"
        " FROM headwater.segments WHERE group_name = %s",
        (needed, group),
    )
    return LogSize(*rows[0])


def oldest_change(
    state: State, group: str, holding: Sequence[Holder], waiting: Mapping[int | None, Staged], now: datetime
) -> OldestChange | None:
    """`waiting` is what the log has for the tables from their positions on."""
    found = [(change, each) for each in holding if (change := _first(state, group, each, waiting)) is not None]
    if not found:
        return None
    change, holder = min(found, key=lambda pair: pair[0])
    seconds = max(round((now - change.committed_at).total_seconds(), 3), 0.0)
    return OldestChange(str(change.lsn), seconds, f"{holder.kind} {holder.name}", holder.state)


class _Change(NamedTuple):
    lsn: Lsn
    committed_at: datetime


def _first(state: State, group: str, holder: Holder, waiting: Mapping[int | None, Staged]) -> _Change | None:
    if holder.kind == "table" and holder.lsn == holder.position:
        staged = waiting.get(holder.oid)
        return None if staged is None else _Change(staged.first_lsn, staged.first_commit_at)
    rows = state.query(
        "SELECT greatest(p.first_lsn, %(after)s), s.first_commit_at FROM headwater.segments s"
        " JOIN headwater.segment_parts p ON p.segment_id = s.id JOIN headwater.relations r ON r.id = p.relation_id"
        " WHERE s.group_name = %(group)s AND s.last_lsn >= %(after)s AND r.oid = %(oid)s AND p.last_lsn >= %(after)s"
        " ORDER BY s.last_lsn, s.id LIMIT 1",
        {"after": holder.lsn, "group": group, "oid": holder.oid},
    )
    return _Change(*rows[0]) if rows else None
