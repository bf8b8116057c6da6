"""Rows for people on a terminal, for files and pipes, and for programs: three renderings of the same thing."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["as_json", "as_text", "fitting", "print_table", "wrapped"]


def as_json(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """An array of objects, of values that JSON has. A name that comes again gets a number, as DuckDB does it."""
    names: dict[str, None] = {}
    for column in columns:
        candidates = (column, *(f"{column}_{n}" for n in range(1, len(columns))))
        names[next(name for name in candidates if name not in names)] = None
    return json.dumps([dict(zip(names, row, strict=True)) for row in rows], ensure_ascii=False, indent=2)


def as_text(columns: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[bool] | None = None) -> str:
    """Aligned columns, numbers to the right; the same on every terminal. Text may be `numeric`, too."""
    cells = [[_shown(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    right = numeric or _numeric(columns, rows)

    def line(texts: Sequence[str]) -> str:
        padded = [text.rjust(w) if r else text.ljust(w) for text, w, r in zip(texts, widths, right, strict=True)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *map(line, cells)])


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[bool] | None = None) -> None:
    """A table on a terminal, aligned text anywhere else."""
    console = Console()
    if not console.is_terminal:
        print(as_text(columns, rows, numeric), file=console.file)
        return
    table = Table()
    for column, right in zip(columns, numeric or _numeric(columns, rows), strict=True):
        table.add_column(Text(column), justify="right" if right else "left")
    for row in rows:
        table.add_row(*(Text(_shown(value), style="dim" if value is None else "") for value in row))
    console.print(table)


def fitting(columns: Mapping[str, Sequence[str]], width: int, dispensable: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns; while they do not fit, the next of the `dispensable` ones are left out."""
    lines = list(_aligned(columns))
    for left_out in dispensable:
        if max(map(len, lines)) <= width:
            break
        columns = {name: cells for name, cells in columns.items() if name not in left_out}
        lines = list(_aligned(columns))
    return lines


def wrapped(sentences: Iterable[str], width: int) -> Iterator[str]:
    """Each in as many lines as it needs; words that are longer than a line stay whole."""
    for each in sentences:
        yield from textwrap.wrap(each, width, subsequent_indent="    ", break_long_words=False)


def _aligned(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Numbers to the right, everything else to the left."""
    padded = []
    for name, cells in columns.items():
        width = max(map(len, (name, *cells)))
        right = name == "lag" or all(cell.replace(",", "").lstrip("-").isdigit() for cell in cells)
        padded.append([cell.rjust(width) if right else cell.ljust(width) for cell in (name, "-" * width, *cells)])
    return ("  ".join(row).rstrip() for row in zip(*padded, strict=True))


def _numeric(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[bool]:
    return [_is_numeric([row[index] for row in rows if row[index] is not None]) for index in range(len(columns))]


def _is_numeric(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool() | list() | dict():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value).replace("\n", "\\n")
