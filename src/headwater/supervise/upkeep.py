"""Maintenance of lakes beside deliveries: threads of their own in the delivery process."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from headwater.config import Config, Maintenance
from headwater.errors import CommitConflict, HeadwaterError, OperatorMustAct
from headwater.lake.maintenance import FlushLimits, MaintenancePolicy
from headwater.lake.sink import Sink
from headwater.logs import redact
from headwater.spark import JobDied
from headwater.state import State
from headwater.supervise.lakes import own_lake
from headwater.supervise.maintaining import allowed_at, keeping, maintenance_lock
from headwater.supervise.opening import open_state
from headwater.supervise.precedence import Precedence
from headwater.supervise.rounds import Rounds, Site, Unit

__all__ = ["FIRST", "GroupMaintenance", "MaintenanceThread"]

logger = logging.getLogger(__name__)

FIRST = 10.0  # seconds: after the start, deliveries have a backlog
PAUSE = 0.2  # between two units of work, for a `maintain` that waits
LOOK = 1.0
YIELD = 5.0  # to deliveries, before each unit
BACKOFF = 60.0
FEW_CORES, MERGE_BESIDE_COPY = 2, 600.0  # seconds

_COPYING = "SELECT EXISTS (SELECT FROM headwater.tables WHERE group_name = ANY(%s) AND state = 'SNAPSHOT')"


class MaintenanceThread(threading.Thread, ABC):
    """Maintains lakes until `stop`. Whatever fails comes round again: deliveries do not notice."""

    def __init__(
        self,
        subject: str,
        config: Config,
        maintenance: Maintenance,
        spark: SparkSession,
        stop: threading.Event,
        precedence: Precedence,
        *,
        first: float = FIRST,
    ) -> None:
        super().__init__(name=f"maintenance of {subject}", daemon=True)
        self._config, self._spark = config, spark
        self._ending, self._precedence, self._first = stop, precedence, first
        self._maintenance = maintenance
        self._merged_at = time.monotonic()

    @abstractmethod
    def maintain(self, state: State) -> None:
        """Maintain as long as there is something to do; returns after `stop`."""

    def run(self) -> None:
        wait = self._first
        while not self._ending.wait(wait):
            wait = BACKOFF
            try:
                with closing(open_state(self._config)) as state:
                    self.maintain(state)
            except (HeadwaterError, OSError) as error:
                self._warn(error)
            except Exception:  # as in a delivery's thread: it is tried again
                if not self._ending.is_set():
                    logger.exception("%s failed", self.name)

    def _give_way(self) -> None:
        self._precedence.wait_for_quiet(YIELD)

    def _pause(self, *, busy: bool) -> None:
        self._ending.wait(PAUSE if busy else LOOK)

    def _stepped(self, rounds: Rounds, site: Site) -> Unit | Exception | None:
        """What the next unit of work has done; None: there is none. What it met, if it was given up."""
        try:
            unit = rounds.step(site)
        except CommitConflict as error:  # a delivery was faster
            logger.info("%s: given up, and comes again: %s", self.name, error)
            return error
        except (HeadwaterError, JobDied, OSError) as error:
            self._warn(error)
            return error
        if unit is not None and unit.kind == "merge" and unit.done:
            self._merged_at = time.monotonic()
        return unit

    def _allowed(self, state: State, sink: Sink[Any, Any], flush: FlushLimits | None) -> MaintenancePolicy:
        """What may be done now. Without `flush`, rows in the catalog are of other clients."""
        policy = allowed_at(self._maintenance, datetime.now(UTC))
        if policy.merge and self._is_crowded(state):
            policy = replace(policy, merge=False)
        return keeping(replace(policy, flush=flush), state, sink)

    def _is_crowded(self, state: State) -> bool:
        """A copy leaves one core free, and a merge would take it from deliveries for as long as it takes.

        A copy may take days, so that now and then there is a merge all the same; flushes are short.
        """
        if self._spark.sparkContext.defaultParallelism > FEW_CORES:
            return False
        if time.monotonic() - self._merged_at >= MERGE_BESIDE_COPY:
            return False
        ((copying,),) = state.query(_COPYING, (list(self._config.groups),))
        return bool(copying)

    def _warn(self, error: Exception) -> None:
        if not self._ending.is_set():
            said = redact(str(error), self._config.secrets())
            logger.warning("%s is left for later: %s", self.name, said)


class GroupMaintenance(MaintenanceThread):
    """Maintains the lake of one group."""

    def __init__(
        self,
        config: Config,
        maintenance: Maintenance,
        env: Mapping[str, str],
        group: str,
        spark: SparkSession,
        stop: threading.Event,
        precedence: Precedence,
        *,
        first: float = FIRST,
    ) -> None:
        super().__init__(f"group {group}", config, maintenance, spark, stop, precedence, first=first)
        self._env, self._group = env, group
        self._lake = config.groups[group].lake
        self._rounds = Rounds()

    def maintain(self, state: State) -> None:
        row = state.group(self._group)
        if row is None or row.lake is None:
            return  # its first copy has not begun
        with closing(own_lake(self._config, self._env, state, self._group)) as sink:
            while not self._ending.is_set():
                self._give_way()
                self._pause(busy=self.step(state, sink))

    def step(self, state: State, sink: Sink[Any, Any]) -> bool:
        """Take a step; False if there is none to take, or a `maintain` is at work."""
        maintenance = sink.maintenance()
        if maintenance is None:
            return False
        inline = self._config.groups[self._group].flush.inline
        flush = FlushLimits.in_time(inline.rows, inline.age) if inline else None
        between = partial(self._precedence.between_deliveries, self._lake)
        policy = partial(self._allowed, state, sink, flush)
        site = Site(self._spark, maintenance, policy, between, sink.lake_snapshots, self._precedence.maintaining)
        with ExitStack() as held:
            try:
                held.enter_context(state.lock(maintenance_lock(self._group), 0))
            except OperatorMustAct:
                return False
            unit = self._stepped(self._rounds, site)
            if isinstance(unit, Unit) and unit.done:
                logger.info("maintained %s: %s", unit.table, unit.done)
                state.record_maintained(self._group, unit.table, unit.done)
            return unit is not None
