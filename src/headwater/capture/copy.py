"""Reading the first copy: a table cut into ranges of pages, each read by ADBC as Arrow in an exported snapshot.

Most types come in PostgreSQL's binary form and need no work. The exceptions were measured or are exactness:
numeric comes as text, because the server prints it faster than ADBC does; a type that travels as text is printed by
its output function, as pgoutput does (`::text` would add a netmask to an inet and take the padding off a char).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import adbc_driver_postgresql.dbapi as adbc
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headwater.change import Column, Relation, TableName
from headwater.decode import TEXT_SETTINGS, TIMESTAMP_END, Bad, Decoded, decode
from headwater.errors import TableError, Unreachable
from headwater.state.connect import connect
from headwater.types import LakeType, lake_type

__all__ = ["Range", "balanced", "ranges", "read_expressions", "read_range", "showing"]

_MOST_PAGES, _FEWEST_PAGES = 16_384, 128  # that one task reads: 128 MiB and 1 MiB of table
_TROUBLE = ("08", "53", "57")  # SQLSTATE classes that pass: connection, resources, an operator's shutdown


@dataclass(frozen=True, slots=True)
class Range:
    """Pages of a table, or of one partition of it, that one task reads. Without an end: to the end, however far."""

    oid: int
    table: TableName
    first_page: int
    end_page: int | None
    rows: int | None  # as the statistics have it; None: never analyzed


def ranges(conn: psycopg.Connection, oid: int, pages: int) -> list[Range]:
    """Cut a table, or the leaves of a partitioned one, into ranges of about `pages` pages; at least one per leaf."""
    found = conn.execute(_LEAVES, {"oid": oid}).fetchall()
    for _, schema, name, kind, _, _ in found:
        if kind not in "rp":
            raise TableError(
                f"{TableName(schema, name)} is not an ordinary table (relkind {kind!r})",
                hint="only ordinary and partitioned tables can be copied: remove it from the group",
            )
    if not found:
        raise TableError(f"no table has the OID {oid} any more", hint="it was dropped: remove it from the group")
    return [
        part
        for leaf, schema, name, kind, size, density in found
        if kind == "r"
        for part in _cut(Range(leaf, TableName(schema, name), 0, size, None), density, pages)
    ]


def balanced(conn: psycopg.Connection, oid: int, cores: int) -> list[Range]:
    """Cut a table so that every core has something to do, none waits long at the end, and no task reads too much."""
    parts = ranges(conn, oid, _MOST_PAGES)
    if len(parts) >= 4 * cores:
        return parts
    (size,) = conn.execute("SELECT pg_relation_size(%s) / current_setting('block_size')::int", (oid,)).fetchone() or (
        0,
    )
    return ranges(conn, oid, min(max(size // (4 * cores), _FEWEST_PAGES), _MOST_PAGES))


@contextmanager
def showing(url: str, snapshot: str) -> Iterator[psycopg.Connection]:
    """A connection in a transaction that sees an exported snapshot."""
    with closing(connect(url, application_name="headwater copy")) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot))
        yield connection


_LEAVES = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text,
       pg_relation_size(c.oid) / current_setting('block_size')::int,
       CASE WHEN c.reltuples >= 0 AND c.relpages > 0 THEN c.reltuples / c.relpages END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %(oid)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s::oid::regclass) WHERE isleaf)
ORDER BY c.oid
"""


def _cut(whole: Range, density: float | None, pages: int) -> Iterator[Range]:
    size = whole.end_page or 0
    for first in range(0, max(size, 1), pages):
        end = min(first + pages, size)
        rows = None if density is None else round((end - first) * density)
        # Pages may be added meanwhile, and VACUUM may not have counted the newest: the last range is open.
        yield Range(whole.oid, whole.table, first, end if end < size else None, rows)


def read_range(url: str, snapshot: str, relation: Relation, part: Range) -> Iterator[pa.RecordBatch]:
    """The rows of a range as the exported snapshot sees them, in exactly the Arrow types of `lake_type`."""
    for batch in read_expressions(url, snapshot, part, [_expression(column) for column in relation.columns]):
        yield _conform(batch, relation)


def read_expressions(
    url: str, snapshot: str, part: Range, expressions: Sequence[sql.Composable]
) -> Iterator[pa.RecordBatch]:
    """What PostgreSQL makes of these expressions for the rows of a range, as ADBC returns it."""
    with _translated(part.table), adbc.connect(url, autocommit=True) as conn, conn.cursor() as cursor:
        settings = sql.SQL(", ").join(
            sql.SQL("set_config({}, {}, false)").format(name, value) for name, value in TEXT_SETTINGS.items()
        )
        cursor.execute(_text(sql.SQL("SELECT {}").format(settings)))
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute(_text(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot)))
        _hold(cursor, part)
        cursor.execute(_select(expressions, part))
        yield from cursor.fetch_record_batch()


def _hold(cursor: adbc.Cursor, part: Range) -> None:
    """Keep the table as it is until we have read, and make sure that it is still what the snapshot saw.

    A table rewritten since (ALTER TABLE, TRUNCATE) looks empty to an older snapshot, without any error; after
    VACUUM FULL its rows stand on other pages. Our query of pg_class sees the old file, the function the present one.
    """
    table = sql.Identifier(*part.table)
    cursor.execute(_text(sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(table)))
    same_file = sql.SQL(
        "SELECT relfilenode = pg_relation_filenode(oid) FROM pg_class WHERE oid = {} AND oid = to_regclass({})"
    )
    cursor.execute(_text(same_file.format(part.oid, _text(table))))
    row = cursor.fetchone()
    if row is None or not row[0]:
        raise TableError(f"{part.table} was rewritten or renamed while it was being copied", hint="copy it again")


