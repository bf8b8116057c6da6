"""Which Arrow and DuckLake type carries a PostgreSQL type. Types are met only at the two ends of the pipeline.

Text and bytes travel as Arrow's large types: 32-bit offsets would end at 2 GiB a batch, and Parquet cannot tell them
apart. A uuid travels as its 16 bytes. A type that is not in the table travels as the text PostgreSQL prints.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

__all__ = ["LakeType", "lake_type"]

MAX_PRECISION = 38  # digits in a decimal128, and in DuckDB's widest decimal

_NUMERIC = 1700
_TYPMOD_HEADER = 4  # PostgreSQL adds the size of a length word to the typmods of numeric and char(n)


@dataclass(frozen=True, slots=True)
class LakeType:
    """How a column travels (`arrow`) and what it is in the lake (`ducklake`). `pg` names what it is in the source."""

    pg: str
    arrow: pa.DataType
    ducklake: str

    @property
    def as_text(self) -> bool:
        """Is this PostgreSQL's text standing in for a type that has no place in the lake yet?"""
        return self.pg in ("numeric", "other") and self.ducklake == "varchar"


_FIXED = {
    16: LakeType("boolean", pa.bool_(), "boolean"),
    17: LakeType("bytea", pa.large_binary(), "blob"),
    20: LakeType("bigint", pa.int64(), "int64"),
    21: LakeType("smallint", pa.int16(), "int16"),
    23: LakeType("integer", pa.int32(), "int32"),
    25: LakeType("text", pa.large_string(), "varchar"),
    114: LakeType("json", pa.large_string(), "json"),
    700: LakeType("real", pa.float32(), "float32"),
    701: LakeType("double precision", pa.float64(), "float64"),
    1042: LakeType("character", pa.large_string(), "varchar"),  # char(n): the padding blanks are kept
    1043: LakeType("character varying", pa.large_string(), "varchar"),
    1082: LakeType("date", pa.date32(), "date"),
    1083: LakeType("time", pa.time64("us"), "time"),
    1114: LakeType("timestamp", pa.timestamp("us"), "timestamp"),
    1184: LakeType("timestamptz", pa.timestamp("us", "UTC"), "timestamptz"),
    2950: LakeType("uuid", pa.binary(16), "uuid"),
    3802: LakeType("jsonb", pa.large_string(), "json"),
}
_OTHER = LakeType("other", pa.large_string(), "varchar")
_WIDE_NUMERIC = LakeType("numeric", pa.large_string(), "varchar")


def lake_type(type_oid: int, typmod: int) -> LakeType:
    """The type that carries a column of PostgreSQL's type `type_oid` with modifier `typmod` (-1: none)."""
    if type_oid == _NUMERIC:
        return _numeric(typmod)
    return _FIXED.get(type_oid, _OTHER)


def _numeric(typmod: int) -> LakeType:
    if typmod < _TYPMOD_HEADER:
        return _WIDE_NUMERIC  # numeric without limits: up to 131072 digits before the point, 16383 behind
    precision = (typmod - _TYPMOD_HEADER) >> 16 & 0xFFFF
    scale = ((typmod - _TYPMOD_HEADER) & 0x7FF ^ 1024) - 1024  # eleven bits, signed
    if precision > MAX_PRECISION or not 0 <= scale <= precision:
        return _WIDE_NUMERIC
    return LakeType("numeric", pa.decimal128(precision, scale), f"decimal({precision},{scale})")
