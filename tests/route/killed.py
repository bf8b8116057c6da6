"""`python -m tests.route.killed FOLDER DATABASE ROWS`: a turn of a route in a process of its own, to be killed.

Its driver is its own, and its Python workers; the JVM is the test session's, because starting one takes longer than all
the rest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from tests.route.routebench import RouteBench, opened

from headwater.state import State

__all__ = ["turn_and_be_killed"]


def turn_and_be_killed(route: RouteBench, failpoint: str) -> subprocess.CompletedProcess[str]:
    """Take a turn in another process, which does not survive the failpoint, or whose Spark workers do not."""
    gateway = route.spark.sparkContext._gateway
    assert gateway is not None
    environment = os.environ | {
        "HEADWATER_FAILPOINT": failpoint,
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
    }
    arguments = [
        sys.executable,
        "-m",
        "tests.route.killed",
        str(route.folder),
        route.state.url,
        str(route.rules.inline_rows or 0),
    ]
    child = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120, check=False)
    # A failpoint inside a Spark task kills the worker, and with it the job: the driver survives, and says so.
    assert child.returncode == -signal.SIGKILL or "died" in child.stderr, child.stderr
    return child


def main(folder: str, database: str, inline_rows: str) -> None:
    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # PYSPARK_GATEWAY_PORT: one that runs already
    java = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    workers = {"HEADWATER_FAILPOINT": os.environ["HEADWATER_FAILPOINT"]}
    context = SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()), environment=workers)
    with closing(State.connect(database)) as state:
        opened(Path(folder), SparkSession(context), state, inline_rows=int(inline_rows) or None).turn()


if __name__ == "__main__":
    main(*sys.argv[1:])
