"""Compare tables of the source and of the lake by count and content, on Spark.

The two sides share no code of ours: PostgreSQL prints its values, DuckDB reads that print and, through the DuckLake
extension, the lake. Both then go through the same hash, summed up by buckets of the key; rows are only looked at
one by one where a bucket differs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from psycopg import sql
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from headwater.capture.copy import Range, read_expressions
from headwater.change import Relation, TableName
from headwater.ducklake.extension import attach, connect, identifier
from headwater.ducklake.url import LakeUrl
from headwater.files import S3
from headwater.spark import on_tasks
from headwater.types import lake_type
from headwater.verify.spelling import PRINTED, spelling

__all__ = ["Compared", "Difference", "Pair", "Sides", "compare"]

BUCKETS = 64
SHOWN = 10  # differing keys, per table

_SUMS = pa.schema(
    [
        ("oid", pa.int64()),
        ("lake", pa.bool_()),
        ("bucket", pa.int32()),
        ("rows", pa.int64()),
        ("high", pa.int64()),
        ("low", pa.int64()),
    ]
)
_ROWS = pa.schema(
    [
        ("oid", pa.int64()),
        ("lake", pa.bool_()),
        ("id", pa.string()),
        ("key", pa.string()),
        ("hash", pa.string()),
        ("shown", pa.string()),
    ]
)
_SUMS_SQL = "oid long, lake boolean, bucket int, rows long, high long, low long"
_ROWS_SQL = "oid long, lake boolean, id string, key string, hash string, shown string"


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose row is not the same on both sides; None: it is missing there."""

    key: str
    source: str | None
    lake: str | None


@dataclass(frozen=True, slots=True)
class Compared:
    """What was found for one table."""

    source_rows: int
    lake_rows: int
    differences: tuple[Difference, ...]  # the first of them
    equal: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """A source table, its mirror, and how to ask both for comparable rows."""

    relation: Relation
    mirror: TableName

    def postgres(self) -> list[sql.Composable]:
        """Each column twice: to compare, and to show."""
        found: list[sql.Composable] = []
        for column in self.relation.columns:
            ask = spelling(lake_type(column.type_oid, column.typmod)).postgres
            name = sql.Identifier(column.name)
            found += [sql.SQL(each.replace("{}", "{0}")).format(name) for each in (ask, PRINTED)]
        return found

    def rows(self, lake: bool) -> str:
        """DuckDB's query for c0, c1 … to compare and s0, s1 … to show, of the mirror or of PostgreSQL's print."""
        parts = []
        for index, column in enumerate(self.relation.columns):
            how = spelling(lake_type(column.type_oid, column.typmod))
            name = identifier(column.name)
            compare = how.lake.format(name) if lake else how.read.format(f"t{index}")
            parts += [f"{compare} AS c{index}", f"{f'CAST({name} AS VARCHAR)' if lake else f'x{index}'} AS s{index}"]
        where = f"lake.{identifier(self.mirror.schema)}.{identifier(self.mirror.name)}" if lake else "side"
        return f"SELECT {', '.join(parts)} FROM {where}"

    def sums(self, lake: bool) -> str:
        values = ", ".join(f"c{index}" for index in range(len(self.relation.columns)))
        return f"""
            SELECT {self.bucket} AS bucket, count(*) AS rows,
                   CAST(bit_xor(h >> 32) AS BIGINT) AS high, CAST(bit_xor(h & 4294967295) AS BIGINT) AS low
            FROM (SELECT *, hash({values}) AS h FROM ({self.rows(lake)})) GROUP BY ALL"""

    def details(self, lake: bool, buckets: Sequence[int]) -> str:
        values = ", ".join(f"c{index}" for index in range(len(self.relation.columns)))
        names = [column.name for column in self.relation.columns]
        shown = ", ".join(f"{identifier(name)} := s{index}" for index, name in enumerate(names))
        keys = ", ".join(f"{identifier(names[index])} := s{index}" for index in self.relation.key)
        return f"""
            SELECT CAST({self.key_hash} AS VARCHAR) AS id, CAST(to_json(struct_pack({keys})) AS VARCHAR) AS key,
                   CAST(hash({values}) AS VARCHAR) AS hash, CAST(to_json(struct_pack({shown})) AS VARCHAR) AS shown
            FROM ({self.rows(lake)}) WHERE {self.bucket} IN ({", ".join(map(str, buckets))})"""

    @property
    def key_hash(self) -> str:
        return f"hash({', '.join(f'c{index}' for index in self.relation.key)})"

    @property
    def bucket(self) -> str:
        return f"CAST({self.key_hash} % {BUCKETS} AS INTEGER)"


@dataclass(frozen=True, slots=True)
class Sides:
    """Where the two sides are: an exported snapshot of the source, a snapshot of the lake. Picklable."""

    source_url: str
    exported: str
    lake: LakeUrl
    s3: S3 | None
    snapshot: int


