"""Copies of a group's tables, in a thread beside its deliveries: tables that are mirrored do not wait for a copy."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Self

from pyspark.sql import SparkSession

from headwater import flow
from headwater.config import Config
from headwater.errors import CommitUnknown, HeadwaterError, OperatorMustAct
from headwater.logs import redact
from headwater.supervise.opening import mirroring, open_state
from headwater.supervise.precedence import Precedence
from headwater.supervise.threads import BACKOFF_FIRST, BACKOFF_LONGEST

__all__ = ["Copying"]

logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0
GRACE = 5.0
POOL = "copies"  # of Spark's scheduler, which gives tasks of deliveries their turn

_DELIVERED = (
    "SELECT EXISTS (SELECT FROM headwater.tables WHERE group_name = ANY(%s) AND state IN ('CATCHUP', 'STREAMING'))"
)


class Copying:
    """The thread, for the length of a `with` block of whoever holds the group's lock. `stop`: the process ends."""

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        group: str,
        spark: SparkSession,
        stop: threading.Event,
        precedence: Precedence,
    ) -> None:
        self._config, self._env, self._group, self._spark, self._stop = config, env, group, spark, stop
        self._alone = partial(precedence.between_deliveries, config.groups[group].lake, alone=True)
        self._ending = threading.Event()
        self._met: Exception | None = None
        self._reported: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"copies of group {group}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        deadline = time.monotonic() + GRACE
        # If the group is only opened again, there must not be two. If the process ends, it need not wait: a copy may be
        # waiting for a transaction in the source.
        while self._thread.is_alive() and not (self._stop.is_set() and time.monotonic() > deadline):
            self._spark.sparkContext.cancelJobGroup(self._thread.name)
            self._thread.join(LOOK_EVERY)

    def check(self) -> None:
        """Raise what has ended the thread: an operator must act, or Spark is gone."""
        if self._met is not None:
            raise self._met

    def _run(self) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        self._spark.sparkContext.setJobGroup(self._thread.name, self._thread.name)
        wait = BACKOFF_FIRST
        while not self._ending.is_set():
            begun = time.monotonic()
            try:
                self._copy_until_stopped()
            except OperatorMustAct as error:
                self._met = error
                return
            except HeadwaterError as error:  # deliveries go on
                self._tell(error)
            except Exception as error:
                if not self._ending.is_set():  # else it was cancelled
                    self._met = error
                return
            wait = BACKOFF_FIRST if time.monotonic() - begun > BACKOFF_LONGEST else min(wait * 2, BACKOFF_LONGEST)
            self._ending.wait(wait)

    def _copy_until_stopped(self) -> None:
        with (
            closing(open_state(self._config)) as state,
            closing(mirroring(self._config, self._env, state, self._group, self._spark)) as m,
            self._placing(m),
        ):
            flow.collect_copies(m)
            while not self._ending.is_set():
                try:
                    flow.copy(m, self._alone, partial(self._pace, m))
                    self._tell(None)
                except CommitUnknown as error:
                    logger.warning("looking whether the copy has landed: %s", error)  # the lake's positions say
                self._ending.wait(LOOK_EVERY)

    @contextmanager
    def _placing(self, m: flow.Mirroring) -> Iterator[None]:
        """Inside, positions are found for removals, in a thread of their own: neither copies nor deliveries wait.

        The source may take as long as its longest transaction to show one. Only the state of `m` is used.
        """
        over = threading.Event()
        thread = threading.Thread(target=self._place, args=(m, over), name=f"removals of group {self._group}")
        thread.daemon = True
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _place(self, m: flow.Mirroring, over: threading.Event) -> None:
        wait = LOOK_EVERY
        while not over.wait(wait):
            try:
                flow.place_removals(m)
                wait = LOOK_EVERY
            except HeadwaterError as error:
                wait = min(wait * 2, BACKOFF_LONGEST)
                logger.warning("rows of partitions of group %s are removed later: %s", self._group, error)
            except Exception:  # the supervisor's catch-all: copies and deliveries go on
                wait = min(wait * 2, BACKOFF_LONGEST)
                logger.exception("rows of partitions of group %s cannot be removed", self._group)

    def _tell(self, error: HeadwaterError | None) -> None:
        """Note what keeps the tables from being copied."""
        said = None
        if error is not None:
            logger.error("%s: %s", self._thread.name, error)
            said = f"tables cannot be copied: {redact(str(error), self._config.secrets())}"
        if said != self._reported:
            with suppress(HeadwaterError), closing(open_state(self._config)) as state:
                state.record_error(self._group, "delivery", said)
                self._reported = said

    def _pace(self, m: flow.Mirroring) -> flow.Pace:
        """As the config says; as long as nothing is delivered, a copy may have all cores, later it leaves one free."""
        copy = self._config.groups[self._group].copying
        ((delivered,),) = m.state.query(_DELIVERED, (list(self._config.groups),))
        cores = self._spark.sparkContext.defaultParallelism
        free = max(cores - 1, 1) if delivered else None
        return flow.Pace(copy.tasks or free, copy.rate)
