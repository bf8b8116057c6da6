"""A query's answer: each value as DuckDB prints it, or as JSON that loses nothing."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import duckdb

from headwater.lake.sqltext import identifier

__all__ = ["Answer", "answer", "explained"]

_WHOLE = {"tinyint", "smallint", "integer", "bigint", "hugeint"}
_WHOLE |= {f"u{name}" for name in _WHOLE}
_NUMBERS = _WHOLE | {"float", "double", "decimal", "bignum"}


class Answer(NamedTuple):
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    numeric: tuple[bool, ...]


def answer(con: duckdb.DuckDBPyConnection, sql: str, *, as_text: bool) -> Answer:
    """Run a query. DuckDB casts the values: Python has no infinity for dates, nor years past 9999 or before Christ.

    As text, a value is what DuckDB's shell prints, or None. Otherwise it is what JSON has for it, if that is exact.
    """
    asked = con.sql(sql)  # only bound so far
    kinds = asked.types
    casts = [_as_text(n) if as_text else _as_json(n, kind) for n, kind in enumerate(kinds, 1)]
    rows = con.execute(f"SELECT {', '.join(casts)} FROM (\n{sql}\n) AS answer").fetchall()
    numeric = tuple(kind.id in _NUMBERS for kind in kinds)
    return Answer(tuple(asked.columns), [tuple(map(_finite, row)) for row in rows], numeric)


def explained(con: duckdb.DuckDBPyConnection, statement: str) -> Answer:
    """Run an EXPLAIN, whose answer is text anyway."""
    asked = con.execute(statement)
    names = tuple(str(column[0]) for column in asked.description or ())
    return Answer(names, asked.fetchall(), tuple(False for _ in names))


def _as_text(place: int) -> str:
    return f"CAST(#{place} AS VARCHAR)"


def _as_json(place: int, kind: Any) -> str:
    # By way of its text: 0.1::REAL is 0.1 then, not 0.10000000149011612.
    return f"CAST(CAST(#{place} AS {_cast(kind, text=True)}) AS {_cast(kind, text=False)})"


def _cast(kind: Any, *, text: bool) -> str:
    """The type to cast to: lists and structs stay what they are, and so does in them what JSON can hold exactly."""
    match kind.id:
        case "list":
            return f"{_cast(_child(kind), text=text)}[]"
        case "array":
            return f"{_cast(_child(kind), text=text)}[{dict(kind.children)['size']}]"
        case "map":
            return f"MAP(VARCHAR, {_cast(dict(kind.children)['value'], text=text)})"
        case "struct" if all(name for name, _ in kind.children):
            return f"STRUCT({', '.join(f'{identifier(n)} {_cast(each, text=text)}' for n, each in kind.children)})"
        case "float" | "double" if not text:
            return "DOUBLE"
        case "boolean" if not text:
            return "BOOLEAN"
        case whole if whole in _WHOLE and not text:
            return str(kind)
        case _:
            return "VARCHAR"


def _child(kind: Any) -> Any:
    return dict(kind.children)["child"]


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN: these are text, as DuckDB prints it."""
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case list() | tuple():
            return [_finite(each) for each in value]
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case _:
            return value
