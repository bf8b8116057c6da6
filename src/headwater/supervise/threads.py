"""A thread of the delivery process: it does its work until the process ends, and comes back after every failure."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress

from pyspark.sql import SparkSession

from headwater.config import Config
from headwater.errors import HeadwaterError, LockHeld, OperatorMustAct
from headwater.logs import redact

__all__ = ["BACKOFF_FIRST", "BACKOFF_LONGEST", "DeliveryThread"]

logger = logging.getLogger(__name__)

BACKOFF_FIRST, BACKOFF_LONGEST = 0.5, 30.0
RETRY_EVERY = 300.0  # seconds: an operator must act, and may have done so


class DeliveryThread(threading.Thread, ABC):
    """Work on one `subject`, in the one Spark session, until `end`. It sets `stop` when the whole process has to end.

    With `all_needed`, that is so when an operator must act; else the others go on, and it waits for `try_again`, or for
    minutes: meanwhile `exit_code` says that it is stuck.
    """

    def __init__(
        self, subject: str, config: Config, env: Mapping[str, str], spark: SparkSession, stop: threading.Event
    ) -> None:
        super().__init__(name=subject)
        self.exit_code = 0
        self.all_needed = False
        self._config, self._env, self._spark = config, env, spark
        self._process_stop = stop  # not `_stop`: that is a method of Thread, which `join` calls
        self._ending = threading.Event()
        self._again = threading.Event()

    def end(self) -> None:
        """Finish what is under way, and end; the others go on."""
        self._ending.set()
        self._again.set()

    def try_again(self) -> None:
        """Something was done that may help: go on now, if it is stuck."""
        self._again.set()

    @abstractmethod
    def work(self) -> None:
        """Hold the lock of the subject and deliver; returns after `end`. LockHeld: others have it by now."""

    @abstractmethod
    def record(self, error: str) -> None:
        """Note what keeps it from going on; HeadwaterError if the state itself is unreachable."""

    def run(self) -> None:
        wait = BACKOFF_FIRST
        while not self._ending.is_set():
            begun = time.monotonic()
            try:
                self.work()
            except LockHeld as error:  # the state's server has restarted, and another process was faster
                logger.warning("%s: %s", self.name, error.message)
            except OperatorMustAct as error:
                self._tell(error)
                self.exit_code = error.exit_code
                if self.all_needed:
                    self._process_stop.set()
                    return
                self._wait_for_operator()
                continue
            except HeadwaterError as error:
                self._tell(error)
            except Exception as error:  # the supervisor's catch-all: a batch that failed is kept and tried again
                logger.exception("delivery of %s failed", self.name)
                self._tell(error)
                if not self._spark_answers():
                    logger.error("spark is gone: this process ends, to be started again")
                    self.exit_code = 3
                    self._process_stop.set()
                    return
            wait = BACKOFF_FIRST if time.monotonic() - begun > BACKOFF_LONGEST else min(wait * 2, BACKOFF_LONGEST)
            self._ending.wait(wait)

    def _wait_for_operator(self) -> None:
        logger.error("%s: it is tried again in %.0f minutes", self.name, RETRY_EVERY / 60)
        self._again.clear()
        if not self._ending.is_set():
            self._again.wait(RETRY_EVERY)
        if not self._ending.is_set():
            self.exit_code = 0

    def _tell(self, error: Exception) -> None:
        logger.error("%s: %s", self.name, error)
        with suppress(HeadwaterError):
            self.record(redact(str(error), self._config.secrets()))

    def _spark_answers(self) -> bool:
        try:
            return self._spark.range(1).count() == 1
        except Exception:
            return False
