"""Reading the first copy: a table cut into ranges of pages, each read by ADBC as Arrow in an exported snapshot.

Most types come in PostgreSQL's binary form and need no work. The exceptions were measured or are exactness:
numeric comes as text, because the server prints it faster than ADBC does; arrays, what travels as text, and what the
user wants in another type are printed by their output function, as pgoutput does, and read by the same `decode`
(`::text` would add a netmask to an inet and take the padding off a char).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import adbc_driver_postgresql.dbapi as adbc
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headwater.change import Column, Relation, TableName
from headwater.errors import TableError, Unreachable
from headwater.postgres.connect import connect, conninfo, translated
from headwater.postgres.settings import options, prepare
from headwater.values.decode import Bad, Decoded, decode
from headwater.values.moments import DAY_US, INFINITE_DAY, INFINITE_US
from headwater.values.types import LakeType, lake_type

__all__ = [
    "FEWEST_PAGES",
    "Done",
    "Range",
    "balanced",
    "files_of",
    "one_connection",
    "read_expressions",
    "read_range",
    "showing",
]

_MOST_PAGES, FEWEST_PAGES = 16_384, 128  # that one task reads: 128 MiB and 1 MiB of table
Done = Mapping[int, Collection[tuple[int, int | None]]]  # by the table that has them: first pages, and ends

_NO_SNAPSHOT = ("22023", "42704", "55000")
_TROUBLE = ("08", "53", "57")  # SQLSTATE classes that pass: connection, resources, an operator's shutdown


@dataclass(frozen=True, slots=True)
class Range:
    """Pages of a table, or of one partition of it, that one task reads. Without an end: to the end, however far."""

    oid: int
    table: TableName
    first_page: int
    end_page: int | None
    rows: int | None  # as the statistics have it; None: never analyzed

    @property
    def weight(self) -> int:
        """How much there is to read, as far as that is known; one more than its pages, since none is free."""
        return 1 + (self.end_page - self.first_page if self.end_page is not None else FEWEST_PAGES)


def balanced(
    conn: psycopg.Connection, oid: int, cores: int, done: Done = MappingProxyType({}), fewest: int = FEWEST_PAGES
) -> list[Range]:
    """Cut a table so that every core has something to do, none waits long at the end, and no task reads too much.

    A partitioned table is cut leaf by leaf: at least one range each. Pages that are `done` are left out.
    """
    leaves = _leaves(conn, oid)
    share = sum(leaf.pages for leaf in leaves) // (4 * cores)
    pages = min(max(share, fewest), _MOST_PAGES)
    return [part for leaf in leaves for part in _cut(leaf, pages, done.get(leaf.oid, ()))]


def files_of(conn: psycopg.Connection, oid: int) -> dict[int, int]:
    """The file that holds the pages of a table, or of each partition of it: after a rewrite it is another one."""
    found = conn.execute(
        "SELECT c.oid::bigint, c.relfilenode::bigint FROM pg_class c WHERE c.relkind = 'r' AND (c.oid = %(oid)s"
        " OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s::oid::regclass) WHERE isleaf)) ORDER BY 1",
        {"oid": oid},
    )
    return dict(found.fetchall())


@contextmanager
def showing(url: str, snapshot: str) -> Iterator[psycopg.Connection]:
    """A connection in a transaction that sees an exported snapshot."""
    with closing(connect(url, application_name="headwater copy")) as connection, translated(url):
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot))
        except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject) as exc:
            raise Unreachable(
                f"the exported snapshot {snapshot!r} is gone: {exc}",
                hint="its connection was lost: `headwater run` exports another one by itself",
            ) from exc
        yield connection


class _Leaf(NamedTuple):
    """A table with rows of its own."""

    oid: int
    table: TableName
    pages: int
    density: float | None  # rows a page, as the statistics have it


_LEAVES = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text,
       pg_relation_size(c.oid) / current_setting('block_size')::int,
       CASE WHEN c.reltuples >= 0 AND c.relpages > 0 THEN c.reltuples / c.relpages END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %(oid)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s::oid::regclass) WHERE isleaf)
ORDER BY c.oid
"""


