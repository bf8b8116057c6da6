"""A table that a Spark task cannot digest fails alone, whether the task can say so or its worker is killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.mirror import Mirror

from headwater import flow
from headwater.errors import Unreachable
from headwater.spark import Survived, collected, on_tasks, surviving
from headwater.state.transitions import Retried

TABLES = ("a", "bad", "c", "d", "e")


@contextmanager
def workers_with(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Spark's Python workers have this in their environment: they are other ones than those without it."""
    environment = spark.sparkContext.environment
    environment[name] = value
    try:
        yield
    finally:
        del environment[name]


def errored(mirror: Mirror) -> dict[str, str]:
    rows = mirror.m.state.tables("g")
    return {row.source.name: row.error or "" for row in rows if row.state == "ERRORED"}


def try_again(mirror: Mirror) -> None:
    """As `flow.retry`, without waiting."""
    for row in mirror.m.state.tables("g"):
        if row.state == "ERRORED":
            mirror.m.state.record("g", row.oid, Retried())


def filled(mirror: Mirror, *, copy: bool = True) -> None:
    for name in TABLES:
        mirror.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v text)",
            f"INSERT INTO {name} SELECT i, 'old' FROM generate_series(1, 10) i",
        )
    mirror.start(copy=copy)


def assert_alone(mirror: Mirror, reason: str) -> None:
    """`bad` has failed, the others have not; and without what disturbed it, it catches up."""
    failed = errored(mirror)
    assert failed.keys() == {"bad"}
    assert reason in failed["bad"]
    mirror.assert_equal("a", "c", "d", "e")
    try_again(mirror)
    flow.copy(mirror.m)
    mirror.sync()
    assert errored(mirror) == {}
    mirror.assert_equal(*TABLES)
    flow.tidy(mirror.m)
    flow.collect_copies(mirror.m)
    assert mirror.files() == mirror.known_files()


DYING = {
    "when rows are appended": ("deliver.decoded", "INSERT INTO {} VALUES (11, 'new')"),
    "when rows are looked for": ("deliver.located", "UPDATE {} SET v = 'new' WHERE id < 5"),
    "when rows are replaced": ("deliver.decoded", "UPDATE {} SET v = 'new' WHERE id < 5"),
}


@pytest.mark.parametrize(
    "when", [pytest.param(when, marks=() if "replaced" in when else pytest.mark.long) for when in DYING]
)
def test_a_worker_that_is_killed(when: str, mirror: Mirror) -> None:
    filled(mirror)
    failpoint, statement = DYING[when]
    mirror.transaction(*(statement.format(name) for name in TABLES))
    with workers_with(mirror.spark, "HEADWATER_FAILPOINT", f"{failpoint}=public.bad"):
        mirror.sync()
    assert_alone(mirror, "Python worker exited unexpectedly")


def test_a_worker_that_is_killed_once_is_no_tables_fault(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    tried: list[frozenset[int]] = []

    def die(by: signal.Signals) -> Iterator[pa.RecordBatch]:
        os.kill(os.getpid(), by)
        yield from ()

    def job(tables: frozenset[int]) -> str:
        tried.append(tables)
        if len(tried) == 1:
            collected(on_tasks(spark, [signal.SIGKILL], die, pa.schema([("x", pa.int64())])))
        return "done"

    with caplog.at_level("WARNING"):
        assert surviving(spark, {1}, job) == Survived("done", frozenset({1}), {})
    assert "Python worker exited unexpectedly" in caplog.text
    assert tried == [{1}, {1}]


def test_rows_that_the_jvm_cannot_hold_are_their_tables_fault_and_it_goes_on(spark: SparkSession) -> None:
    def job(tables: frozenset[int]) -> str:
        if 2 in tables:
            collected(spark.range(1).selectExpr("length(repeat('x', cast(id + 2000000000 AS int)))"))
        return "done"

    survived = surviving(spark, {1, 2}, job)
    assert (survived.done, survived.tables) == ("done", frozenset({1}))
    survived = surviving(spark, {2, 3}, job)
    assert (survived.done, survived.tables) == ("done", frozenset({3}))
    assert "Java heap space" in survived.failed[2]


@pytest.mark.long
def test_a_worker_that_is_killed_while_it_copies(mirror: Mirror) -> None:
    filled(mirror, copy=False)
    with workers_with(mirror.spark, "HEADWATER_FAILPOINT", "copy.read=public.bad"):
        while flow.copy(mirror.m):
            pass
    mirror.sync()
    assert_alone(mirror, "Python worker exited unexpectedly")


@pytest.mark.long
def test_a_worker_that_is_killed_after_each_range_copies_the_table_all_the_same(mirror: Mirror) -> None:
    filled(mirror, copy=False)
    with workers_with(mirror.spark, "HEADWATER_FAILPOINT", "copy.range=public.bad"):
        for _ in range(3):
            flow.copy(mirror.m)
            try_again(mirror)
    mirror.sync()
    mirror.assert_equal("bad")


@contextmanager
def workers_within(spark: SparkSession, megabytes: int) -> Iterator[None]:
    """As `spark.executor.pyspark.memory` has it: a worker cannot allocate more."""
    spark.sparkContext.setLocalProperty("resource.pyspark.memory", str(megabytes))
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty("resource.pyspark.memory", None)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {} SELECT i, repeat('x', {}) || i FROM generate_series(11, 13) i",
        "UPDATE {} SET v = repeat('x', {}) || id WHERE id < 4",
    ],
)
def test_rows_that_do_not_fit_into_a_workers_memory(statement: str, mirror: Mirror) -> None:
    filled(mirror)
    mirror.transaction(*(statement.format(name, 120_000_000 if name == "bad" else 10) for name in TABLES))
    with workers_within(mirror.spark, 1_000):
        mirror.sync()
    failed = errored(mirror)
    assert failed.keys() == {"bad"}
    assert re.search(r"MemoryError|allocate memory|Python worker exited", failed["bad"]), failed
    mirror.assert_equal("a", "c", "d", "e")
    mirror.transaction("DELETE FROM bad WHERE length(v) > 1000")
    try_again(mirror)
    mirror.sync()
    assert errored(mirror) == {}


def test_what_all_tables_need_is_no_tables_fault(mirror: Mirror) -> None:
    filled(mirror)
    mirror.execute("UPDATE a SET v = 'new'", "UPDATE bad SET v = 'new'")
    mirror.captured()
    lake = mirror.folder / "lake"
    lake.rename(mirror.folder / "away")
    with pytest.raises(Unreachable, match="FileNotFoundError"):
        flow.deliver(mirror.m)
    assert errored(mirror) == {}
    shutil.rmtree(lake, ignore_errors=True)
    (mirror.folder / "away").rename(lake)
    mirror.sync()
    mirror.assert_equal(*TABLES)
