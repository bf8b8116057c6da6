"""Compare tables of the source and of the lake by count and content, on Spark.

The two sides share no code of Headwater's: PostgreSQL prints its values, DuckDB reads that print and, through the
DuckLake extension, the lake. Both then go through the same hash, summed up by buckets of the key; rows are only
looked at one by one where a bucket differs. A value that the lake's type cannot hold must be NULL in its row and in
quarantine.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from headwater.change import Lsn
from headwater.copy.reading import Range, read_expressions
from headwater.errors import CheckFailed, TableError
from headwater.lake.sink import Reader
from headwater.spark import collected, deal, on_tasks
from headwater.verify.misfits import is_json, linked, open_entries
from headwater.verify.pair import LINKED, SIDE, Pair
from headwater.verify.spelling import INVALID

__all__ = ["ROWS", "SUMS", "Compared", "Difference", "Sides", "Totals", "compare", "differences"]

SHOWN = 10  # differing keys, per table
_MIRROR_WEIGHT = 100_000  # rows a mirror is taken for when work is dealt: it is read in one piece

SUMS = pa.schema(
    [
        *(("oid", pa.int64()), ("lake", pa.bool_()), ("error", pa.string()), ("fault", pa.string())),
        *(("bucket", pa.int32()), ("rows", pa.int64()), ("high", pa.int64()), ("low", pa.int64())),
        *(("misfits", pa.int64()), ("misfits_high", pa.int64()), ("misfits_low", pa.int64())),
    ]
)
ROWS = pa.schema(
    [
        *(("oid", pa.int64()), ("lake", pa.bool_()), ("error", pa.string()), ("fault", pa.string())),
        *(("id", pa.string()), ("key", pa.string()), ("hash", pa.string()), ("shown", pa.string())),
        ("count", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A row, or a value in quarantine, that is not the same on both sides; None: it is missing there.

    Without a key it is empty, and the counts may be above 1.
    """

    key: str
    source: str | None
    lake: str | None
    source_count: int
    lake_count: int


@dataclass(frozen=True, slots=True)
class Compared:
    """What was found for one table; `error`: it could not be compared; `fault`: what is wrong with it as a whole."""

    source_rows: int
    lake_rows: int
    differences: tuple[Difference, ...]  # the first of them
    equal: bool
    error: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Sides:
    """Where the two sides are: an exported snapshot of the source, a snapshot of the lake. Picklable.

    `source` is the lake's name for it.
    """

    source: str
    source_url: str
    exported: str
    lake: Reader


@dataclass(frozen=True, slots=True)
class _Side:
    """What is read at once: a range of a source table, or (without a range) a mirror."""

    pair: Pair
    part: Range | None

    @property
    def weight(self) -> int:
        return _MIRROR_WEIGHT if self.part is None else self.part.rows or 0


def compare(
    spark: SparkSession, sides: Sides, pairs: Mapping[int, tuple[Pair, Sequence[Range]]]
) -> dict[int, Compared]:
    """Compare each pair; its source table is read in these ranges, all in parallel."""
    units = [_Side(pair, part) for pair, parts in pairs.values() for part in (None, *parts)]
    found: defaultdict[int, Totals] = defaultdict(Totals)
    for row in collected(on_tasks(spark, _hands(spark, units), _Ask(sides, SUMS), SUMS)):
        found[row.oid].add(row)
    differing = [unit for unit in units if found[unit.pair.relation.oid].differ]
    buckets = {oid: totals.buckets for oid, totals in found.items() if totals.differ}
    shown: Mapping[int, list[Difference]] = {}
    if buckets:
        shown = differences(on_tasks(spark, _hands(spark, differing), _Ask(sides, ROWS, buckets), ROWS))
    return {oid: found[oid].verdict(tuple(shown.get(oid, ()))) for oid in pairs}


def _hands(spark: SparkSession, units: Sequence[_Side]) -> list[tuple[_Side, ...]]:
    # A task opens the lake once for all that it is dealt: with many small tables that is most of the work.
    return deal([(unit, unit.weight + 1) for unit in units], 2 * spark.sparkContext.defaultParallelism)


class Totals:
    """One table's sums, of both sides."""

    def __init__(self) -> None:
        self.sums: defaultdict[bool, Counter[tuple[int, str]]] = defaultdict(Counter)
        self.error = ""
        self.fault = ""

    def add(self, row: Row) -> None:
        if row.error is not None or row.fault is not None:
            self.error, self.fault = row.error or self.error, row.fault or self.fault
            return
        sums = self.sums[row.lake]
        for name in ("rows", "high", "low"):
            sums[row.bucket, name] += row[name]
        for name in ("misfits", "misfits_high", "misfits_low"):
            sums[-1, name] += row[name]

    @property
    def differ(self) -> bool:
        return not self.error and not self.fault and self.sums[False] != self.sums[True]

    @property
    def buckets(self) -> list[int]:
        """Those in which rows differ."""
        source, lake = self.sums[False], self.sums[True]
        return sorted(
            {bucket for bucket, name in {*source, *lake} if source[bucket, name] != lake[bucket, name]} - {-1}
        )

    def verdict(self, shown: tuple[Difference, ...]) -> Compared:
        rows = [sum(n for (_, name), n in self.sums[lake].items() if name == "rows") for lake in (False, True)]
        equal = not self.differ and not self.error and not self.fault
        return Compared(rows[0], rows[1], shown, equal, self.error, self.fault)


