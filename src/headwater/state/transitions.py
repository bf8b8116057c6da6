"""A table's life: PENDING → SNAPSHOT → CATCHUP → STREAMING; ERRORED and back, PAUSED by hand and back, REMOVED.

Decided here, without IO.

Capture and delivery run in different processes, so an event may reach a table that the other one has just moved: then
the other's decision stays where the table below keeps the state. An event may also be recorded twice, when the answer
to the first attempt was lost; the second changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from headwater.change import Lsn
from headwater.errors import ErrorKind
from headwater.state.rows import TableRow, TableState

__all__ = [
    "TRANSITIONS",
    "CaughtUp",
    "Copied",
    "CopyBegun",
    "Displaced",
    "Event",
    "Failed",
    "IllegalTransition",
    "Paused",
    "RecopyRequested",
    "Removed",
    "Repositioned",
    "Resumed",
    "Retried",
    "Stopped",
    "TableDropped",
    "TookOver",
    "after",
]


class IllegalTransition(Exception):
    """An event that a table in this state cannot meet: a bug."""


@dataclass(frozen=True, slots=True)
class CopyBegun:
    """The table is being copied, as the source was at `position`: from there on, the log has to be kept for it."""

    position: Lsn


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy is in the lake, as the source was at `position`. It settles requests that ask for no later one.

    With `newest`, some of its rows are as late as that: with what the log has up to there, it is the source again.
    """

    position: Lsn
    newest: Lsn | None = None


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The table is where the others of its group are."""


@dataclass(frozen=True, slots=True)
class Repositioned:
    """The lake has the table at another position than was noted, because a crash came between."""

    position: Lsn


@dataclass(frozen=True, slots=True)
class Failed:
    """The table cannot go on for now. A stopped table stays stopped."""

    error: str
    retry_at: datetime
    kind: ErrorKind = "configuration"


@dataclass(frozen=True, slots=True)
class Stopped:
    """The table cannot go on before an operator, or a change in the source, helps."""

    error: str


@dataclass(frozen=True, slots=True)
class Retried:
    """A table that failed tries again; one that was stopped does not."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A table that was stopped, paused or removed goes on."""


@dataclass(frozen=True, slots=True)
class Paused:
    """An operator wants the table left as it is for now. The log is kept for it, so that it goes on without a copy."""

    reason: str


@dataclass(frozen=True, slots=True)
class Removed:
    """The config no longer has the table: nothing is kept for it but its mirror."""

    reason: str


@dataclass(frozen=True, slots=True)
class RecopyRequested:
    """Only a copy of `lsn` or later helps; None: any copy that is still to come."""

    reason: str
    lsn: Lsn | None = None


@dataclass(frozen=True, slots=True)
class TableDropped:
    """The source dropped the table before `lsn`. One that is being mirrored receives what is staged first."""

    lsn: Lsn
    error: str


@dataclass(frozen=True, slots=True)
class TookOver:
    """The table takes another one's place: it is copied, at `lsn` or later."""

    reason: str
    lsn: Lsn


@dataclass(frozen=True, slots=True)
class Displaced:
    """The table's mirror went to another one, and nothing in the source belongs to its entry of the config."""

    lsn: Lsn
    error: str


Event = (
    CopyBegun
    | Copied
    | CaughtUp
    | Repositioned
    | Failed
    | Stopped
    | Retried
    | Resumed
    | Paused
    | Removed
    | RecopyRequested
    | TableDropped
    | TookOver
    | Displaced
)

_KEPT: dict[TableState, TableState] = {
    "PENDING": "PENDING",
    "SNAPSHOT": "SNAPSHOT",
    "CATCHUP": "CATCHUP",
    "STREAMING": "STREAMING",
    "ERRORED": "ERRORED",
    "PAUSED": "PAUSED",
    "REMOVED": "REMOVED",
}


_MIRRORED = ("CATCHUP", "STREAMING")
_LEFT_ALONE = ("PAUSED", "REMOVED")  # by whatever happens to a table that is delivered


def _always(state: TableState) -> dict[TableState, TableState]:
    return dict.fromkeys(_KEPT, state)


def _but(others: Mapping[TableState, TableState], *, without: Collection[TableState]) -> dict[TableState, TableState]:
    """The state stays, but for `others`; there are some in which it cannot happen."""
    return {state: each for state, each in (_KEPT | dict(others)).items() if state not in without}


