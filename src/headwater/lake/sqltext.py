"""Names and text in SQL, as DuckDB reads it."""

from __future__ import annotations

__all__ = ["identifier", "literal"]


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