def _select(expressions: Sequence[sql.Composable], part: Range) -> str:
    query = sql.SQL("SELECT {} FROM ONLY {} WHERE ctid >= {}::tid").format(
        sql.SQL(", ").join(expressions),
        sql.Identifier(*part.table),
        f"({part.first_page},0)",
    )
    if part.end_page is not None:
        query += sql.SQL(" AND ctid < {}::tid").format(f"({part.end_page},0)")
    return _text(query)


def _expression(column: Column) -> sql.Composable:
    name, kind = sql.Identifier(column.name), lake_type(column.type_oid, column.typmod)
    if kind.pg == "numeric":
        return sql.SQL("{}::text").format(name)
    if kind.as_text:
        return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END").format(name)
    return name


def _text(query: sql.Composable) -> str:
    return query.as_string(None)


@contextmanager
def _translated(table: TableName) -> Iterator[None]:
    try:
        yield
    except adbc.Error as exc:
        if exc.sqlstate is None or exc.sqlstate[:2] in _TROUBLE:
            raise _unreachable(table, exc) from exc
        raise TableError(
            f"{table} cannot be copied: {exc}", hint="mend what PostgreSQL says; it is tried again"
        ) from exc
    except OSError as exc:  # from the middle of the stream, where ADBC has no SQLSTATE to give
        if "ERROR:" in str(exc):
            raise TableError(
                f"{table} cannot be copied: {exc}", hint="mend what PostgreSQL says; it is tried again"
            ) from exc
        raise _unreachable(table, exc) from exc


def _unreachable(table: TableName, exc: Exception) -> Unreachable:
    return Unreachable(f"the source went away while {table} was being copied: {exc}", hint="it is tried again")


# From what ADBC returns to exactly what `lake_type` promises ---------------------------------------------------------


def _conform(batch: pa.RecordBatch, relation: Relation) -> pa.RecordBatch:
    kinds = [lake_type(column.type_oid, column.typmod) for column in relation.columns]
    arrays = [
        _exact(array, kind).intact(column.name)
        for array, kind, column in zip(batch.columns, kinds, relation.columns, strict=True)
    ]
    schema = pa.schema(
        [pa.field(column.name, kind.arrow) for column, kind in zip(relation.columns, kinds, strict=True)]
    )
    return pa.record_batch(arrays, schema=schema)


def _exact(array: pa.Array, kind: LakeType) -> Decoded:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage  # uuid and json
    if pa.types.is_decimal(kind.arrow):
        return decode(array, kind)
    check = _CHECKS.get(kind.pg)
    return check(array) if check else Decoded(array.cast(kind.arrow))


# ADBC moves dates from PostgreSQL's epoch to Arrow's without a look: infinity, and the last thirty years of
# timestamp, wrap around to before the earliest moment PostgreSQL knows, 4714-11-24 BC.
_EPOCH_DAYS = 10_957
_EPOCH_US = _EPOCH_DAYS * 86_400_000_000
_FIRST_DAY = -2_440_588


def _date(array: pa.Array) -> Decoded:
    return _within(
        array, pa.int32(), _FIRST_DAY, 2**31 - 1, lambda days: _infinity(_wrapped(days - _EPOCH_DAYS, 32), 32)
    )


def _timestamp(array: pa.Array) -> Decoded:
    def printed(moment: int) -> str:
        since_2000 = _wrapped(moment - _EPOCH_US, 64)
        seconds, fraction = divmod(since_2000 + _EPOCH_US, 1_000_000)
        return _infinity(since_2000, 64) or f"{np.datetime64(seconds, 's')}.{fraction:06}".replace("T", " ")

    return _within(array, pa.int64(), _FIRST_DAY * 86_400_000_000, TIMESTAMP_END, printed)


def _time(array: pa.Array) -> Decoded:
    return _within(array, pa.int64(), 0, 86_400_000_000, lambda _: "24:00:00")


_CHECKS = {"date": _date, "timestamp": _timestamp, "timestamptz": _timestamp, "time": _time}


def _within(array: pa.Array, storage: pa.DataType, first: int, end: int, printed: Callable[[int], str]) -> Decoded:
    """Values from `first` up to `end` stand; the others are bad, and `printed` says how PostgreSQL prints them."""
    numbers = array.view(storage)
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or (first <= bounds["min"] and bounds["max"] < end):
        return Decoded(array)
    outside = pc.fill_null(pc.or_(pc.less(numbers, first), pc.greater_equal(numbers, end)), False)
    rows = np.flatnonzero(outside.to_numpy(zero_copy_only=False)).tolist()
    bad = tuple(Bad(row, printed(numbers[row].as_py())) for row in rows)
    return Decoded(pc.if_else(outside, pa.scalar(None, array.type), array), bad)


def _wrapped(number: int, bits: int) -> int:
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _infinity(number: int, bits: int) -> str:
    return {(1 << bits - 1) - 1: "infinity", -1 << bits - 1: "-infinity"}.get(number, "")
