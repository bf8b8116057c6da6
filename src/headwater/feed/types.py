"""From the columns of a source lake to what carries them to destinations."""

from __future__ import annotations

import re

import pyarrow as pa

from headwater.ducklake.model import Field
from headwater.ducklake.texts import value_of
from headwater.ducklake.writing import arrow_type, plain_type
from headwater.errors import TableError
from headwater.values.types import LakeType

__all__ = ["Field", "condition_type", "lake_type", "postgres_text"]

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TYPES = {
    "boolean": LakeType("boolean", pa.bool_(), "boolean"),
    "int8": LakeType("tinyint", pa.int8(), "int8"),
    "int16": LakeType("smallint", pa.int16(), "int16"),
    "int32": LakeType("integer", pa.int32(), "int32"),
    "int64": LakeType("bigint", pa.int64(), "int64"),
    "uint8": LakeType("utinyint", pa.uint8(), "uint8"),
    "uint16": LakeType("usmallint", pa.uint16(), "uint16"),
    "uint32": LakeType("uinteger", pa.uint32(), "uint32"),
    "uint64": LakeType("ubigint", pa.uint64(), "uint64"),
    "float32": LakeType("float", pa.float32(), "float32"),
    "float64": LakeType("double", pa.float64(), "float64"),
    "varchar": LakeType("varchar", pa.large_string(), "string"),
    "json": LakeType("json", pa.large_string(), "json"),
    "blob": LakeType("blob", pa.large_binary(), "binary"),
    "uuid": LakeType("uuid", pa.binary(16), "uuid"),
    "date": LakeType("date", pa.date32(), "date"),
    "time": LakeType("time", pa.time64("us"), "time"),
    "timestamp": LakeType("timestamp", pa.timestamp("us"), "timestamp"),
    "timestamptz": LakeType("timestamptz", pa.timestamp("us", "UTC"), "timestamptz"),
}


def lake_type(field: Field) -> LakeType:
    """What carries a column; TableError if nothing does."""
    found = _lake_type(field)
    if found is None:
        raise TableError(
            f"column {field.name!r} has the type {_spelled(field)!r}, which a route cannot carry",
            hint=f"leave it out: `exclude: [{field.name}]`",
        )
    return found


def _lake_type(field: Field) -> LakeType | None:
    parts = [(each.name, _lake_type(each)) for each in field.children]
    carried = tuple((name, kind) for name, kind in parts if kind is not None)
    if len(carried) != len(parts):
        return None
    match field.type:
        case "list":
            ((_, element),) = carried
            return LakeType("list", pa.list_(pa.field("element", element.arrow)), "list", element)
        case "struct":
            arrow = pa.struct([pa.field(name, kind.arrow) for name, kind in carried])
            return LakeType("struct", arrow, "struct", fields=carried)
        case "map":
            (_, key), (_, value) = carried
            arrow = pa.map_(key.arrow, value.arrow)
            return LakeType("map", arrow, "map", fields=(("key", key), ("value", value)))
    if decimal := _DECIMAL.fullmatch(field.type):
        return LakeType("decimal", pa.decimal128(int(decimal[1]), int(decimal[2])), "decimal")
    return _TYPES.get(field.type)


def _spelled(field: Field) -> str:
    """The type as people know it, with the types of its parts."""
    parts = [_spelled(each) for each in field.children]
    match field.type:
        case "list":
            return f"{parts[0]}[]"
        case "struct":
            return (
                f"struct({', '.join(f'{each.name} {part}' for each, part in zip(field.children, parts, strict=True))})"
            )
        case "map":
            return f"map({', '.join(parts)})"
    return field.type


def condition_type(field: Field) -> pa.DataType | None:
    """The type in which DuckDB knows the column's values in a condition; None if they cannot be read."""
    return None if _lake_type(field) is None else arrow_type(field)


def postgres_text(field: Field) -> str | None:
    """What rows show that are older than the column, as PostgreSQL would print it; None: NULL."""
    shown = field.initial_default
    if shown is None or field.type not in ("boolean", "blob"):
        return shown
    value = value_of(shown, field.type, plain_type(field)).as_py()
    return f"\\x{value.hex()}" if field.type == "blob" else "t" if value else "f"
