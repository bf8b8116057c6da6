"""A Spark cluster, whose executors are on other machines: what they need that a local master has by itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headwater.errors import Unreachable
from headwater.master import is_cluster

__all__ = ["await_executors", "hand_over_s3", "reached"]

logger = logging.getLogger(__name__)

LOOK_EVERY, TELL_EVERY = 0.2, 30.0  # seconds
_S3 = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
)


def hand_over_s3(spark: SparkSession, env: Mapping[str, str]) -> None:
    """Let Python workers reach S3 as this process does; what `spark.executorEnv` says wins.

    Not in the conf: Spark's pages and the definitions of pods would show the keys.
    """
    for name in _S3:
        if env.get(name):
            spark.sparkContext.environment.setdefault(name, env[name])


def await_executors(spark: SparkSession, master: str) -> None:
    """Return once there is an executor: what Spark says about a wait would not be seen, and jobs only hang."""
    warned = time.monotonic()
    while _executors(spark, master) == 0:
        if time.monotonic() - warned >= TELL_EVERY:
            warned = time.monotonic()
            logger.warning(
                "Spark's master %s has given us no executor yet: its workers may be down, have too few cores or too"
                " little memory, or other applications (each run, verify and maintain is one) have all their cores,"
                " which spark.cores.max in spark.conf bounds",
                master,
            )
        time.sleep(LOOK_EVERY)


def _executors(spark: SparkSession, master: str) -> int:
    """How many there are now; Unreachable if the cluster has ended our application."""
    with reached(master):
        return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is in it, too


@contextmanager
def reached(master: str) -> Iterator[None]:
    """Inside, what fails on the way to a cluster's master is Unreachable."""
    try:
        yield
    except Py4JError as error:
        if not is_cluster(master):
            raise
        raise Unreachable(
            f"Spark's master {master!r} does not answer, or refuses the application",
            hint="see whether it runs, and spark.master; with --log-format json, the log has what Spark says",
        ) from error
