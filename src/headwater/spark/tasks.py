"""Work spread over Spark tasks, and the one place where a job is run and its failure translated."""

from __future__ import annotations

import heapq
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headwater.spark.faults import needed_by_all, raised, shared_error
from headwater.spark.worker import ending_without_memory, freeze_imports

__all__ = ["JobCancelled", "JobDied", "collected", "deal", "on_partitions", "on_tasks", "run_tasks"]

Item = TypeVar("Item")
Report = TypeVar("Report")
Batches = Iterator[pa.RecordBatch]
_CANCELLED = "SPARK_JOB_CANCELLED"
_CAUSE = re.compile(r"Lost task [^)]*\) \([^)]*\): (?:[\w.$]+: )?(.*)")


class JobCancelled(Exception):
    """A Spark job was cancelled by ourselves."""


class JobDied(Exception):
    """A Spark job ended without saying which of its tables was to blame: a worker was killed, as a rule."""


def run_tasks(spark: SparkSession, units: Sequence[Any], work: Callable[[Any], Iterable[Report]]) -> list[Report]:
    """Run a job of one task per unit; return what `work(unit)` yields in each, which is picklable and small.

    Without a DataFrame Spark has nothing to plan: a small job takes half the time. Errors are as in `collected`.
    `work` is picklable, too: Spark's own pickler, which also knows functions without a name, is many times slower.
    """
    packed, packed_work = [pickle.dumps(unit) for unit in units], pickle.dumps(work)

    def run(mine: Iterable[bytes]) -> Iterator[Report]:
        with ending_without_memory():
            unpacked: Callable[[Any], Iterable[Report]] = pickle.loads(packed_work)
            for unit in mine:
                yield from unpacked(pickle.loads(unit))
            freeze_imports()

    with _translated():
        return spark.sparkContext.parallelize(packed, max(len(packed), 1)).mapPartitions(run).collect()


def on_tasks(spark: SparkSession, units: Sequence[Any], work: Callable[[Any], Batches], schema: pa.Schema) -> DataFrame:
    """One Spark task per unit: `work(unit)` yields its record batches."""
    packed = [pickle.dumps(unit) for unit in units]  # every task gets them all, but unpacks only its own

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from work(pickle.loads(packed[index]))

    return on_partitions(spark.range(0, len(units), 1, len(units)), run, schema)


def on_partitions(rows: DataFrame, work: Callable[[Batches], Batches], schema: pa.Schema) -> DataFrame:
    """One Spark task per partition of these rows: `work` takes its record batches, and yields others."""

    def run(batches: Batches) -> Batches:
        with ending_without_memory():
            yield from work(batches)
            freeze_imports()

    return rows.mapInArrow(run, from_arrow_schema(schema))


def collected(job: DataFrame) -> list[Row]:
    """Run a job; return what its tasks yield.

    A file or a server that all tables need and that does not answer raises its own error; anything else is JobDied.
    """
    with _translated():
        return job.collect()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        if isinstance(error, PythonException) and needed_by_all(str(error)):
            raise shared_error(str(error)) from error
        if _CANCELLED in str(error):
            raise JobCancelled from error
        cause = _CAUSE.search(str(error))
        what = cause[1] if cause else raised(str(error))
        raise JobDied(what.split(" Consider setting")[0]) from error


def deal(items: Iterable[tuple[Item, int]], hands: int) -> list[tuple[Item, ...]]:
    """Deal weighted items into at most `hands` units of about the same weight."""
    units: list[list[Item]] = [[] for _ in range(hands)]
    heap = [(0, hand) for hand in range(hands)]
    for item, weight in sorted(items, key=lambda pair: -pair[1]):
        load, hand = heap[0]
        units[hand].append(item)
        heapq.heapreplace(heap, (load + weight, hand))
    return [tuple(unit) for unit in units if unit]
