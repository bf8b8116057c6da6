"""Work spread over Spark tasks."""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

__all__ = ["deal", "on_tasks", "spark_schema"]

Item = TypeVar("Item")


def spark_schema(schema: pa.Schema) -> StructType:
    """How Spark spells the shape of these record batches."""
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


def deal(items: Iterable[tuple[Item, int]], hands: int) -> list[tuple[Item, ...]]:
    """Deal weighted items into at most `hands` units of about the same weight."""
    units: list[list[Item]] = [[] for _ in range(hands)]
    heap = [(0, hand) for hand in range(hands)]
    for item, weight in sorted(items, key=lambda pair: -pair[1]):
        load, hand = heap[0]
        units[hand].append(item)
        heapq.heapreplace(heap, (load + weight, hand))
    return [tuple(unit) for unit in units if unit]