@dataclass(frozen=True, slots=True)
class _Side:
    """One Spark task's input: a range of a source table, or (without a range) a mirror."""

    pair: Pair
    part: Range | None


def compare(
    spark: SparkSession, sides: Sides, pairs: Mapping[int, tuple[Pair, Sequence[Range]]]
) -> dict[int, Compared]:
    """Compare each pair; its source table is read in these ranges, all in parallel."""
    units = [_Side(pair, part) for pair, parts in pairs.values() for part in (None, *parts)]
    sums = on_tasks(spark, units, _Ask(sides, _SUMS), _SUMS_SQL)
    totals = sums.groupBy("oid", "lake", "bucket").agg(
        F.sum("rows").alias("rows"), F.expr("bit_xor(high)").alias("high"), F.expr("bit_xor(low)").alias("low")
    )
    rows: defaultdict[tuple[int, bool], int] = defaultdict(int)
    found: defaultdict[int, dict[bool, dict[int, tuple[int, int, int]]]] = defaultdict(lambda: {False: {}, True: {}})
    for row in totals.collect():
        rows[row.oid, row.lake] += row.rows
        found[row.oid][row.lake][row.bucket] = (row.rows, row.high, row.low)
    bad = {
        oid: sorted(
            bucket for bucket in {*both[False], *both[True]} if both[False].get(bucket) != both[True].get(bucket)
        )
        for oid, both in found.items()
        if both[False] != both[True]
    }
    shown = _differences(spark, sides, [unit for unit in units if unit.pair.relation.oid in bad], bad)
    return {
        oid: Compared(rows[oid, False], rows[oid, True], tuple(shown.get(oid, ())), oid not in bad) for oid in pairs
    }


def _differences(
    spark: SparkSession, sides: Sides, units: Sequence[_Side], bad: Mapping[int, Sequence[int]]
) -> dict[int, list[Difference]]:
    if not bad:
        return {}
    rows = on_tasks(spark, units, _Ask(sides, _ROWS, bad), _ROWS_SQL)
    # By the compared key, not by its print: the two sides print bytes, floats and years before Christ differently.
    keys = rows.groupBy("oid", "id").agg(
        F.expr("max_by(key, NOT lake)").alias("key"),  # as the source prints it, if the source has it
        *_side("source", F.col("lake") == F.lit(False)),
        *_side("lake", F.col("lake")),
    )
    differ = keys.where("source_print IS DISTINCT FROM lake_print")
    ranked = differ.selectExpr("*", "row_number() OVER (PARTITION BY oid ORDER BY length(key), key) AS place")
    found: defaultdict[int, list[Difference]] = defaultdict(list)
    for row in ranked.where(F.col("place") <= SHOWN).orderBy("oid", "place").collect():
        found[row.oid].append(Difference(row.key, row.source_shown, row.lake_shown))
    return found


def _side(name: str, condition: Column) -> list[Column]:
    """How often a key is there with which content: a row that is there twice differs from one that is there once."""
    content = F.concat_ws(" ", F.sort_array(F.collect_list(F.when(condition, F.col("hash")))))
    return [
        F.nullif(content, F.lit("")).alias(f"{name}_print"),
        F.max(F.when(condition, F.col("shown"))).alias(f"{name}_shown"),
    ]


@dataclass(frozen=True, slots=True)
class _Ask:
    """Runs one query over one side, in a worker."""

    sides: Sides
    schema: pa.Schema
    buckets: Mapping[int, Sequence[int]] = field(default_factory=dict)  # when given, rows of these; else sums

    def __call__(self, side: _Side) -> Iterator[pa.RecordBatch]:
        lake = side.part is None
        oid = side.pair.relation.oid
        query = side.pair.details(lake, self.buckets[oid]) if self.buckets else side.pair.sums(lake)
        with connect(threads=1) as con:
            if side.part is None:
                attach(con, self.sides.lake, "lake", s3=self.sides.s3, read_only=True, snapshot=self.sides.snapshot)
            else:
                con.register("side", self._printed(side.pair, side.part))
            reader = con.execute(f"SELECT {oid} AS oid, {lake} AS lake, * FROM ({query})").to_arrow_reader(65536)
            for batch in reader:
                yield pa.Table.from_batches([batch]).cast(self.schema).combine_chunks().to_batches()[0]

    def _printed(self, pair: Pair, part: Range) -> pa.RecordBatchReader:
        count = len(pair.relation.columns)
        schema = pa.schema([(f"{kind}{index}", pa.string()) for index in range(count) for kind in "tx"])
        batches = read_expressions(self.sides.source_url, self.sides.exported, part, pair.postgres())
        return pa.RecordBatchReader.from_batches(
            schema,
            (pa.RecordBatch.from_arrays([c.cast(pa.string()) for c in b.columns], schema=schema) for b in batches),
        )
