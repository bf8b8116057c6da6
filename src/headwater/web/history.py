"""The last hour of every group in memory: how far behind, how fast, how much WAL and log."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.state.deliveries import DeliveryRow
from headwater.status import GroupStatus, Status

__all__ = ["EVERY", "HOUR", "History", "Rates", "TableKey"]

EVERY = 5  # seconds between two points
HOUR = 3600
RATE_SECONDS = 10.0  # over which changes per second are counted


class TableKey(NamedTuple):
    group: str
    table: str


class _Point(NamedTuple):
    lag: float | None = None
    rows_per_second: float | None = None
    wal_bytes: int | None = None
    log_bytes: int | None = None


@dataclass(slots=True)
class History:
    """Points of equal distance, the oldest first. `add` may be called as often as there is something new."""

    _points: deque[tuple[int, dict[str, _Point]]] = field(default_factory=lambda: deque(maxlen=HOUR // EVERY))
    _counted: dict[str, tuple[float, int]] = field(default_factory=dict)  # at the last point: when, and how many rows

    def begin(self, deliveries: Sequence[DeliveryRow], now: float) -> None:
        """What an earlier process has delivered: lag and rows, where there was a delivery."""
        found: dict[int, dict[str, list[DeliveryRow]]] = {}
        for each in deliveries:
            at = _slot(each.at.timestamp())
            if now - HOUR < at < _slot(now):
                found.setdefault(at, {}).setdefault(each.group, []).append(each)
        for at in range(min(found, default=_slot(now)), _slot(now), EVERY):
            self._points.append((at, {name: _delivered(rows) for name, rows in found.get(at, {}).items()}))

    def add(self, status: Status, now: float) -> None:
        """A point, if it is time for one."""
        at = _slot(now)
        if not self._points or at > self._points[-1][0]:
            self._points.append((at, {group.name: self._point(group, now) for group in status.groups}))

    def last(self, minutes: float) -> dict[str, object]:
        """As the API has it: times, and the series of every group."""
        points = [*self._points]
        newest = points[-1][0] if points else 0
        points = [each for each in points if each[0] > newest - minutes * 60]
        names = dict.fromkeys(name for _, groups in points for name in groups)
        series = {name: [groups.get(name, _Point()) for _, groups in points] for name in names}
        groups = {name: dict(zip(_Point._fields, _columns(rows), strict=True)) for name, rows in series.items()}
        return {"every": EVERY, "at": [at for at, _ in points], "groups": groups}

    def _point(self, group: GroupStatus, now: float) -> _Point:
        rows = sum(each.inserted + each.updated + each.deleted + each.copied_rows for each in group.tables)
        before, self._counted[group.name] = self._counted.get(group.name), (now, rows)
        rate = None if before is None else max(rows - before[1], 0) / max(now - before[0], 1.0)
        return _Point(group.lag_seconds, rate and round(rate, 1), group.wal_bytes, group.log_bytes)


class Rates:
    """How many changes per second came into each table lately."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[TableKey, int]]] = deque()

    def add(self, status: Status, now: float) -> Mapping[TableKey, float]:
        counts = {
            TableKey(group.name, each.table): each.inserted + each.updated + each.deleted
            for group in status.groups
            for each in group.tables
        }
        self._seen.append((now, counts))
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        passed = now - since
        return {
            key: round(max(count - before.get(key, count), 0) / passed, 2) if passed > 0 else 0.0
            for key, count in counts.items()
        }


def _slot(at: float) -> int:
    return int(at) // EVERY * EVERY


def _delivered(rows: Sequence[DeliveryRow]) -> _Point:
    return _Point(round(max(each.lag_seconds for each in rows), 3), sum(each.changes for each in rows) / EVERY)


def _columns(rows: Sequence[_Point]) -> list[list[float | None]]:
    return [list(column) for column in zip(*rows, strict=True)]
