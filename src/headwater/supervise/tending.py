"""Maintenance of the lakes of routes' destinations: one after the other, those first that have waited longest."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from headwater.config import Config, Maintenance
from headwater.errors import CommitConflict, HeadwaterError
from headwater.lake.maintenance import FlushLimits
from headwater.lake.stream import Stream
from headwater.route.lakes import DestinationLake
from headwater.state import State
from headwater.state.routes import DestinationRow
from headwater.supervise.beside import Beside, route_deliveries
from headwater.supervise.rounds import EVERY, ORPHANS_EVERY, Rounds, Site, Unit
from headwater.supervise.upkeep import FIRST, MaintenanceThread

__all__ = ["RouteMaintenance", "is_due"]

logger = logging.getLogger(__name__)

AGE = timedelta(minutes=10)  # of rows in a destination's catalog
MOST_UNITS = 20  # for a destination at a time


def is_due(row: DestinationRow, visited: datetime, now: datetime) -> bool:
    """Whether a destination is to be visited; an idle one seldom, once its rows have been moved out of the catalog."""
    if row.state != "ACTIVE" or row.delivered_at is None or row.reseed is not None or row.failures:
        return False
    changed = visited < row.delivered_at + AGE
    return now - visited >= timedelta(seconds=EVERY + 1 if changed else ORPHANS_EVERY)


class _Due(NamedTuple):
    row: DestinationRow
    lake: DestinationLake
    stream: Stream[Any]


class RouteMaintenance(MaintenanceThread):
    """Maintains the lakes of all destinations to which this process delivers, and which are well."""

    def __init__(
        self,
        config: Config,
        maintenance: Maintenance,
        spark: SparkSession,
        stop: threading.Event,
        beside: Beside,
        *,
        first: float = FIRST,
    ) -> None:
        super().__init__("destinations", config, maintenance, spark, stop, beside.precedence, first=first)
        self._tended = beside.tended
        self._visits: dict[tuple[str, str], tuple[datetime, Rounds]] = {}

    def maintain(self, state: State) -> None:
        while not self._ending.wait(EVERY / 10):
            self.visit_all(state)

    def visit_all(self, state: State) -> None:
        """Visit each destination whose time has come."""
        due = sorted(self._due(state), key=lambda each: self._visited(each.row))
        for each in due:
            if self._ending.is_set():
                return
            try:
                self._visit(state, each)
            except (HeadwaterError, OSError) as error:  # a destination's trouble stays its own
                self._warn(error)
            self._pause(busy=True)

    def _due(self, state: State) -> Iterator[_Due]:
        now = datetime.now(UTC)
        for route, (destinations, stream) in self._tended.routes().items():
            lakes = dict(zip(destinations.ids, destinations.lakes, strict=True))
            for row in state.destinations(route):
                if row.id in destinations.mine and row.id in lakes and is_due(row, self._visited(row), now):
                    yield _Due(row, lakes[row.id], stream)

    def _visited(self, row: DestinationRow) -> datetime:
        visit = self._visits.get((row.route, row.id))
        return visit[0] if visit else datetime.min.replace(tzinfo=UTC)

    def _visit(self, state: State, due: _Due) -> None:
        row, lake = due.row, due.lake
        _, rounds = self._visits.get((row.route, row.id), (None, Rounds()))
        self._visits[row.route, row.id] = datetime.now(UTC), rounds
        inline = self._config.routes[row.route].inline
        flush = FlushLimits.in_time(inline.rows, AGE) if inline else None
        with closing(lake.reopen(due.stream)) as sink:
            maintenance = sink.maintenance()
            if maintenance is None:
                return
            between = partial(self._precedence.between_deliveries, route_deliveries(row.route))
            site = Site(
                self._spark,
                maintenance,
                partial(self._allowed, state, sink, flush),
                between,
                sink.lake_snapshots,
                self._precedence.maintaining,
            )
            for _ in range(MOST_UNITS):
                self._give_way()
                unit = self._stepped(rounds, site)
                if isinstance(unit, CommitConflict) and not self._ending.is_set():
                    continue  # it comes again soon
                if not isinstance(unit, Unit) or self._ending.is_set():
                    return
                if unit.done:
                    logger.info("maintained %s of destination %s: %s", unit.table, row, unit.done)
