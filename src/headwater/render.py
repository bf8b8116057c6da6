"""Rows for people on a terminal, for files and pipes, and for programs: three renderings of the same thing."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["as_json", "as_text", "print_table"]


def as_json(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """An array of objects. What JSON has no exact type for (decimals, times, bytes) is a string."""
    return json.dumps([dict(zip(columns, map(_plain, row), strict=True)) for row in rows], ensure_ascii=False, indent=2)


def as_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns, numbers to the right; the same on every terminal."""
    cells = [[_shown(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    right = [_is_numeric(rows, index) for index in range(len(columns))]

    def line(texts: Sequence[str]) -> str:
        padded = [text.rjust(w) if r else text.ljust(w) for text, w, r in zip(texts, widths, right, strict=True)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *map(line, cells)])


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], console: Console) -> None:
    """A table on a terminal, aligned text anywhere else."""
    if not console.is_terminal:
        print(as_text(columns, rows), file=console.file)
        return
    table = Table()
    for index, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if _is_numeric(rows, index) else "left")
    for row in rows:
        table.add_row(*(Text(_shown(value), style="dim" if value is None else "") for value in row))
    console.print(table)


def _is_numeric(rows: Sequence[Sequence[Any]], index: int) -> bool:
    values = [row[index] for row in rows if row[index] is not None]
    return bool(values) and all(isinstance(v, int | float | Decimal) and not isinstance(v, bool) for v in values)


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    plain = _plain(value)
    return (plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)).replace("\n", "\\n")


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return "\\x" + bytes(value).hex()
        case datetime():
            return value.isoformat(" ")
        case date() | time():
            return value.isoformat()
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:  # Decimal, UUID, timedelta
            return str(value)