def differences(rows: DataFrame) -> dict[int, list[Difference]]:
    """The first rows, of those that both sides have in buckets that differ, that are not the same."""
    totals = (
        rows.where("error IS NULL AND fault IS NULL")
        .groupBy("oid", "lake", "id", "hash")
        .agg(F.max("key").alias("key"), F.max("shown").alias("shown"), F.sum("count").alias("count"))
    )
    # By the compared key, not by its print: the two sides print bytes, floats and years before Christ differently.
    keys = totals.groupBy("oid", "id").agg(
        F.expr("max_by(key, NOT lake)").alias("key"),  # as the source prints it, if the source has it
        *_side("source", F.col("lake") == F.lit(False)),
        *_side("lake", F.col("lake")),
    )
    differ = keys.where("source_print IS DISTINCT FROM lake_print")
    place = "row_number() OVER (PARTITION BY oid ORDER BY length(key), key, source_shown, lake_shown) AS place"
    found: defaultdict[int, list[Difference]] = defaultdict(list)
    first = differ.selectExpr("*", place).where(F.col("place") <= SHOWN)
    for row in collected(first.orderBy("oid", "place")):
        counts = row.source_count or 0, row.lake_count or 0
        found[row.oid].append(Difference(row.key, row.source_shown, row.lake_shown, *counts))
    return found


def _side(name: str, condition: Column) -> list[Column]:
    """How often a key is there with which content: a row that is there twice differs from one that is there once."""
    each = F.concat_ws("*", F.col("hash"), F.col("count"))
    content = F.concat_ws(" ", F.sort_array(F.collect_list(F.when(condition, each))))
    return [
        F.nullif(content, F.lit("")).alias(f"{name}_print"),
        F.max(F.when(condition, F.col("shown"))).alias(f"{name}_shown"),
        F.sum(F.when(condition, F.col("count"))).alias(f"{name}_count"),
    ]


@dataclass(frozen=True, slots=True)
class _Ask:
    """Runs one query over each side it is dealt, in a worker."""

    sides: Sides
    schema: pa.Schema
    buckets: Mapping[int, Sequence[int]] | None = None  # when given, rows of these; else sums

    def __call__(self, dealt: Sequence[_Side]) -> Iterator[pa.RecordBatch]:
        with self.sides.lake.connect() as con:
            con.create_function("is_json", is_json, ["VARCHAR"], "BOOLEAN")
            entries: list[dict[str, Any]] = []
            if any(side.part is None for side in dealt):
                self.sides.lake.attach(con, "lake")
                entries = open_entries(con, self.sides.source)
            for side in dealt:
                try:
                    yield from self._asked(con, side, entries)
                except TableError as error:
                    yield self._message(side, error=error.message)
                except CheckFailed as fault:
                    yield self._message(side, fault=fault.message)

    def _asked(
        self, con: duckdb.DuckDBPyConnection, side: _Side, entries: Sequence[dict[str, Any]]
    ) -> Iterator[pa.RecordBatch]:
        pair, lake = side.pair, side.part is None
        query = pair.sums(lake) if self.buckets is None else pair.details(lake, self.buckets[pair.relation.oid])
        if side.part is not None:
            con.register(SIDE, self._printed(pair, side.part))
        elif pair.history:
            _no_change_twice(con, pair)
        else:
            con.register(LINKED, linked(con, pair, entries))
        for batch in con.execute(query).to_arrow_reader(65536):
            head = [
                pa.array([pair.relation.oid] * batch.num_rows),
                pa.array([lake] * batch.num_rows),
                pa.nulls(batch.num_rows),
                pa.nulls(batch.num_rows),
            ]
            values = [array.cast(each.type) for array, each in zip([*head, *batch.columns], self.schema, strict=True)]
            yield pa.record_batch(values, schema=self.schema)

    def _message(self, side: _Side, **what: str) -> pa.RecordBatch:
        row = {"oid": side.pair.relation.oid, "lake": side.part is None, **what}
        return pa.RecordBatch.from_pylist([row], schema=self.schema)

    def _printed(self, pair: Pair, part: Range) -> pa.RecordBatchReader:
        asked = pair.postgres(show=self.buckets is not None)
        schema = pa.schema([(name, pa.string()) for name in asked])
        batches = read_expressions(self.sides.source_url, self.sides.exported, part, list(asked.values()), pair.where)
        return pa.RecordBatchReader.from_batches(
            schema,
            (pa.RecordBatch.from_arrays([_valid(column) for column in b.columns], schema=schema) for b in batches),
        )


def _valid(column: pa.Array) -> pa.Array:
    """PostgreSQL's print as DuckDB can take it: what is not UTF-8 is marked, and spelled as in quarantine."""
    raw = column.cast(pa.binary())
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else _spelled(value) for value in raw.to_pylist()], pa.string())


def _spelled(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return INVALID + value.decode(errors="backslashreplace")


def _no_change_twice(con: duckdb.DuckDBPyConnection, pair: Pair) -> None:
    """Replaying a history does not show whether a change is in it more than once."""
    count, first = con.execute(pair.doubled()).fetchall()[0]
    if count:
        changes = f"{count:,} change{'' if count == 1 else 's'}"
        raise CheckFailed(f"the history {pair.mirror} has {changes} more than once, the first at {Lsn(first)}")
