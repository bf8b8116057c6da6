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
    found: list[tuple[_Change, Holder]] = []
    unknown = []
    for holder in holding:
        if holder.kind != "table" or holder.lsn != holder.position:
            unknown.append(holder)
        elif (staged := waiting.get(holder.oid)) is not None:
            found.append((_Change(staged.first_lsn, staged.first_commit_at), holder))
    found += _first(state, group, unknown)
    if not found:
        return None
    change, holder = min(found, key=lambda pair: pair[0])
    seconds = max(round((now - change.committed_at).total_seconds(), 3), 0.0)
    return OldestChange(str(change.lsn), seconds, f"{holder.kind} {holder.name}", holder.state)


class _Change(NamedTuple):
    lsn: Lsn
    committed_at: datetime


def _first(state: State, group: str, holding: Sequence[Holder]) -> list[tuple[_Change, Holder]]:
    """The first change in the log that each of these has not got, by one query for all of them."""
    if not holding:
        return []
    rows = state.query(
        "SELECT h.number - 1, f.first_lsn, f.first_commit_at"
        " FROM unnest(%(oids)s::oid[], %(after)s::pg_lsn[]) WITH ORDINALITY h(oid, after, number) CROSS JOIN LATERAL"
        " (SELECT greatest(p.first_lsn, h.after) AS first_lsn, s.first_commit_at FROM headwater.segments s"
        " JOIN headwater.segment_parts p ON p.segment_id = s.id JOIN headwater.relations r ON r.id = p.relation_id"
        " WHERE s.group_name = %(group)s AND s.last_lsn >= h.after AND r.oid = h.oid AND p.last_lsn >= h.after"
        " ORDER BY s.last_lsn, s.id LIMIT 1) f",
        {"group": group, "oids": [each.oid for each in holding], "after": [each.lsn for each in holding]},
    )
    return [(_Change(*change), holding[number]) for number, *change in rows]
