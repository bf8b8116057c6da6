"""One value, two spellings: how verify asks PostgreSQL and DuckDB for a column so that equal values compare equal.

Neither side goes through Headwater's own decoding: PostgreSQL prints, and DuckDB reads what PostgreSQL printed.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.types import LakeType

__all__ = ["PRINTED", "Spelling", "spelling"]


@dataclass(frozen=True, slots=True)
class Spelling:
    """SQL templates over `{}`, a quoted column: PostgreSQL's text, DuckDB's reading of it, DuckDB's lake column."""

    postgres: str
    read: str
    lake: str


# As the type's output function prints it: `::text` takes the padding off a char(n) and adds a netmask to an inet.
PRINTED = "CASE WHEN {} IS DISTINCT FROM NULL THEN format('%s', {}) END"
_TEXT = Spelling(PRINTED, "{}", "CAST({} AS VARCHAR)")
# As numbers, because the two print years before Christ and past 9999 differently.
_MICROSECONDS = Spelling("(extract(epoch FROM {}) * 1000000)::bigint::text", "CAST({} AS BIGINT)", "epoch_us({})")
_BY_TYPE = {
    "int16": Spelling("{}::text", "CAST({} AS BIGINT)", "CAST({} AS BIGINT)"),
    "int32": Spelling("{}::text", "CAST({} AS BIGINT)", "CAST({} AS BIGINT)"),
    "int64": Spelling("{}::text", "CAST({} AS BIGINT)", "CAST({} AS BIGINT)"),
    "boolean": Spelling("{}::text", "CAST({} AS BOOLEAN)", "{}"),
    "float32": Spelling("{}::text", "CAST({} AS FLOAT)", "{}"),
    "float64": Spelling("{}::text", "CAST({} AS DOUBLE)", "{}"),
    "time": Spelling("{}::text", "CAST({} AS TIME)", "{}"),
    "uuid": Spelling("{}::text", "CAST({} AS UUID)", "{}"),
    "date": Spelling("({} - date '1970-01-01')::text", "CAST({} AS BIGINT)", "CAST({} - DATE '1970-01-01' AS BIGINT)"),
    "timestamp": _MICROSECONDS,
    "timestamptz": _MICROSECONDS,
    "blob": Spelling("encode({}, 'hex')", "{}", "lower(hex({}))"),
}


def spelling(kind: LakeType) -> Spelling:
    """How to compare a column of this type."""
    if kind.ducklake.startswith("decimal"):
        return Spelling("{}::text", f"CAST({{}} AS {kind.ducklake})", "{}")
    return _BY_TYPE.get(kind.ducklake, _TEXT)
