"""Values of rows that are in the catalog itself: how DuckLake stores them there, by column."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headwater.ducklake.catalog import Dialect
from headwater.ducklake.model import Field
from headwater.ducklake.texts import text_of
from headwater.ducklake.writing import plain_type
from headwater.errors import TableError
from headwater.lake.casting import fitted
from headwater.lake.reading import connect
from headwater.lake.sqltext import identifier

__all__ = ["can_be_inlined", "column_type", "decoded", "encoded", "selected"]

MOST_PLAIN_SCALE = 6  # digits behind the point: of numbers that may have more, Arrow writes some as 1E-7
LONGEST_NAME = 63  # bytes of a column's name in PostgreSQL
SYSTEM_COLUMNS = ("row_id", "begin_snapshot", "end_snapshot")
_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_FLOATS = ("float32", "float64")
_BYTES = ("varchar", "json", "blob")
_MOMENTS = ("date", "time", "timestamp", "timestamptz")
_INLINED = {*_WHOLE, *_FLOATS, *_BYTES, *_MOMENTS, "boolean", "uint64", "uuid"}
_POSTGRES = {
    "boolean": "BOOLEAN",
    "int8": "SMALLINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "INTEGER",
    "uint16": "INTEGER",
    "uint32": "BIGINT",
    "float32": "REAL",
    "float64": "DOUBLE PRECISION",
    "varchar": "BYTEA",  # PostgreSQL's text knows no NUL
    "json": "BYTEA",
    "blob": "BYTEA",
    "uuid": "UUID",
    "time": "TIME",
}
_DUCKDB = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}


def can_be_inlined(field: Field) -> bool:
    """Whether DuckDB reads the column's values back exactly as they were; others are written to Parquet only."""
    if field.name.lower() in SYSTEM_COLUMNS or len(field.name.encode()) > LONGEST_NAME or "{" in field.name:
        return False
    return _has_a_text(field) and not (field.children and _innermost(field).type == "json")


def _has_a_text(field: Field) -> bool:
    innermost = _innermost(field).type
    return innermost in _INLINED or innermost.startswith("decimal(")


def _innermost(field: Field) -> Field:
    return _innermost(field.children[0]) if field.type == "list" else field


def column_type(field: Field, dialect: Dialect) -> str:
    """The type of the catalog's own column for it."""
    if dialect == "sqlite":
        return "BIGINT" if field.type in (*_WHOLE, "boolean") else "BLOB" if field.type == "blob" else "VARCHAR"
    return field.type if field.type.startswith("decimal(") else _POSTGRES.get(field.type, "VARCHAR")


# -- to the catalog


def encoded(rows: pa.Table, fields: Sequence[Field], dialect: Dialect) -> list[list[object]] | None:
    """The columns, each a list of values as the catalog is given them; None if it cannot hold one of the values."""
    found = [_encoded(_whole(rows[field.name], plain_type(field)), field, dialect) for field in fields]
    lists = [column for column, field in zip(found, fields, strict=True) if field.type == "list"]
    if dialect == "postgres" and any(isinstance(each, str) and "\0" in each for column in lists for each in column):
        return None
    return found


