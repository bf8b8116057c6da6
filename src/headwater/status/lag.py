"""How far a group is behind: what the source has and the log has not, what the log has and the lake has not."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from headwater.capture.uncaptured import Unknown, oldest_uncaptured
from headwater.change import Lsn
from headwater.state import GroupRow, State

__all__ = [
    "NONE",
    "UNKNOWN",
    "Lag",
    "Oldest",
    "SourceView",
    "Staged",
    "capture_lag",
    "recorded",
    "source_view",
    "staged",
]

_MOMENT = 0.2  # seconds
STALE_SECONDS = 30.0  # capture that runs records its position every 10 seconds if the WAL moves


class Lag(NamedTuple):
    """How far one position is behind another; None: it cannot be known."""

    bytes: int | None  # of WAL
    seconds: float | None

    def then(self, other: Lag) -> Lag:
        """Of two stages, one after the other."""
        if self.bytes is None or self.seconds is None or other.bytes is None or other.seconds is None:
            return UNKNOWN
        return Lag(self.bytes + other.bytes, max(self.seconds, other.seconds))


NONE, UNKNOWN = Lag(0, 0.0), Lag(None, None)


@dataclass(frozen=True, slots=True)
class SlotView:
    """A replication slot as the source shows it now."""

    active: bool
    wal_status: str | None
    wal_bytes: int | None  # that the source keeps for it
    unconfirmed_bytes: int | None  # of WAL, since what is confirmed
    safe_bytes: int | None  # that may still be written before it is in danger; None: there is no limit, or it is lost
    sent_lsn: Lsn | None  # how far its walsender has read; None: there is none, or not for us to see


@dataclass(frozen=True, slots=True)
class SourceView:
    """The source as it is now, by its own clock."""

    lsn: Lsn
    now: datetime
    slots: Mapping[str, SlotView]
    wal_limit: int | None = None  # bytes that a slot may keep: max_slot_wal_keep_size; None: there is no limit


@dataclass(frozen=True, slots=True)
class LogEnd:
    """When the log's end was recorded, by the clock of the state's server; the newest commit by the source's."""

    now: datetime
    at: datetime | None
    commit_at: datetime | None  # None: nothing was staged with it, so the log had all that was committed by then
    changes: int = 0  # that the log has got, in total


@dataclass(frozen=True, slots=True)
class Staged:
    """What waits in the log, of one table or of all."""

    segments: int
    rows: int
    first_lsn: Lsn
    first_commit_at: datetime

    def lag(self, end: Lsn, now: datetime) -> Lag:
        """Of the lake, behind a log that ends there."""
        return Lag(end.value - self.first_lsn.value, _seconds(now, self.first_commit_at))


def source_view(source: State, slots: Collection[str]) -> SourceView:
    """Look at the source; Unreachable if it is not there."""
    ((lsn, now, limit),) = source.query(
        "SELECT pg_current_wal_flush_lsn(), clock_timestamp(), (SELECT nullif(setting, '-1')::bigint << 20"
        " FROM pg_settings WHERE name = 'max_slot_wal_keep_size')"
    )
    # A walsender that gets there has sent all that was committed before. It needs a moment.
    until = time.monotonic() + _MOMENT
    found = _slots(source, slots, lsn)
    while time.monotonic() < until and any(each.sent_lsn and each.sent_lsn < lsn for each in found.values()):
        time.sleep(_MOMENT / 10)
        found = _slots(source, slots, lsn)
    return SourceView(lsn, now, found, limit)


def _slots(source: State, names: Collection[str], lsn: Lsn) -> dict[str, SlotView]:
    found = source.query(
        "SELECT s.slot_name::text, s.active, s.wal_status, pg_wal_lsn_diff(%s, s.restart_lsn)::bigint,"
        " greatest(pg_wal_lsn_diff(%s, s.confirmed_flush_lsn), 0)::bigint, s.safe_wal_size, r.sent_lsn"
        " FROM pg_replication_slots s LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid"
        " WHERE s.slot_name = ANY(%s)",
        (lsn, lsn, list(names)),
    )
    return {name: SlotView(*slot) for name, *slot in found}


def recorded(state: State, group: str) -> LogEnd:
    rows = state.query(
        "SELECT clock_timestamp(), captured_at, captured_commit_at, captured_changes FROM headwater.groups"
        " WHERE name = %s",
        (group,),
    )
    return LogEnd(*rows[0])


def staged(state: State, group: str) -> dict[int | None, Staged]:
    """What is in the log and not in the lake, by table; under None of all of them. Those without any are left out."""
    rows = state.query(
        "SELECT t.source_oid, count(DISTINCT s.id), sum(p.rows)::bigint, min(greatest(p.first_lsn, t.position)),"
        " min(s.first_commit_at)"
        " FROM headwater.segments s JOIN headwater.segment_parts p ON p.segment_id = s.id"
        " JOIN headwater.relations r ON r.id = p.relation_id"
        " JOIN headwater.tables t ON t.group_name = s.group_name AND t.source_oid = r.oid AND p.last_lsn >= t.position"
        " WHERE s.group_name = %(group)s AND t.state <> 'REMOVED' AND s.last_lsn >= (SELECT min(position)"
        " FROM headwater.tables WHERE group_name = %(group)s AND state <> 'REMOVED')"
        " GROUP BY GROUPING SETS ((t.source_oid), ()) HAVING count(*) > 0",
        {"group": group},
    )
    return {oid: Staged(*row) for oid, *row in rows}


class Oldest:
    """Asks the source for the oldest uncaptured commit, and not again while the log ends where it did."""

    def __init__(self, source_url: str) -> None:
        self._url = source_url
        self._known: dict[tuple[str, Lsn], datetime | Unknown] = {}

    def __call__(self, row: GroupRow, captured: Lsn) -> datetime | None:
        """None: there is none; Unknown if the source cannot say it."""
        known: datetime | Unknown | None = self._known.get((row.slot, captured))
        if known is None:
            try:
                known = oldest_uncaptured(self._url, row.slot, row.publication, captured)
            except Unknown as unknown:
                known = unknown
        if isinstance(known, Unknown):
            self._known[row.slot, captured] = known
            raise known
        if known is not None:  # else there may be one at the next look
            self._known[row.slot, captured] = known
        return known


def capture_lag(view: SourceView, row: GroupRow, noted: LogEnd, streams: bool, oldest: Oldest) -> Lag:
    """Of the log behind the source; `streams`: a capture process runs, and has a heartbeat."""
    if row.captured_lsn is None:
        return UNKNOWN
    behind = view.lsn.value - row.captured_lsn.value
    since = _seconds(view.now, noted.commit_at) if noted.commit_at else _seconds(noted.now, noted.at or noted.now)
    slot = view.slots.get(row.slot)
    recent = noted.at is not None and _seconds(noted.now, noted.at) < STALE_SECONDS
    sent = slot.sent_lsn if slot is not None and streams and recent else None
    if behind <= 0 or (sent is not None and sent >= view.lsn):
        return NONE
    if sent is not None:
        return Lag(behind, since)
    try:
        commit_at = oldest(row, row.captured_lsn)
    except Unknown:
        return Lag(behind, since)
    return NONE if commit_at is None else Lag(behind, _seconds(view.now, commit_at))


def _seconds(now: datetime, since: datetime) -> float:
    return max(round((now - since).total_seconds(), 3), 0.0)
