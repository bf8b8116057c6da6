"""Delivery of one group, in a thread of the delivery process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta

from pyspark.sql import SparkSession

from headwater import flow
from headwater.config import Config
from headwater.errors import AlreadyDelivered, CommitConflict, CommitUnknown
from headwater.state import Lock
from headwater.state.processes import announced
from headwater.state.sharing import Part
from headwater.state.waitfunction import AWAITED
from headwater.supervise.beside import Beside
from headwater.supervise.copying import Copying
from headwater.supervise.grouproutes import GroupRoutes
from headwater.supervise.opening import mirroring, open_state, when_free
from headwater.supervise.threads import DeliveryThread

__all__ = ["DRAIN_SECONDS", "GroupDelivery"]

logger = logging.getLogger(__name__)

TICK = 0.1
DRAIN_SECONDS = 30.0
RETRY_EVERY, TIDY_EVERY = 1.0, 300.0

_STAGED = f"""
    SELECT coalesce(sum(segment.rows), 0)::bigint,
           coalesce(extract(epoch FROM clock_timestamp() - min(segment.created_at)), 0)::float,
           EXISTS (SELECT FROM headwater.tables WHERE group_name = %(group)s AND state = 'CATCHUP')
           OR EXISTS (SELECT FROM headwater.fences
                      WHERE group_name = %(group)s AND reached_snapshot IS NULL AND expires_at > now())
           OR EXISTS (SELECT FROM headwater.relations r JOIN headwater.groups g ON g.name = r.group_name
                      JOIN headwater.tables t ON t.group_name = r.group_name AND t.source_oid = r.oid
                      WHERE r.group_name = %(group)s AND r.seen <> 'rows' AND t.state = 'STREAMING'
                      AND r.lsn >= t.position AND r.lsn < g.captured_lsn)
           OR EXISTS (SELECT FROM headwater.removals r JOIN headwater.tables t USING (group_name, source_oid)
                      WHERE r.group_name = %(group)s AND r.lsn IS NOT NULL AND t.state IN ('CATCHUP', 'STREAMING'))
           OR (count(*) > 0 AND coalesce({AWAITED}, '0/0') > (
               SELECT min(position) FROM headwater.tables
               WHERE group_name = %(group)s AND state IN ('CATCHUP', 'STREAMING')))
    FROM headwater.segments AS segment
    WHERE segment.group_name = %(group)s AND segment.last_lsn >= (
        SELECT min(position) FROM headwater.tables
        WHERE group_name = %(group)s AND state IN ('CATCHUP', 'STREAMING'))
"""


class GroupDelivery(DeliveryThread):
    """Delivers one group, as long as it is in this process's share."""

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        name: str,
        spark: SparkSession,
        stop: threading.Event,
        reload: Callable[[], Config | None],
        beside: Beside,
        part: Part,
    ) -> None:
        super().__init__(f"group {name}", config, env, spark, stop)
        self._part = part
        self._group = name
        self._reload = reload
        self._flush = config.groups[name].flush
        self._beside = beside
        self._others_at = 0.0  # when tables that need not catch up were last served

    def work(self) -> None:
        """Hold the group's lock and deliver; returns, drained, after `end`, or when others should have the group."""
        try:
            self._hold_and_deliver()
        finally:
            self._part.give_up()

    def _hold_and_deliver(self) -> None:
        with (
            closing(open_state(self._config)) as state,
            when_free(state, f"deliver:{self._group}", self._ending, self._part) as lock,
        ):
            if lock is None:
                return
            with (
                announced(state, self._group, "delivery", lock),
                closing(mirroring(self._config, self._env, state, self._group, self._spark)) as m,
                GroupRoutes(self._config, self._env, m, self._reload, self._beside) as routes,
            ):
                state.record_error(self._group, "delivery", None)
                with self._copying() as copying:
                    self._deliver_until_stopped(m, routes, lock, copying)
                self._drain(m)
                routes.take_turns(landed=True)

    def _copying(self) -> Copying:
        return Copying(self._config, self._env, self._group, self._spark, self._process_stop, self._beside.precedence)

    def record(self, error: str) -> None:
        with closing(open_state(self._config)) as state:
            state.record_error(self._group, "delivery", error)

    def _deliver_until_stopped(self, m: flow.Mirroring, routes: GroupRoutes, lock: Lock, copying: Copying) -> None:
        tidied = -TIDY_EVERY
        while not self._ending.is_set() and not self._part.is_too_much():
            copying.check()
            with self._delivering(m):
                if time.monotonic() - tidied > TIDY_EVERY:
                    self._tidy(m, routes)
                    tidied = time.monotonic()
                flow.retry(m)
                flow.settle_names(m)
            self._deliver_until_retry(m, routes)
            lock.keep()

    @contextmanager
    def _delivering(self, m: flow.Mirroring) -> Iterator[None]:
        """Inside, neither maintenance nor a copy commits to the lake."""
        with self._beside.precedence.delivery(self._config.groups[self._group].lake) as rewritten:
            if rewritten:
                m.sink.look_again()
            yield

    def _deliver_until_retry(self, m: flow.Mirroring, routes: GroupRoutes) -> None:
        until = time.monotonic() + RETRY_EVERY
        while time.monotonic() < until and not self._ending.is_set():
            done = self._deliver(m) if self._due(m) else None
            routes.take_turns(landed=done is not None and bool(done.upto))
            if done is None or not done.upto:
                self._ending.wait(TICK)

    def _due(self, m: flow.Mirroring) -> bool:
        """Deliver when enough is staged, when it has waited long enough, or when another process waits for it."""
        ((rows, age, awaited),) = m.state.query(_STAGED, {"group": self._group})
        waited = timedelta(seconds=age) >= self._flush.interval
        return bool(awaited or rows >= self._flush.rows or (rows and waited))

    def _deliver(self, m: flow.Mirroring) -> flow.Delivered | None:
        begun = time.monotonic()
        try:
            with self._delivering(m):
                others_wait = begun - self._others_at >= self._flush.interval.total_seconds()
                done = flow.deliver(m, leave_behind=others_wait)
            self._others_at = begun if others_wait else self._others_at
        except (CommitConflict, CommitUnknown, AlreadyDelivered) as error:
            logger.warning("planning again: %s", error)  # the lake's position says what landed
            return None
        self._beside.on_delivery(self._group, done)
        if done.landed:
            landed = done.landed.values()
            logger.info(
                "group %s: %s is the source at %s (+%d ~%d -%d in %d table%s, %.2f s)",
                self._group,
                f"snapshot {done.snapshot_id}" if m.sink.lake_snapshots else "the lake",
                done.position,
                sum(each.inserted for each in landed),
                sum(each.updated for each in landed),
                sum(each.deleted for each in landed),
                len(landed),
                "" if len(landed) == 1 else "s",
                time.monotonic() - begun,
            )
        return done

    def _tidy(self, m: flow.Mirroring, routes: GroupRoutes) -> None:
        flow.mend(m)
        try:
            flow.tidy(m, routes.positions())
        except OSError as error:
            logger.warning("old segments of group %s could not be deleted: %s", self._group, error)

    def _drain(self, m: flow.Mirroring) -> None:
        """Deliver what is staged already, as long as there is time; the rest stays in the log."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline:
            done = self._deliver(m)
            if done is None:
                time.sleep(TICK)
            elif not done.upto:
                return
