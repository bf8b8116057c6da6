"""Frames for the view: the status of mirror and route beside the counts in the source, and rates between two looks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.change import Lsn
from headwater.commands.demo.view import CountLine, Frame
from headwater.commands.demo.workload import COMPANIES, TABLES, Tally
from headwater.config import Config
from headwater.state import State
from headwater.status import GroupStatus, RouteStatus, Status, status
from headwater.status.lag import Oldest

__all__ = ["Look", "Observer"]

_COUNTS = (  # one statement, so that they agree with each other
    "SELECT "
    + ", ".join(f"(SELECT count(*) FROM public.{table})" for table in TABLES)
    + ", (SELECT coalesce(json_object_agg(company, orders), '{}') FROM"
    " (SELECT company, count(*) AS orders FROM public.orders GROUP BY company) AS found)"
)


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment."""

    at: float
    source_lsn: str
    source_rows: dict[str, int]
    company_rows: dict[str, int]  # in the source
    group: GroupStatus | None  # None: the mirror has not begun
    routes: tuple[RouteStatus, ...]
    written: int
    delivered: int

    def covers(self, lsn: Lsn) -> bool:
        """Whether the lake has everything that was committed before `lsn`, and the lakes of the companies, too."""
        delivered = self.group.delivered_lsn if self.group else None
        return delivered is not None and Lsn.parse(delivered) >= lsn and all(map(_complete, self.routes))


def _complete(route: RouteStatus) -> bool:
    return {each.status for each in route.destinations} == {"healthy"}


class Observer:
    """Looks at the source and the state, and compares with the previous look."""

    def __init__(self, config: Config, tally: Tally) -> None:
        self._config = config
        self._tally = tally
        self._oldest = Oldest(config.source)
        self._state = State.connect(config.source)  # the demo keeps its state in the source
        self._began = time.monotonic()
        self._first = self._last = self.look()

    def close(self) -> None:
        self._state.close()

    def look(self) -> Look:
        ((*rows, companies),) = self._state.query(_COUNTS)
        seen = self._status()
        group = seen.groups[0] if seen and seen.groups else None
        changed = sum(t.copied_rows + t.inserted + t.updated + t.deleted for t in group.tables) if group else 0
        lsn = (seen and seen.source_lsn) or str(self.source_lsn())
        return Look(
            time.monotonic(),
            lsn,
            dict(zip(TABLES, rows, strict=True)),
            companies,
            group,
            seen.routes if seen else (),
            self._tally.changes,
            changed,
        )

    def delivers(self, look: Look) -> bool:
        """Whether anything has come into the lake since the observer began; rows of an earlier run do not count."""
        return look.delivered > self._first.delivered

    def source_lsn(self) -> Lsn:
        return Lsn.parse(self._state.query("SELECT pg_current_wal_lsn()::text")[0][0])

    def frame(self, headline: str) -> tuple[Look, Frame]:
        """Look again; the rates are those since the last frame."""
        before, now = self._last, self.look()
        self._last = now
        passed = max(now.at - before.at, 0.001)
        group = now.group
        lake = (
            {table.table.removeprefix("public."): (table.state, table.rows) for table in group.tables} if group else {}
        )
        routed = {str(each): (each.status, each.rows) for route in now.routes for each in route.destinations}
        frame = Frame(
            headline,
            now.at - self._began,
            (now.written - before.written) / passed,
            (now.delivered - before.delivered) / passed,
            (group.lag_bytes or 0) if group else 0,
            (group.lag_seconds or 0.0) if group else 0.0,
            group.staged_segments if group else 0,
            group.snapshot_id if group else None,
            group.delivered_lsn if group else None,
            now.source_lsn,
            tuple(_line(name, rows, lake) for name, rows in now.source_rows.items()),
            tuple(_line(name, now.company_rows.get(name, 0), routed) for name in COMPANIES),
        )
        return now, frame

    def _status(self) -> Status | None:
        ready = self._state.knows("tables")
        return status(self._config, {}, self._state, self._state, self._oldest) if ready else None


def _line(name: str, source_rows: int, lake: Mapping[str, tuple[str, int]]) -> CountLine:
    state, rows = lake.get(name, ("PENDING", 0))
    return CountLine(name, state, source_rows, rows)
