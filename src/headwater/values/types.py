"""Which Arrow type and which logical type carry a PostgreSQL type. Only the two ends of the pipeline know types.

Text and bytes travel as Arrow's large types: 32-bit offsets would limit a batch to 2 GiB, and Parquet stores
both alike. A uuid travels as its 16 bytes. A type that is not in the table travels as the text that PostgreSQL prints,
which loses nothing; so does a column for which the user asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from headwater.change import BaseType, Column
from headwater.errors import ConfigError
from headwater.pickling import pickled_by_fields
from headwater.values.moments import is_moment

__all__ = ["MAX_PRECISION", "LakeType", "Logical", "lake_type", "lake_types"]

MAX_PRECISION = 38  # digits in a decimal128, and in DuckDB's widest decimal
FREE_SCALE = 18  # decimals of a numeric without limits

_NUMERIC, _INT2VECTOR, _OIDVECTOR, _BOX = 1700, 22, 30, 603
_TYPMOD_HEADER = 4  # PostgreSQL adds the size of a length word to the typmods of numeric and char(n)


Logical = Literal[
    "boolean",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "decimal",
    "string",
    "json",
    "binary",
    "uuid",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "list",
    "struct",
    "map",
]


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class LakeType:
    """What carries a column: the Arrow type it travels in, and the logical type that a lake stores.

    Each lake spells logical types in its own way (`ducklake.types`, `iceberg.types`); a decimal takes its digits from
    `arrow`. `pg` names the type in the source. A list has an element: another list if the array has more dimensions.
    Structs and maps, which only lakes have, have `fields`; those of a map are its key and its value. `delimiter`
    separates the elements in PostgreSQL's text. A `calendar_only` date or time is one of calendar and clock alone:
    infinity and 24:00:00 are none.
    """

    pg: str
    arrow: pa.DataType
    logical: Logical
    element: LakeType | None = None
    delimiter: str = ","
    calendar_only: bool = False
    fields: tuple[tuple[str, LakeType], ...] = ()

    def __hash__(self) -> int:
        """Of the names alone: Arrow spells out a type to hash it, and every table of a batch asks for that."""
        return hash((self.pg, self.logical))

    @property
    def nested(self) -> bool:
        return self.element is not None or bool(self.fields)

    @property
    def leaf(self) -> LakeType:
        """What the innermost lists hold; of a type that is not a list, the type itself."""
        return self if self.element is None else self.element.leaf

    @property
    def depth(self) -> int:
        """How many lists are nested; 0: not a list."""
        return 0 if self.element is None else 1 + self.element.depth

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.element}[]"
        if self.fields:
            return f"{self.logical}({', '.join(f'{name} {kind}' for name, kind in self.fields)})"
        return f"decimal({self.arrow.precision},{self.arrow.scale})" if self.logical == "decimal" else self.logical


_FIXED = {
    16: LakeType("boolean", pa.bool_(), "boolean"),
    17: LakeType("bytea", pa.large_binary(), "binary"),
    20: LakeType("bigint", pa.int64(), "int64"),
    21: LakeType("smallint", pa.int16(), "int16"),
    23: LakeType("integer", pa.int32(), "int32"),
    25: LakeType("text", pa.large_string(), "string"),
    26: LakeType("oid", pa.uint32(), "uint32"),
    28: LakeType("xid", pa.uint32(), "uint32"),
    29: LakeType("cid", pa.uint32(), "uint32"),
    114: LakeType("json", pa.large_string(), "json"),
    700: LakeType("real", pa.float32(), "float32"),
    701: LakeType("double precision", pa.float64(), "float64"),
    1042: LakeType("character", pa.large_string(), "string"),  # char(n): the padding blanks are kept
    1043: LakeType("character varying", pa.large_string(), "string"),
    1082: LakeType("date", pa.date32(), "date"),
    1083: LakeType("time", pa.time64("us"), "time"),
    1114: LakeType("timestamp", pa.timestamp("us"), "timestamp"),
    1184: LakeType("timestamptz", pa.timestamp("us", "UTC"), "timestamptz"),
    2950: LakeType("uuid", pa.binary(16), "uuid"),
    3802: LakeType("jsonb", pa.large_string(), "json"),
    5069: LakeType("xid8", pa.uint64(), "uint64"),
}
_OTHER = LakeType("other", pa.large_string(), "string")
_WHOLE = ("smallint", "integer", "bigint", "oid", "xid", "cid", "xid8")
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_MAY_BE = {  # besides varchar, which any type may be
    "decimal(p,s)": (*_WHOLE, "numeric"),
    "double": (*_WHOLE, "numeric", "real", "double precision"),
    "json": ("text", "character varying", "json", "jsonb"),
}


def lake_type(column: Column, asked: str | None = None, *, calendar_only: bool = False) -> LakeType:
    """The type that carries a column. `asked`, if the user asks: varchar, decimal(p,s), double or json, or [] of it.

    ConfigError if the column's type cannot be turned into that.
    """
    base = _base(column)
    natural = _numeric(base.typmod) if base.oid == _NUMERIC else _FIXED.get(base.oid, _OTHER)
    if calendar_only and is_moment(natural.arrow):
        natural = replace(natural, calendar_only=True)
    if asked is None:
        return _listed(natural, base)
    if asked == "varchar":  # of an array too: its whole text
        return _as_text(_OTHER if base.dims else natural)
    brackets = "[]" * base.dims
    wish = asked.removesuffix(brackets)
    if asked != wish + brackets or "[]" in wish:
        raise _refused(column, asked, f"it is an array declared {brackets}" if brackets else "it is not an array")
    return _listed(_turned(natural, wish, column, asked), base)


def lake_types(columns: Iterable[Column], asked: Mapping[str, str], *, calendar_only: bool) -> dict[str, LakeType]:
    """The types that carry these columns, by their names; `asked` are the user's wishes, `calendar_only` the lake's."""
    return {each.name: lake_type(each, asked.get(each.name), calendar_only=calendar_only) for each in columns}


def _base(column: Column) -> BaseType:
    if column.base is None or column.type_oid in (_INT2VECTOR, _OIDVECTOR):  # these two only look like arrays
        return BaseType(column.type_oid, column.typmod, 0, "")
    return column.base


def _numeric(typmod: int) -> LakeType:
    if typmod < _TYPMOD_HEADER:  # without limits: up to 131072 digits before the point, 16383 behind
        return _decimal("numeric", MAX_PRECISION, FREE_SCALE)
    precision = (typmod - _TYPMOD_HEADER) >> 16 & 0xFFFF
    scale = ((typmod - _TYPMOD_HEADER) & 0x7FF ^ 1024) - 1024  # eleven bits, signed
    if scale < 0:  # numeric(5,-2): hundreds, seven digits of them
        precision, scale = precision - scale, 0
    precision = max(precision, scale)  # numeric(2,4): at most 0.0099
    if precision > MAX_PRECISION:
        return _as_text(_decimal("numeric", MAX_PRECISION, 0))
    return _decimal("numeric", precision, scale)


def _decimal(pg: str, precision: int, scale: int) -> LakeType:
    return LakeType(pg, pa.decimal128(precision, scale), "decimal")


def _as_text(kind: LakeType) -> LakeType:
    return LakeType(kind.pg, pa.large_string(), "string")


def _listed(kind: LakeType, base: BaseType) -> LakeType:
    delimiter = ";" if base.oid == _BOX else base.delimiter
    for _ in range(base.dims):
        kind = LakeType("array", pa.list_(pa.field("element", kind.arrow)), "list", kind, delimiter)
    return kind


def _turned(kind: LakeType, wish: str, column: Column, asked: str) -> LakeType:
    """A type that is not a list, turned into what the user asks for."""
    decimal = _DECIMAL.fullmatch(wish)
    sort = "decimal(p,s)" if decimal else wish
    if sort == "varchar":
        return _as_text(kind)
    if sort not in _MAY_BE:
        raise _refused(column, asked, "Headwater knows no such type")
    if kind.pg not in _MAY_BE[sort]:
        raise _refused(column, asked, "its type is not of that sort")
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2] or 0)
        if not (1 <= precision <= MAX_PRECISION and scale <= precision):
            raise _refused(column, asked, f"a decimal has at most {MAX_PRECISION} digits")
        return _decimal(kind.pg, precision, scale)
    if sort == "double":
        return LakeType(kind.pg, pa.float64(), "float64")
    return LakeType(kind.pg, pa.large_string(), "json")


def _refused(column: Column, asked: str, why: str) -> ConfigError:
    base = _base(column)
    spelled, brackets = f" ({base.name})" if base.name else "", "[]" * base.dims
    numbers = f"for a number decimal(p,s){brackets} or double{brackets}"
    return ConfigError(
        f"column {column.name!r}{spelled} cannot be {asked!r} in the lake: {why}",
        hint=f"under `types:` ask for varchar, {numbers}, for text json{brackets}",
    )