def _whole(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    array = fitted(column.combine_chunks(), type_)  # first: there may be a chunk for each of many tables
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _encoded(array: pa.Array, field: Field, dialect: Dialect) -> list[object]:
    if field.type in (*_WHOLE, "boolean", "blob"):
        return list(array.to_pylist())
    if field.type in ("varchar", "json"):
        return list(array.cast(pa.binary()).to_pylist() if dialect == "postgres" else array.to_pylist())
    return list(_texts(array, field))  # of a float, too: as a number in a statement, -0.0 would lose its sign


def _texts(array: pa.Array, field: Field) -> list[str | None]:
    """DuckDB's spelling of the values."""
    if field.type == "list":
        return _list_texts(array, field)
    if field.type in ("timestamp", "timestamptz") and _in_common_years(array):
        found = array.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()  # strftime is much slower
        return [each and f"{each}+00" for each in found] if field.type == "timestamptz" else list(found)
    if pa.types.is_decimal(array.type) and array.type.scale <= MOST_PLAIN_SCALE:
        return list(array.cast(pa.string()).to_pylist())
    if field.type == "boolean":
        return [None if each is None else str(each).lower() for each in array.to_pylist()]
    if field.type in _FLOATS:
        return [None if each is None else repr(each) for each in array.to_pylist()]
    return _by_value(array, partial(text_of, type_=field.type))


def _by_value(array: pa.Array, text: Callable[[pa.Scalar], str]) -> list[str | None]:
    return [text(each) if each.is_valid else None for each in array]


def _in_common_years(array: pa.Array) -> bool:
    """Whether all are of the years 1 to 9999, which Arrow spells as DuckDB does."""
    bounds = pc.min_max(array.cast(pa.int64()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    return low is None or (low >= -62_135_596_800_000_000 and high < 253_402_300_800_000_000)


def _list_texts(array: pa.Array, field: Field) -> list[str | None]:
    """Everything but numbers is quoted, inner lists too: DuckDB stumbles over brackets in texts that are not."""
    (element,) = field.children
    items = iter(_texts(array.flatten(), element))
    quoted = not (element.type in (*_WHOLE, *_FLOATS, "boolean", "uint64") or element.type.startswith("decimal("))
    found: list[str | None] = []
    for length in pc.list_value_length(array).to_pylist():
        inside = [_item(next(items), quoted=quoted) for _ in range(length or 0)]
        found.append(None if length is None else f"[{', '.join(inside)}]")
    return found


def _item(text: str | None, *, quoted: bool) -> str:
    if text is None:
        return "NULL"
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'" if quoted else text


# -- from the catalog


def selected(field: Field) -> str:
    """What to select of a column: as it is where a driver's value says it all, else its text."""
    name = identifier(field.name).replace("%", "%%")
    return name if field.type in (*_BYTES, *_WHOLE, "boolean") else f"CAST({name} AS TEXT)"


def decoded(values: Sequence[Sequence[Any]], fields: Sequence[Field]) -> list[pa.Array]:
    """The columns of rows as they were `selected`, in the types that the columns had then."""
    found = [_decoded(column, field) for column, field in zip(values, fields, strict=True)]
    open_ = [number for number, array in enumerate(found) if array is None]
    texts = _parsed([values[number] for number in open_], [fields[number] for number in open_])
    for number, array in zip(open_, texts, strict=True):
        found[number] = array
    return [array for array in found if array is not None]


def _decoded(values: Sequence[Any], field: Field) -> pa.Array | None:
    """The column, unless its texts are for DuckDB to read."""
    type_ = plain_type(field)
    if field.type in _WHOLE:
        return pa.array(values, pa.int64()).cast(type_)
    if field.type == "boolean":
        return pa.array([None if each is None else bool(each) for each in values], type_)
    if field.type == "blob":
        return pa.array(values, type_)
    if field.type in _BYTES:
        return pa.array([each.decode() if isinstance(each, bytes) else each for each in values], type_)
    if field.type == "uuid":
        return pa.array([None if each is None else uuid.UUID(each).bytes for each in values], type_)
    return None


def _parsed(values: Sequence[Sequence[str | None]], fields: Sequence[Field]) -> list[pa.Array]:
    """DuckDB wrote the texts, or would have written the same ones; DuckDB reads them."""
    if not fields:
        return []
    given = pa.table([pa.array(_strings(column), pa.string()) for column in values], names=_names(fields))
    casts = [f"CAST({name} AS {_sql_type(field)})" for name, field in zip(_names(fields), fields, strict=True)]
    try:
        with _duckdb().cursor() as con:
            con.register("rows", given)
            found = con.execute(f"SELECT {', '.join(casts)} FROM rows").to_arrow_table()
    except duckdb.Error as error:
        raise TableError(
            f"a row in the catalog cannot be read, not even by DuckDB: {' '.join(str(error).split())}",
            hint="another client wrote it: delete it there, set data_inlining_row_limit to 0, and insert it again",
        ) from error
    return [_whole(column, plain_type(field)) for column, field in zip(found.columns, fields, strict=True)]


def _names(fields: Sequence[Field]) -> list[str]:
    return [f"c{number}" for number in range(len(fields))]


def _strings(values: Sequence[Any]) -> list[str | None]:
    return [each.decode() if isinstance(each, bytes) else each for each in values]


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """One for the process: it takes a moment to start."""
    con = connect(threads=1)
    con.execute("SET arrow_lossless_conversion = true")  # else a uuid becomes a text
    return con


def _sql_type(field: Field) -> str:
    children = [_sql_type(each) for each in field.children]
    match field.type:
        case "list":
            return f"{children[0]}[]"
        case "map":
            return f"MAP({children[0]}, {children[1]})"
        case "struct":
            named = zip(field.children, children, strict=True)
            return f"STRUCT({', '.join(f'{identifier(each.name)} {type_}' for each, type_ in named)})"
    return _DUCKDB.get(field.type, field.type.upper())
