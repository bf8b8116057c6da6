"""A task that deletes the rows of partitions: those of the lake's files that meet a partition's bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from headwater import failpoints
from headwater.lake.sink import Delivery
from headwater.lake.target import Place, Sought, Target, rows_of
from headwater.merge.outcome import Failed, Failure, Written
from headwater.spark import deal, run_tasks
from headwater.spark.faults import table_error
from headwater.values.types import LakeType

__all__ = ["ColumnValues", "RemovedRows", "remove_rows", "whole_numbers"]


class ColumnValues(NamedTuple):
    """Values of a column: between two, both included (None: no bound), or one of some.

    Numbers, dates and times are whole numbers as Arrow stores them.
    """

    column: str
    low: int | None = None
    high: int | None = None
    values: tuple[int | str, ...] | None = None

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The lowest and the highest value, if both are known as numbers."""
        if self.values is not None:
            numbers = [each for each in self.values if isinstance(each, int)]
            return (min(numbers), max(numbers)) if numbers else None
        return None if self.low is None or self.high is None else (self.low, self.high)

    def has(self, column: pa.Array) -> npt.NDArray[np.bool_]:
        """Which values these are; NULL is none."""
        numbers = whole_numbers(column)
        if self.values is not None:
            found = pc.is_in(numbers, value_set=pa.array(self.values, numbers.type), skip_nulls=True)
        else:
            found = numbers.is_valid()
            if self.low is not None:
                found = pc.and_kleene(found, pc.greater_equal(numbers, pa.scalar(self.low, pa.int64())))
            if self.high is not None:
                found = pc.and_kleene(found, pc.less_equal(numbers, pa.scalar(self.high, pa.int64())))
        there: npt.NDArray[np.bool_] = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
        return there


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """Which rows of a table go: those that meet all spans of a partition, or of another one."""

    kinds: Mapping[str, LakeType]  # of the columns that the spans name
    partitions: Sequence[Sequence[ColumnValues]]

    @property
    def columns(self) -> tuple[str, ...]:
        """The first of them is in every partition's bounds."""
        return tuple(dict.fromkeys(span.column for spans in self.partitions for span in spans))

    @property
    def sought(self) -> Sought:
        """What tells in which files they are."""
        of_each = [[span.bounds for span in spans if span.column == self.columns[0]] for spans in self.partitions]
        known = [each for bounds in of_each for each in bounds if each is not None]
        if any(None in bounds for bounds in of_each) or not known:
            return Sought()
        return Sought((min(low for low, _ in known), max(high for _, high in known)))

    def among(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
        """Where they are in a piece of a file."""
        by_name = {
            name: array if array.type == self.kinds[name].arrow else array.cast(self.kinds[name].arrow)
            for name, array in zip(self.columns, columns, strict=True)
        }
        found = np.zeros(len(columns[0]), bool)
        for spans in self.partitions:
            found |= np.all([span.has(by_name[span.column]) for span in spans], axis=0)
        return np.flatnonzero(found)


def remove_rows(
    spark: SparkSession, delivery: Delivery[Any], wanted: Mapping[int, RemovedRows]
) -> list[Written | Failed]:
    """Delete these rows of some tables of a delivery that knows rows by the columns asked for; what the tasks say."""
    if not wanted:
        return []
    places = delivery.places({oid: each.sought for oid, each in wanted.items()})
    units = deal([(each, each.rows) for each in places], spark.sparkContext.defaultParallelism)
    return run_tasks(spark, units, _Remove(delivery.target, wanted))


@dataclass(frozen=True, slots=True)
class _Remove:
    target: Target[Any]
    wanted: Mapping[int, RemovedRows]

    def __call__(self, places: tuple[Place, ...]) -> Iterator[Written | Failed]:
        with self.target.searching(places):
            for place in places:
                assert place.oid is not None, "the quarantine has no partitions"
                try:
                    taken = self.target.take_out(place, pa.array(self._rows(place, self.wanted[place.oid])))
                except Exception as error:
                    yield Failed(place.oid, Failure.of(table_error(error)))
                    continue
                if taken is not None:
                    yield Written(rows_of(place.oid), taken.report)
                failpoints.hit("deliver.located")

    def _rows(self, place: Place, wanted: RemovedRows) -> npt.NDArray[np.int64]:
        found = [wanted.among(columns) + first for first, columns in self.target.keys(place)]
        return np.concatenate(found) if found else np.empty(0, np.int64)


def whole_numbers(column: pa.Array) -> pa.Array:
    """Numbers, dates, times and booleans as whole numbers; text as it is."""
    if pa.types.is_date32(column.type):
        return column.view(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(column.type):
        return column.view(pa.int64())
    return column if pa.types.is_large_string(column.type) else column.cast(pa.int64())
