"""The Spark session, set up for a pipeline of small, frequent, Arrow-only jobs."""

from __future__ import annotations

import importlib
import logging
import os
import re
import shlex
import string
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.master import is_cluster
from headwater.spark.cluster import await_executors, hand_over_s3, reached
from headwater.spark.tasks import on_partitions, run_tasks
from headwater.spark.worker import freeze_imports

__all__ = ["session", "warm_up"]

logger = logging.getLogger(__name__)
jvm_logger = logging.getLogger(f"{__name__}.jvm")

_ALARMING = re.compile(r"^[\d/]+ [\d:]+ (ERROR|FATAL)\b|OutOfMemory|fatal error")

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_PLAIN = frozenset(string.ascii_letters + string.digits + "._-")

_BUCKET = pa.schema([("bucket", pa.int32())])

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",  # plans are fixed and small: re-planning each stage only adds latency
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.scheduler.mode": "FAIR",  # the few tasks of a delivery do not queue behind the many of a copy
    "spark.driver.memory": "2g",
    "spark.executor.killOnFatalError.depth": "0",  # rows that the JVM has no memory for end their task, not the JVM
    "spark.log.level": "ERROR",
}
# Only of a local master: executors on other machines must find the driver, by the name that Spark gives this one.
_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_PYTHON = "spark.pyspark.python"  # which Spark itself reads only when it is Spark that starts the driver


def session(master: str, conf: Mapping[str, str], name: str = "headwater") -> SparkSession:
    """The session of this process; `conf` wins over our defaults. Of a cluster, it waits for an executor.

    Unreachable if there is no master of a cluster.
    """
    # Workers must see the packages that we see; where those of a cluster are is for its operator to say.
    os.environ["PYSPARK_PYTHON"] = conf.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
    settings: dict[str, Any] = _defaults(master) | dict(conf) | {"spark.master": master, "spark.app.name": name}
    with _jvm_output_logged(), reached(master):
        if SparkContext._gateway is None:
            _start_jvm(settings)
        spark = SparkSession.Builder().config(map=settings).getOrCreate()
    # When the JVM dies, pyspark's server for accumulators would print a traceback past our log.
    spark.sparkContext._accumulatorServer.handle_error = _lost  # type: ignore[assignment,method-assign]
    if is_cluster(master):
        hand_over_s3(spark, os.environ)
        await_executors(spark, master)
    if "spark.sql.shuffle.partitions" not in conf:  # 200 by default: for a cluster, and each is a task
        spark.conf.set("spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism)
    return spark


def _defaults(master: str) -> dict[str, str]:
    return _DEFAULTS if is_cluster(master) else _DEFAULTS | _LOCAL


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM with these settings in a file that only we can read: `ps` shows command lines to everyone."""
    with tempfile.TemporaryDirectory(prefix="headwater-spark-") as folder:  # mode 0700
        file = Path(folder) / "spark.conf"
        file.write_text("".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items()), "ascii")
        given = os.environ.get(_ARGUMENTS)
        arguments = f"--properties-file {shlex.quote(str(file))} --load-spark-defaults {given or 'pyspark-shell'}"
        os.environ[_ARGUMENTS] = arguments
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            del os.environ[_ARGUMENTS]
            if given is not None:
                os.environ[_ARGUMENTS] = given
    SparkContext._ensure_initialized(gateway=gateway)


def _escaped(text: str) -> str:
    """As a Java properties file spells it: every character that could mean something there by its number."""
    units = memoryview(text.encode("utf-16-le")).cast("H")
    return "".join(chr(unit) if chr(unit) in _PLAIN else f"\\u{unit:04x}" for unit in units)


def _lost(*_: object) -> None:
    jvm_logger.debug("the accumulators' connection is lost", exc_info=True)


@contextmanager
def _jvm_output_logged() -> Iterator[None]:
    """What the JVM prints goes through our log, so that it has our format and hides what ours hides.

    The JVM is started inside the block and keeps the pipe for its life.
    """
    read, write = os.pipe()
    stderr = os.dup(2)
    os.dup2(write, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(write)

    def forward() -> None:
        with os.fdopen(read, errors="replace") as lines:
            for line in lines:
                level = logging.WARNING if _ALARMING.search(line) else logging.DEBUG
                jvm_logger.log(level, "%s", line.rstrip())

    threading.Thread(target=forward, name="jvm-output", daemon=True).start()


@dataclass(frozen=True, slots=True)
class _Import:
    """What a worker does so that it has paid for its imports."""

    modules: Sequence[str]

    def __call__(self, _: int) -> Iterator[str]:
        return (importlib.import_module(name).__name__ for name in self.modules)


def warm_up(spark: SparkSession, modules: Sequence[str] = ()) -> None:
    """Run a job of each kind once: the first ones of a session cost seconds, and no user should wait for them."""

    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    cores = spark.sparkContext.defaultParallelism
    run_tasks(spark, range(cores * 2), _Import(modules))
    rows = spark.range(0, cores * 2, 1, cores).select(F.col("id").cast("int").alias("bucket"))
    read = on_partitions(rows, nothing, _BUCKET).repartitionById(cores, F.col("bucket"))
    on_partitions(read, nothing, _BUCKET).collect()
    freeze_imports()
    logger.info("spark is warm", extra={"cores": cores})
