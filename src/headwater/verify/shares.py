"""A route's source at one snapshot and the tables of its destinations, compared by count and content, on Spark.

DuckDB reads both sides through the lakes' own extensions, the source once for all destinations that show the same
snapshot. Rows are divided among the destinations by the routing column's own values: of Headwater's code, only their
canonical text takes part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.change import TableName
from headwater.lake.sink import Reader
from headwater.lake.sqltext import identifier, literal
from headwater.route.destinations import Routing
from headwater.route.values import canonical_column
from headwater.spark import collected, deal, on_tasks
from headwater.values.types import LakeType
from headwater.verify.compare import ROWS, SUMS, Compared, Difference, Totals, differences
from headwater.verify.spelling import spelling
from headwater.words import counted

__all__ = ["CarriedColumn", "DestinationSide", "Shape", "SourceSide", "compare_shares"]

BUCKETS = 64
BYTES = r"\x"  # before PostgreSQL's text of bytes
_SOURCE_WEIGHT = 1_000  # destinations that a read of the source counts for when work is dealt


@dataclass(frozen=True, slots=True)
class CarriedColumn:
    """A column that destinations get, and PostgreSQL's text of what rows show that are older than the column."""

    name: str
    kind: LakeType
    default: str | None = None

    def shown_by(self, name: str | None) -> str:
        """DuckDB's expression for it, in a table `t` that has it under a name, or (None) does not have it yet."""
        if name is not None:
            return f"t.{identifier(name)}"
        if self.default is not None and self.kind.logical == "binary":
            return f"unhex({literal(self.default.removeprefix(BYTES))})"
        return f"CAST({'NULL' if self.default is None else literal(self.default)} AS {self.kind})"


@dataclass(frozen=True, slots=True)
class Shape:
    """How rows are compared: their columns, and the indexes of the key's; without a key, as a whole."""

    columns: tuple[CarriedColumn, ...]
    key: tuple[int, ...]

    def rows(self, number: str, expressions: Sequence[str], origin: str) -> str:
        """DuckDB's query for the rows of `origin`: destination, c0 … to compare, s0 … to show."""
        parts = [f"{number} AS destination"]
        for index, (column, each) in enumerate(zip(self.columns, expressions, strict=True)):
            parts.append(f"{spelling(column.kind).lake.replace('{}', each)} AS c{index}")
            parts.append(f"CAST({each} AS VARCHAR) AS s{index}")
        return f"SELECT {', '.join(parts)} FROM {origin}"

    def sums(self, rows: str) -> str:
        """Counts and checksums by destination and bucket."""
        high, low = (f"CAST(sum(CAST({half} AS BIGINT)) AS BIGINT)" for half in ("h >> 32", "h & 4294967295"))
        hashed = f"SELECT destination, {self._bucket} AS bucket, hash({self._values}) AS h FROM ({rows})"
        return f"SELECT destination, bucket, count(*), {high}, {low}, 0, 0, 0 FROM ({hashed}) GROUP BY ALL"

    def details(self, rows: str) -> str:
        """The rows of the buckets in `differing`: destination, id, key, hash, what to show, how often."""
        key = self._object(self.key) if self.key else "''"
        each = (
            f"SELECT destination, {self._bucket} AS bucket, {self._row_id} AS id, CAST({key} AS VARCHAR) AS key,"
            f" hash({self._values}) AS h, CAST({self._object(range(len(self.columns)))} AS VARCHAR) AS shown"
            f" FROM ({rows})"
        )
        return (
            "SELECT destination, CAST(id AS VARCHAR), any_value(key), CAST(h AS VARCHAR), any_value(shown), count(*)"
            f" FROM ({each}) JOIN differing USING (destination, bucket) GROUP BY destination, id, h"
        )

    @property
    def _values(self) -> str:
        return ", ".join(f"c{index}" for index in range(len(self.columns)))

    @property
    def _row_id(self) -> str:
        return f"hash({', '.join(f'c{index}' for index in self.key)})" if self.key else f"hash({self._values})"

    @property
    def _bucket(self) -> str:
        return f"CAST({self._row_id} % {BUCKETS} AS INTEGER)"

    def _object(self, indexes: Sequence[int]) -> str:
        pairs = (f"{literal(self.columns[index].name)}, s{index}" for index in indexes)
        return f"json_object({', '.join(pairs)})"


@dataclass(frozen=True, slots=True)
class SourceSide:
    """The source at one snapshot: the rows of these destinations, which all show it."""

    reader: Reader
    table: TableName
    shape: Shape
    by: str
    routing: Routing
    destinations: frozenset[int]
    where: str | None = None

    @property
    def weight(self) -> int:
        return _SOURCE_WEIGHT

    def rows(self, con: duckdb.DuckDBPyConnection) -> str:
        """DuckDB's query for the rows, each under the number of its destination."""
        self.reader.attach(con, "lake")
        table = f"lake.{identifier(self.table.schema)}.{identifier(self.table.name)}"
        kept = f"(SELECT * FROM {table} WHERE coalesce((\n{self.where}\n)::BOOLEAN, false))" if self.where else table
        numbers = _divided(con, self.by, kept, self.routing)
        mine = pa.array(np.isin(numbers["destination"].to_numpy(), list(self.destinations)))
        con.register("mine", numbers.filter(mine))
        names = [column.shown_by(column.name) for column in self.shape.columns]
        return self.shape.rows("mine.destination", names, f"{kept} AS t {_joined(self.by, 'mine')}")