# What each event makes of each state; in a state that is missing the event is illegal. A table that waits for a copy,
# its first or another one, becomes PENDING instead of CATCHUP.
TRANSITIONS: Mapping[type[Event], Mapping[TableState, TableState]] = {
    CopyBegun: _but({"PENDING": "SNAPSHOT", "ERRORED": "SNAPSHOT"}, without=["CATCHUP", "STREAMING"]),
    Copied: _but({"PENDING": "CATCHUP", "SNAPSHOT": "CATCHUP", "ERRORED": "CATCHUP"}, without=["STREAMING"]),
    CaughtUp: _but({"CATCHUP": "STREAMING"}, without=["SNAPSHOT"]),
    Repositioned: _but({}, without=["SNAPSHOT"]),
    Failed: _always("ERRORED") | {"PAUSED": "PAUSED", "REMOVED": "REMOVED"},
    Stopped: _always("ERRORED"),
    Retried: _KEPT | {"ERRORED": "CATCHUP"},
    Resumed: _KEPT | {"ERRORED": "CATCHUP", "PAUSED": "CATCHUP", "REMOVED": "PENDING"},
    Paused: _always("PAUSED") | {"REMOVED": "REMOVED"},
    Removed: _always("REMOVED"),
    RecopyRequested: _KEPT | {"CATCHUP": "PENDING", "STREAMING": "PENDING", "ERRORED": "PENDING"},
    TableDropped: _KEPT | {"PENDING": "ERRORED", "SNAPSHOT": "ERRORED", "REMOVED": "ERRORED"},
    TookOver: _always("PENDING"),
    Displaced: _always("ERRORED"),
}


def after(row: TableRow, event: Event) -> TableRow:
    """The table once the event has happened; IllegalTransition if it cannot happen to a table in this state."""
    state = TRANSITIONS[type(event)].get(row.state)
    if state is None:
        raise IllegalTransition(f"table {row.source} is {row.state}, where {event} cannot happen")
    if isinstance(event, Failed | Retried) and (row.stopped or row.state in _LEFT_ALONE):
        return row
    changed = _changed(row, event)
    waits = changed.position is None or changed.resync is not None
    return replace(changed, state="PENDING" if state == "CATCHUP" and waits else state)


def _changed(row: TableRow, event: Event) -> TableRow:
    """Everything that the event changes except the state."""
    well = replace(row, error=None, failures=0, retry_at=None, error_kind=None)
    match event:
        case CopyBegun(position):
            begun = replace(well, failures=row.failures)  # until the copy is there
            return replace(row if row.state in _LEFT_ALONE else begun, copy_lsn=position)
        case Copied(position, newest):
            return _copied(row if row.state in _LEFT_ALONE else well, position, newest or position)
        case CaughtUp():
            return well if row.state in _MIRRORED else row
        case Repositioned(position):
            return replace(row, position=position)
        case Failed(error, retry_at, kind):
            again = row.state == "ERRORED" and row.retry_at == retry_at  # the same failure, recorded before
            failed = replace(row, error=error, retry_at=retry_at, error_kind=kind)
            return replace(failed, failures=row.failures + (not again))
        case Paused(error) if row.state in _LEFT_ALONE:
            return row
        case Stopped(error):
            return replace(well, error=error, error_kind="configuration")
        case Paused(error) | Removed(error):
            return replace(well, error=error)
        case Retried():
            return replace(well, failures=row.failures) if row.state == "ERRORED" else row
        case Resumed():
            return well if row.state in ("ERRORED", *_LEFT_ALONE) else row
        case RecopyRequested(reason, lsn):
            waiting = row if row.state in _LEFT_ALONE else well
            return replace(waiting, resync=row.resync or reason, resync_lsn=max(row.resync_lsn, lsn or Lsn(0)))
        case TableDropped(lsn, error):
            dropped = replace(row, dropped_lsn=row.dropped_lsn or lsn)
            stopped = replace(dropped, error=error, retry_at=None, error_kind="configuration")
            return dropped if row.state in (*_MIRRORED, "PAUSED") else stopped
        case TookOver(reason, lsn):
            return replace(well, resync=reason, resync_lsn=lsn, dropped_lsn=None)
        case Displaced(lsn, error):
            gone = replace(row, position=None, copy_lsn=None, resync=None, replaces=(), dropped_lsn=lsn)
            return replace(gone, error=error, retry_at=None, error_kind="configuration")


def _copied(row: TableRow, position: Lsn, newest: Lsn) -> TableRow:
    there = replace(row, position=position, copy_lsn=newest)
    return replace(there, resync=None, replaces=()) if position >= row.resync_lsn else there
