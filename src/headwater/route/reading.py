"""The first half of every job of a route: units of events are read, and each event finds its destination.

The rows that Spark moves are whole pieces of Arrow data, one for each bucket that a task has events for: rows of any
schema pass the shuffle as they are, and a bucket's task gets few large values.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.lake.sink import Kinds
from headwater.route.condition import Condition
from headwater.route.destinations import Routing
from headwater.route.net import DESTINATION, POSITION, UPSERT
from headwater.route.units import EventUnit
from headwater.route.values import canonical_column
from headwater.spark import collected, deal, on_tasks
from headwater.values.keys import key_bucket, known_by

__all__ = ["SHUFFLED", "Buckets", "Reading", "Sighted", "routed", "survey", "unpacked"]

PIECE_BYTES = 8 << 20  # of events that a task gathers before it hands them on
UNIT_TASKS = 64  # units that one task reads, at most
MOST_UNKNOWN = 10_000  # different values of no destination that a task remembers

SHUFFLED = pa.schema([("bucket", pa.int32()), ("events", pa.binary()), ("sighted", pa.binary())])


@dataclass(frozen=True, slots=True)
class Sighted:
    """What was seen besides events for the destinations that take part, counted in rows that came into being.

    `unknown` are values that no destination has, with the rows of each; `null` rows have no value; `waiting` are rows
    of destinations that do not take part, by their numbers.
    """

    unknown: Counter[str] = field(default_factory=Counter)
    null: int = 0
    waiting: Counter[int] = field(default_factory=Counter)

    def __add__(self, other: Sighted) -> Sighted:
        return Sighted(self.unknown + other.unknown, self.null + other.null, self.waiting + other.waiting)

    @classmethod
    def total(cls, parts: Iterable[Sighted]) -> Sighted:
        return reduce(lambda one, other: one + other, parts, cls())


@dataclass(frozen=True, slots=True)
class Reading:
    """Which events are read, and for whom: `after` has the position of every destination that takes part.

    `routing` turns the column `by` into numbers of destinations. `columns` are read for rows that come, `of_deletes`
    for rows that go; only the units know what a column is.
    """

    units: Sequence[EventUnit]
    columns: Sequence[Any]
    of_deletes: Sequence[Any]
    by: str
    routing: Routing
    after: Mapping[int, int]
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Buckets:
    """Which task gets an event: one for each destination, but several for one that has many `pieces`, by its key."""

    count: int
    pieces: Mapping[int, int] = field(default_factory=dict)
    key: Kinds = field(default_factory=dict)

    def of(self, events: pa.Table) -> npt.NDArray[np.int64]:
        numbers = events[DESTINATION].to_numpy().astype(np.int64)
        if not self.pieces or not self.key:
            return _buckets(numbers, self.count)
        pieces = np.array([self.pieces.get(each, 1) for each in range(int(numbers.max(initial=0)) + 1)], np.int64)
        keys = known_by([events[name].combine_chunks() for name in self.key], list(self.key.values()))
        return _buckets(numbers + key_bucket(keys, 1 << 31) % pieces[numbers], self.count)


def _buckets(numbers: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    return numbers % np.int64(count)


def routed(spark: SparkSession, reading: Reading, buckets: Buckets) -> DataFrame:
    """The events in their buckets; a row is a piece of a bucket's events, or what a task has sighted (bucket 0)."""
    cores = spark.sparkContext.defaultParallelism
    tasks = max(cores, -(-len(reading.units) // UNIT_TASKS))
    units = deal([(each, each.bytes) for each in reading.units], tasks)
    return on_tasks(spark, units, _RouteUnits(reading, buckets), SHUFFLED)


def survey(spark: SparkSession, reading: Reading) -> Sighted:
    """How many rows there are for each destination, all of which count as waiting, and values that none has."""
    alone = Reading(reading.units, reading.of_deletes, reading.of_deletes, reading.by, reading.routing, {},
                    reading.condition)  # fmt: skip
    rows = collected(routed(spark, alone, Buckets(1)))
    return Sighted.total(pickle.loads(row.sighted) for row in rows if row.sighted is not None)


def unpacked(content: bytes) -> pa.Table:
    """A piece of events, as it came through the shuffle."""
    with pa.ipc.open_stream(content) as stream:
        return stream.read_all()


@dataclass(frozen=True, slots=True)
class _RouteUnits:
    reading: Reading
    buckets: Buckets

    def __call__(self, units: Sequence[EventUnit]) -> Iterator[pa.RecordBatch]:
        held: list[pa.Table] = []
        sighted = Sighted()
        for unit in units:
            for events in unit.read(self.reading.columns, self.reading.of_deletes):
                mine, seen = self._routed(events)
                sighted += seen
                if mine.num_rows:
                    held.append(mine)
                if sum(each.nbytes for each in held) > PIECE_BYTES:
                    yield self._pieces(held)
                    held = []
        if held:
            yield self._pieces(held)
        yield pa.RecordBatch.from_pylist([{"bucket": 0, "sighted": pickle.dumps(sighted)}], schema=SHUFFLED)

    def _routed(self, events: pa.Table) -> tuple[pa.Table, Sighted]:
        """The events that are for a destination that takes part, and new to it, with its number."""
        reading = self.reading
        if reading.condition is not None:
            events = events.filter(reading.condition.fulfilled(events))
        values = canonical_column(events[reading.by].combine_chunks())
        numbers = reading.routing.route(values).destinations
        after = np.full(reading.routing.count + 1, np.iinfo(np.int64).max)  # the last is for number -1
        for number, position in reading.after.items():
            after[number] = position
        takes_part = after[numbers] < np.iinfo(np.int64).max
        new = pa.array(events[POSITION].to_numpy() > after[numbers])
        rest = events[UPSERT].to_numpy() & ~takes_part
        mine = events.append_column(DESTINATION, pa.array(numbers, pa.int32())).filter(new)
        return mine, _sighted(values.filter(pa.array(rest)), numbers[rest])

    def _pieces(self, held: Sequence[pa.Table]) -> pa.RecordBatch:
        events = pa.concat_tables(held).combine_chunks()
        buckets = self.buckets.of(events)
        order = np.argsort(buckets, kind="stable")
        edges = np.searchsorted(buckets[order], np.arange(self.buckets.count + 1))
        rows = [
            {"bucket": bucket, "events": _packed(events.take(pa.array(order[first:end])))}
            for bucket, (first, end) in enumerate(pairwise(edges.tolist()))
            if first < end
        ]
        return pa.RecordBatch.from_pylist(rows, schema=SHUFFLED)


def _sighted(values: pa.Array, numbers: npt.NDArray[np.int32]) -> Sighted:
    lost = values.filter(pa.array(numbers < 0))
    counts = lost.drop_null().value_counts()
    unknown = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    found, rows = np.unique(numbers[numbers >= 0], return_counts=True)
    waiting = Counter(dict(zip(found.tolist(), rows.tolist(), strict=True)))
    return Sighted(Counter(dict(unknown)), lost.null_count, waiting)


def _packed(events: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema) as stream:
        stream.write_table(events)
    content: bytes = sink.getvalue().to_pybytes()
    return content