@dataclass(frozen=True, slots=True)
class DestinationSide:
    """A destination at one snapshot of its lake; `names` are those of the columns there, None: it has none yet."""

    reader: Reader
    table: TableName
    shape: Shape
    names: tuple[str | None, ...]
    by: str | None  # its own name for the routing column, if it has that
    routing: Routing
    number: int

    @property
    def weight(self) -> int:
        return 1

    @property
    def destinations(self) -> frozenset[int]:
        return frozenset([self.number])

    def rows(self, con: duckdb.DuckDBPyConnection) -> str:
        """DuckDB's query for the rows."""
        self.reader.attach(con, "lake")
        names = [column.shown_by(name) for column, name in zip(self.shape.columns, self.names, strict=True)]
        return self.shape.rows(str(self.number), names, f"{self._table} AS t")

    def fault(self, con: duckdb.DuckDBPyConnection) -> str | None:
        """Rows that belong to others."""
        if self.by is None:
            return None  # then they only show as rows that the source has not for it
        numbers = _divided(con, self.by, self._table, self.routing)
        foreign = numbers.filter(pa.array(numbers["destination"].to_numpy() != self.number))
        if not foreign.num_rows:
            return None
        con.register("others", foreign)
        ((count, first),) = con.execute(
            f"SELECT count(*), CAST(min(divided.value) AS VARCHAR) FROM {self._table} AS t {_joined(self.by, 'others')}"
        ).fetchall()
        return f"it holds {counted(count, 'row')} of other values, for example of {first or 'NULL'}"

    @property
    def _table(self) -> str:
        return f"lake.{identifier(self.table.schema)}.{identifier(self.table.name)}"


Side = SourceSide | DestinationSide


def _divided(con: duckdb.DuckDBPyConnection, by: str, origin: str, routing: Routing) -> pa.Table:
    """The destination of each distinct value; `divided` has the values themselves, in the column's own type."""
    con.execute(
        "CREATE OR REPLACE TEMP TABLE divided AS SELECT value, row_number() OVER () AS id"
        f" FROM (SELECT DISTINCT {identifier(by)} AS value FROM {origin})"
    )
    found = con.execute("SELECT id, value FROM divided").to_arrow_table()
    numbers = routing.route(canonical_column(found["value"].combine_chunks())).destinations
    return pa.table({"id": found["id"], "destination": pa.array(numbers, pa.int32())})


def _joined(by: str, chosen: str) -> str:
    """The joins that give each row of `t` the destination of its value, among those of a registered table."""
    same = f"t.{identifier(by)} IS NOT DISTINCT FROM divided.value"
    return f"JOIN divided ON {same} JOIN {chosen} ON {chosen}.id = divided.id"


def compare_shares(spark: SparkSession, sides: Sequence[Side]) -> dict[int, Compared]:
    """Compare the destinations with their shares of the source, by number."""
    found: defaultdict[int, Totals] = defaultdict(Totals)
    for row in collected(on_tasks(spark, _hands(spark, sides), _Ask(SUMS), SUMS)):
        found[row.oid].add(row)
    numbers = {number for side in sides for number in side.destinations}
    buckets = {number: found[number].buckets for number in numbers if found[number].differ}
    shown: Mapping[int, list[Difference]] = {}
    if buckets:
        again = [side for side in sides if side.destinations & buckets.keys()]
        shown = differences(on_tasks(spark, _hands(spark, again), _Ask(ROWS, buckets), ROWS))
    return {number: found[number].verdict(tuple(shown.get(number, ()))) for number in numbers}


def _hands(spark: SparkSession, sides: Sequence[Side]) -> list[tuple[Side, ...]]:
    return deal([(side, side.weight) for side in sides], 2 * spark.sparkContext.defaultParallelism)


@dataclass(frozen=True, slots=True)
class _Ask:
    """Runs one query over each side it is dealt, in a worker."""

    schema: pa.Schema
    buckets: Mapping[int, Sequence[int]] | None = None  # when given, rows of these; else sums

    def __call__(self, dealt: Sequence[Side]) -> Iterator[pa.RecordBatch]:
        for side in dealt:
            try:
                with side.reader.connect() as con:
                    yield from self._asked(con, side)
            except duckdb.Error as error:  # a file is gone, or its lake does not answer: the others can be compared
                yield self._message(side, error=str(error).splitlines()[0])

    def _asked(self, con: duckdb.DuckDBPyConnection, side: Side) -> Iterator[pa.RecordBatch]:
        rows = side.rows(con)
        if isinstance(side, DestinationSide) and self.buckets is None and (fault := side.fault(con)):
            yield self._message(side, fault=fault)
        if self.buckets is not None:
            con.register("differing", self._differing(side.destinations))
        query = side.shape.sums(rows) if self.buckets is None else side.shape.details(rows)
        for batch in con.execute(query).to_arrow_reader(65536):
            count, nothing = batch.num_rows, pa.nulls(batch.num_rows)
            lake = pa.repeat(isinstance(side, DestinationSide), count)
            values = [batch.column(0), lake, nothing, nothing, *batch.columns[1:]]
            arrays = [array.cast(each.type) for array, each in zip(values, self.schema, strict=True)]
            yield pa.record_batch(arrays, schema=self.schema)

    def _differing(self, numbers: frozenset[int]) -> pa.Table:
        pairs = [(number, bucket) for number in numbers for bucket in (self.buckets or {}).get(number, ())]
        return pa.table(
            {
                "destination": pa.array([number for number, _ in pairs], pa.int32()),
                "bucket": pa.array([bucket for _, bucket in pairs], pa.int32()),
            }
        )

    def _message(self, side: Side, **what: Any) -> pa.RecordBatch:
        lake = isinstance(side, DestinationSide)
        rows = [{"oid": number, "lake": lake, **what} for number in side.destinations]
        return pa.RecordBatch.from_pylist(rows, schema=self.schema)