def _leaves(conn: psycopg.Connection, oid: int) -> list[_Leaf]:
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
        _Leaf(leaf, TableName(schema, name), pages, density)
        for leaf, schema, name, kind, pages, density in found
        if kind == "r"
    ]


def _cut(leaf: _Leaf, pages: int, done: Collection[tuple[int, int | None]]) -> Iterator[Range]:
    """The ranges of a table between those that are done."""
    begin = 0
    for first, end in sorted(done, key=lambda each: each[0]):
        yield from _pieces(leaf, begin, first, pages)
        if end is None:
            return  # whatever was added since is in the log
        begin = end
    # Pages may be added meanwhile, and VACUUM may not have counted the newest: the last range is open.
    *others, last = _pieces(leaf, begin, max(leaf.pages, begin + 1), pages)
    yield from others
    yield replace(last, end_page=None)


def _pieces(leaf: _Leaf, begin: int, end: int, pages: int) -> Iterator[Range]:
    for first in range(begin, end, pages):
        last = min(first + pages, end)
        rows = None if leaf.density is None else round((min(last, max(leaf.pages, first)) - first) * leaf.density)
        yield Range(leaf.oid, leaf.table, first, last, rows)


def read_range(
    url: str,
    snapshot: str,
    relation: Relation,
    part: Range,
    kinds: Sequence[LakeType],
    where: str | None = None,
    extra: Sequence[sql.Composable] = (),
) -> Iterator[tuple[pa.RecordBatch, dict[int, tuple[Bad, ...]]]]:
    """The rows of a range as the exported snapshot sees them, in exactly the Arrow types of `kinds`.

    Beside each batch, by the column's index, the values its types cannot hold; in the batch these are null.
    `where` is a condition in SQL that rows must meet. What `extra` expressions give comes after the relation's columns.
    """
    read = [_Read.of(column, kind) for column, kind in zip(relation.columns, kinds, strict=True)]
    for batch in read_expressions(url, snapshot, part, [*(each.expression for each in read), *extra], where):
        yield _conform(batch, read)


def read_expressions(
    url: str, snapshot: str, part: Range, expressions: Sequence[sql.Composable], where: str | None = None
) -> Iterator[pa.RecordBatch]:
    """What PostgreSQL makes of these expressions for the rows of a range, as ADBC returns it."""
    with _translated(part.table), _connected(url) as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute(_text(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot)))
        _hold(cursor, part)
        cursor.execute(_select(expressions, part, where))
        yield from cursor.fetch_record_batch()


class _Kept(threading.local):
    """The connections that this thread keeps from one range to the next, by what they are to; None: it keeps none."""

    connections: dict[str, adbc.Connection] | None = None


_kept = _Kept()


@contextmanager
def one_connection() -> Iterator[None]:
    """Inside, this thread reads one range after the other over the same connection.

    ADBC looks at all types of a database when it connects, and every table is one: that takes longer than to read a
    small table.
    """
    _kept.connections = {}
    try:
        yield
    finally:
        for each in _kept.connections.values():
            each.close()
        _kept.connections = None


@contextmanager
def _connected(url: str) -> Iterator[adbc.Cursor]:
    """A cursor outside of any transaction."""
    kept = _kept.connections
    connection = (kept and kept.pop(url, None)) or _connection(url)
    try:
        with connection.cursor() as cursor:
            yield cursor
            if kept is not None:
                cursor.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    if kept is None:
        connection.close()
    else:
        kept[url] = connection


