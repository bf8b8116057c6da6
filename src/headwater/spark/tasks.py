"""Work spread over Spark tasks, and the one place where a job is run and its failure translated."""

from __future__ import annotations

import heapq
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headwater.spark.faults import needed_by_all, raised, shared_error

__all__ = ["JobDied", "collected", "deal", "on_tasks", "spark_schema"]

Item = TypeVar("Item")
_CAUSE = re.compile(r"Lost task [^)]*\) \([^)]*\): (?:[\w.$]+: )?(.*)")


class JobDied(Exception):
    """A Spark job ended without saying which of its tables was to blame: a worker was killed, as a rule."""


def spark_schema(schema: pa.Schema) -> StructType:
    """The schema of these record batches as Spark spells it."""
    return from_arrow_schema(schema)


def on_tasks(
    spark: SparkSession, units: Sequence[Any], work: Callable[[Any], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> DataFrame:
    """One Spark task per unit: `work(unit)` yields its record batches."""
    packed = [pickle.dumps(unit) for unit in units]  # every task gets them all, but unpacks only its own

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from work(pickle.loads(packed[index]))

    return spark.range(0, len(units), 1, len(units)).mapInArrow(run, spark_schema(schema))


def collected(job: DataFrame) -> list[Row]:
    """Run a job; return what its tasks yield.

    A file or a server that all tables need and that does not answer raises its own error; anything else is JobDied.
    """
    try:
        return job.collect()
    except (Py4JJavaError, PySparkException) as error:
        if isinstance(error, PythonException) and needed_by_all(str(error)):
            raise shared_error(str(error)) from error
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
