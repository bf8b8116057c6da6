"""What happened to each table, as far as this process has seen it: a new state, an error, a wish for a copy."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from headwater.status import Status, TableStatus
from headwater.web.history import TableKey

__all__ = ["Event", "Events"]

KEPT = 50  # of each table


class Event(NamedTuple):
    at: datetime
    what: str


class Events:
    """Compares each status with the one before it."""

    def __init__(self) -> None:
        self._events: dict[TableKey, deque[Event]] = {}

    def note(self, before: Status | None, now: Status, at: float) -> None:
        """Keep what is new; without a status before it, nothing is."""
        if before is None:
            return
        known = _tables(before)
        for key, table in _tables(now).items():
            for what in _news(known.get(key), table):
                kept = self._events.setdefault(key, deque(maxlen=KEPT))
                kept.appendleft(Event(datetime.fromtimestamp(at, UTC), what))

    def of(self, group: str, table: str) -> list[Event]:
        """The newest first."""
        return [*self._events.get(TableKey(group, table), ())]


def _tables(status: Status) -> dict[TableKey, TableStatus]:
    return {TableKey(group.name, each.table): each for group in status.groups for each in group.tables}


def _news(before: TableStatus | None, now: TableStatus) -> Iterator[str]:
    if before is None:
        yield f"it is here now: {now.state}"
        return
    if now.state != before.state:
        yield f"{before.state} → {now.state}"
    if now.resync and now.resync != before.resync:
        yield f"is to be copied again: {now.resync}"
    if now.error and now.error != before.error and now.state != "PAUSED":  # else it says why it is
        yield now.error
    if before.error and not now.error and before.state != "PAUSED":
        yield "goes on: the error is over"
    if now.quarantined > before.quarantined:
        yield f"quarantined values: {now.quarantined - before.quarantined:,} more"
