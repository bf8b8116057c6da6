"""Rows on their way into a lake's data files: how many make a file, and which columns they have there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

__all__ = ["FILE_ROWS", "Load", "completed"]

FILE_ROWS = 1_000_000  # a data file is closed at whichever comes first
FILE_BYTES = 256 << 20
DIVIDED_BYTES = 64 << 20  # of rows that are held before they are divided into partitions, however many these are


@dataclass(slots=True)
class Load:
    """Rows that are held until they are enough for a file.

    A load that is going to be divided into partitions has as many rows as memory allows.
    """

    partitioned: bool
    tables: list[pa.Table] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        rows, size = sum(each.num_rows for each in self.tables), sum(each.nbytes for each in self.tables)
        most_rows, most_bytes = (sys.maxsize, DIVIDED_BYTES) if self.partitioned else (FILE_ROWS, FILE_BYTES)
        return bool(rows >= most_rows or size >= most_bytes)

    def __bool__(self) -> bool:
        return any(each.num_rows for each in self.tables)

    def unload(self) -> pa.Table:
        """All of it; nothing is held after that."""
        whole = pa.concat_tables(self.tables)
        self.tables.clear()
        return whole


def completed(table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    """The table with nulls in columns that another client has added to the lake's table."""
    there = set(table.schema.names)
    for name, kind in types.items():
        if name not in there:
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
    return table
