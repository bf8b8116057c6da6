"""The delivery process: one Spark session, a thread for each group, running until `stop` is set, then draining."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import timedelta

from pyspark.sql import SparkSession

from headwater import flow
from headwater.config import Config
from headwater.errors import AlreadyDelivered, CommitConflict, CommitUnknown, HeadwaterError, OperatorMustAct
from headwater.logs import redact
from headwater.spark import session, warm_up
from headwater.state import Lock
from headwater.state.processes import announced
from headwater.supervise.maintaining import BackgroundMaintenance
from headwater.supervise.opening import mirroring, open_state, when_free

__all__ = ["DRAIN_SECONDS", "deliver_forever"]

logger = logging.getLogger(__name__)

TICK = 0.1
DRAIN_SECONDS = 30.0
BACKOFF_FIRST, BACKOFF_LONGEST = 0.5, 30.0
RETRY_EVERY, TIDY_EVERY = 1.0, 300.0

_STAGED = """
    SELECT coalesce(sum(segment.rows), 0)::bigint,
           coalesce(extract(epoch FROM clock_timestamp() - min(segment.created_at)), 0)::float,
           EXISTS (SELECT FROM headwater.tables WHERE group_name = %(group)s AND state = 'CATCHUP')
           OR EXISTS (SELECT FROM headwater.fences
                      WHERE group_name = %(group)s AND reached_snapshot IS NULL AND expires_at > now())
           OR EXISTS (SELECT FROM headwater.relations r JOIN headwater.groups g ON g.name = r.group_name
                      JOIN headwater.tables t ON t.group_name = r.group_name AND t.source_oid = r.oid
                      WHERE r.group_name = %(group)s AND r.seen <> 'rows' AND t.state = 'STREAMING'
                      AND r.lsn >= t.position AND r.lsn < g.captured_lsn)
    FROM headwater.segments AS segment
    WHERE segment.group_name = %(group)s AND segment.last_lsn >= (
        SELECT min(position) FROM headwater.tables
        WHERE group_name = %(group)s AND state IN ('CATCHUP', 'STREAMING'))
"""


def deliver_forever(config: Config, env: Mapping[str, str], stop: threading.Event, *, all_needed: bool) -> int:
    """Deliver every group until `stop`; an exit code. A dead JVM ends the process: the supervisor starts a new one.

    A group that cannot go on leaves the others alone, unless `all_needed`.
    """
    spark = session(config.spark.master, config.spark.conf)
    warm_up(spark, ["headwater.merge.plan", "headwater.sink.addresses"])
    threads = [_GroupDelivery(config, env, name, spark, stop) for name in config.groups]
    for thread in threads:
        thread.all_needed = all_needed
        thread.start()
    for thread in threads:
        thread.join()
    with suppress(Exception):  # it may be gone already
        spark.stop()
    return max((thread.exit_code for thread in threads), default=0)


class _GroupDelivery(threading.Thread):
    def __init__(
        self, config: Config, env: Mapping[str, str], name: str, spark: SparkSession, stop: threading.Event
    ) -> None:
        super().__init__(name=f"deliver-{name}")
        self.exit_code = 0
        self.all_needed = False
        self._config, self._env, self._group, self._spark, self._ending = config, env, name, spark, stop
        self._flush = config.groups[name].flush
        self._maintenance = BackgroundMaintenance(config.maintenance) if config.maintenance else None

    def run(self) -> None:
        wait = BACKOFF_FIRST
        while not self._ending.is_set():
            begun = time.monotonic()
            try:
                self._work()
            except OperatorMustAct as error:
                self._tell(error)
                self.exit_code = error.exit_code
                if self.all_needed:
                    self._ending.set()
                return
            except HeadwaterError as error:
                self._tell(error)
            except Exception as error:  # the supervisor's catch-all: a batch that failed is kept and tried again
                logger.exception("delivery of group %s failed", self._group)
                self._tell(error)
                if not self._spark_answers():
                    logger.error("spark is gone: this process ends, to be started again")
                    self.exit_code = 3
                    self._ending.set()
                    return
            wait = BACKOFF_FIRST if time.monotonic() - begun > BACKOFF_LONGEST else min(wait * 2, BACKOFF_LONGEST)
            self._ending.wait(wait)

    def _work(self) -> None:
        """Hold the group's lock and deliver; returns after `stop`, drained."""
        with (
            closing(open_state(self._config)) as state,
            when_free(state, f"deliver:{self._group}", self._ending) as lock,
        ):
            if lock is None:
                return
            with (
                announced(state, self._group, "delivery", lock),
                closing(mirroring(self._config, self._env, state, self._group, self._spark)) as m,
            ):
                state.record_error(self._group, "delivery", None)
                self._deliver_until_stopped(m, lock)
                self._drain(m)

    def _deliver_until_stopped(self, m: flow.Mirroring, lock: Lock) -> None:
        tidied = -TIDY_EVERY
        while not self._ending.is_set():
            if time.monotonic() - tidied > TIDY_EVERY:
                self._tidy(m)
                tidied = time.monotonic()
            flow.retry(m)
            flow.copy(m)
            self._deliver_until_retry(m)
            if self._maintenance is not None and self._maintenance.has_time(time.monotonic(), busy=self._due(m)):
                self._maintenance.step(m)
            lock.keep()

    def _deliver_until_retry(self, m: flow.Mirroring) -> None:
        until = time.monotonic() + RETRY_EVERY
        while time.monotonic() < until and not self._ending.is_set():
            done = self._deliver(m) if self._due(m) else None
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
            done = flow.deliver(m)
        except (CommitConflict, CommitUnknown, AlreadyDelivered) as error:
            logger.warning("planning again: %s", error)  # the lake's position says what landed
            return None
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

    def _tidy(self, m: flow.Mirroring) -> None:
        flow.mend(m)
        try:
            flow.tidy(m)
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

    def _tell(self, error: Exception) -> None:
        logger.error("group %s: %s", self._group, error)
        with (
            suppress(HeadwaterError),
            closing(open_state(self._config)) as state,
        ):  # the state itself may be unreachable
            state.record_error(self._group, "delivery", redact(str(error), self._config.secrets()))

    def _spark_answers(self) -> bool:
        try:
            return self._spark.range(1).count() == 1
        except Exception:
            return False