def _connection(url: str) -> adbc.Connection:
    # ADBC reads the names of types when it connects, as the settings of that moment print them.
    connection = adbc.connect(conninfo(url, options=options(), application_name="headwater copy"), autocommit=True)
    try:
        with connection.cursor() as cursor:
            prepare(cursor.execute, as_stored=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _hold(cursor: adbc.Cursor, part: Range) -> None:
    """Keep the table as it is until we have read, and make sure that it is still what the snapshot saw.

    A table rewritten since (ALTER TABLE, TRUNCATE) looks empty to an older snapshot, without any error; after
    VACUUM FULL its rows stand on other pages. And a query finds columns by the names that they have now, which may
    have gone from one column to another. Our query of the catalog sees what was there then, its functions what is now.
    """
    table = sql.Identifier(*part.table)
    cursor.execute(_text(sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(table)))
    same = sql.SQL(
        "SELECT relfilenode = pg_relation_filenode(oid), NOT EXISTS (SELECT FROM pg_attribute"
        " WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attname::text IS DISTINCT FROM"
        " (pg_identify_object_as_address('pg_class'::regclass, attrelid, attnum)).object_names[3])"
        " FROM pg_class c WHERE oid = {} AND oid = to_regclass({})"
    )
    cursor.execute(_text(same.format(part.oid, _text(table))))
    file, columns = cursor.fetchone() or (False, False)
    if not file:
        raise TableError(f"{part.table} was rewritten or renamed while it was being copied", hint="copy it again")
    if not columns:
        raise TableError(f"columns of {part.table} were renamed or dropped while it was copied", hint="copy it again")


def _select(expressions: Sequence[sql.Composable], part: Range, where: str | None) -> str:
    query = sql.SQL("SELECT {} FROM ONLY {} WHERE ctid >= {}::tid").format(
        sql.SQL(", ").join(expressions),
        sql.Identifier(*part.table),
        f"({part.first_page},0)",
    )
    if part.end_page is not None:
        query += sql.SQL(" AND ctid < {}::tid").format(f"({part.end_page},0)")
    if where is not None:
        query += sql.SQL(f" AND ({where})")  # as the catalog spells a publication's row filter
    return _text(query)


def _text(query: sql.Composable) -> str:
    return query.as_string(None)


@contextmanager
def _translated(table: TableName) -> Iterator[None]:
    try:
        yield
    except adbc.Error as exc:
        if exc.sqlstate is None or exc.sqlstate[:2] in _TROUBLE:
            raise _unreachable(table, exc) from exc
        if exc.sqlstate in _NO_SNAPSHOT and "snapshot" in str(exc):
            raise Unreachable(
                f"the snapshot in which {table} was being copied is gone: {exc}",
                hint="its connection was lost: `headwater run` goes on with the copy in another one by itself",
            ) from exc
        raise TableError(
            f"{table} cannot be copied: {exc}",
            hint="fix what PostgreSQL reports; `headwater run` tries again by itself",
        ) from exc
    except OSError as exc:  # from the middle of the stream, where ADBC has no SQLSTATE to give
        if "ERROR:" in str(exc):
            raise TableError(
                f"{table} cannot be copied: {exc}",
                hint="fix what PostgreSQL reports; `headwater run` tries again by itself",
            ) from exc
        raise _unreachable(table, exc) from exc


def _unreachable(table: TableName, exc: Exception) -> Unreachable:
    return Unreachable(
        f"the source went away while {table} was being copied: {exc}", hint="`headwater run` tries again by itself"
    )


# From what ADBC returns to exactly the types that were asked for ------------------------------------------------------

_BINARY = (  # what ADBC reads in binary
    *("boolean", "smallint", "integer", "bigint", "real", "double precision", "bytea", "uuid", "json", "jsonb"),
    *("text", "character", "character varying", "date", "time", "timestamp", "timestamptz"),
)


@dataclass(frozen=True, slots=True)
class _Read:
    """How a column is read: what PostgreSQL is asked for, in binary or printed, and the type to make of it."""

    name: str
    kind: LakeType
    printed: bool
    expression: sql.Composable

    @classmethod
    def of(cls, column: Column, kind: LakeType) -> _Read:
        name = sql.Identifier(column.name)
        if kind.pg in _BINARY and kind.logical == lake_type(column).logical:
            return cls(column.name, kind, False, name)
        if kind.pg == "numeric":
            return cls(column.name, kind, True, sql.SQL("{}::text").format(name))
        text = sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END")
        return cls(column.name, kind, True, text.format(name))

    def exact(self, array: pa.Array) -> Decoded:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage  # uuid and json
        if self.printed or pa.types.is_large_string(self.kind.arrow):
            return decode(array, self.kind)
        if pa.types.is_date(self.kind.arrow) or pa.types.is_timestamp(self.kind.arrow):
            return _moments(array, self.kind)
        if self.kind.calendar_only:
            return _times(array.cast(self.kind.arrow))
        return Decoded(array.cast(self.kind.arrow))


def _conform(batch: pa.RecordBatch, read: Sequence[_Read]) -> tuple[pa.RecordBatch, dict[int, tuple[Bad, ...]]]:
    found = [each.exact(array) for each, array in zip(read, batch.columns, strict=False)]
    extra = batch.columns[len(read) :]
    names = [*(each.name for each in read), *(f"extra{index}" for index in range(len(extra)))]
    bad = {index: decoded.bad for index, decoded in enumerate(found) if decoded.bad}
    return pa.record_batch([*(decoded.array for decoded in found), *extra], names), bad


# ADBC moves dates from PostgreSQL's epoch to Arrow's without a look: infinity, and the last thirty years of
# timestamp, wrap around to before the earliest moment PostgreSQL knows, 4714-11-24 BC.
_EPOCH_DAYS = 10_957
_FIRST_DAY = -2_440_588


def _moments(array: pa.Array, kind: LakeType) -> Decoded:
    """Dates and timestamps, with infinity as DuckDB's number for it or as bad; so are moments that wrapped around."""
    days = pa.types.is_date(kind.arrow)
    unit, end = (1, INFINITE_DAY) if days else (DAY_US, INFINITE_US)
    numbers = array.view(pa.int32() if days else pa.int64())
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or (bounds["min"] >= _FIRST_DAY * unit and bounds["max"] < end):
        return Decoded(array)
    moments = pc.fill_null(numbers, 0).to_numpy().copy()
    edge = np.iinfo(moments.dtype)
    since_2000 = moments - moments.dtype.type(_EPOCH_DAYS * unit)  # wraps back
    future, past = since_2000 == edge.max, since_2000 == edge.min
    wrapped = ((moments < _FIRST_DAY * unit) | (moments == end)) & ~(future | past)
    moments[future], moments[past] = end, -end
    unfit = wrapped | future | past if kind.calendar_only else wrapped
    infinite = {edge.max: "infinity", edge.min: "-infinity"}
    texts = (infinite.get(number) or _printed(number, kind) for number in since_2000[unfit].tolist())
    bad = tuple(map(Bad, np.flatnonzero(unfit).tolist(), texts))
    found = pa.array(moments, mask=unfit | numbers.is_null().to_numpy(zero_copy_only=False))
    return Decoded(found.view(array.type), bad)


def _times(array: pa.Array) -> Decoded:
    """Times of a day that ends before 24:00:00."""
    late = pc.equal(array.view(pa.int64()), DAY_US)
    if not pc.any(late).as_py():
        return Decoded(array)
    bad = tuple(
        Bad(int(row), "24:00:00") for row in np.flatnonzero(late.fill_null(False).to_numpy(zero_copy_only=False))
    )
    return Decoded(pc.if_else(late, None, array), bad)


def _printed(since_2000: int, kind: LakeType) -> str:
    """A timestamp of the last thirty years, as PostgreSQL prints it."""
    seconds, fraction = divmod(since_2000 + _EPOCH_DAYS * DAY_US, 1_000_000)
    clock = f"{np.datetime64(seconds, 's')}".replace("T", " ")
    zone = "+00" if kind.pg == "timestamptz" else ""
    return clock + f".{fraction:06}".rstrip("0").rstrip(".") + zone
