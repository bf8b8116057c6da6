"""What a lake in memory holds: tables made of files that never change, and each group's positions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from headwater.change import Relation, TableName
from headwater.errors import TableError
from headwater.lake.counts import Counts
from headwater.lake.mirrored import MirroredColumns
from headwater.lake.stream import P

__all__ = ["File", "MemoryColumn", "MemoryContents", "MemoryLake", "MemoryNames", "MemoryStanding", "MemoryTable"]


@dataclass(frozen=True, slots=True)
class MemoryColumn:
    """A column of a table; `default` is what rows from before it show."""

    id: int
    name: str
    type: pa.DataType
    default: Any = None


@dataclass(frozen=True, slots=True)
class File:
    """Rows that were written together; their columns are named by the ids that they had then."""

    id: int
    rows: pa.Table
    row_ids: pa.Array
    deleted: frozenset[int] = frozenset()  # positions

    def shown(self, columns: tuple[MemoryColumn, ...]) -> pa.Table:
        """All rows, deleted ones too, with these columns."""
        arrays = [self._column(column) for column in columns]
        return pa.table(arrays, names=[column.name for column in columns])

    def _column(self, column: MemoryColumn) -> pa.ChunkedArray | pa.Array:
        if str(column.id) in self.rows.schema.names:
            return self.rows[str(column.id)].cast(column.type)
        return pa.repeat(pa.scalar(column.default, column.type), self.rows.num_rows)

    def alive(self) -> pa.Array:
        at = np.setdiff1d(np.arange(self.rows.num_rows), np.array(sorted(self.deleted), np.int64))
        return pa.array(at, pa.int64())


@dataclass(frozen=True, slots=True)
class MemoryTable:
    id: int
    name: TableName
    columns: tuple[MemoryColumn, ...]
    files: Mapping[int, File] = field(default_factory=dict)
    next_row_id: int = 0
    next_column_id: int = 1

    def appended(self, file_id: int, rows: pa.Table, row_ids: pa.Array | None) -> MemoryTable:
        """The table with one more file; rows without ids get new ones. Columns it lacks are null."""
        ids, next_id = row_ids, self.next_row_id
        if ids is None:
            ids, next_id = pa.array(np.arange(next_id, next_id + rows.num_rows), pa.int64()), next_id + rows.num_rows
        names = [column for column in self.columns if column.name in rows.schema.names]
        stored = pa.table([rows[each.name].cast(each.type) for each in names], names=[str(each.id) for each in names])
        return replace(self, files={**self.files, file_id: File(file_id, stored, ids)}, next_row_id=next_id)

    def rows(self) -> pa.Table:
        shown = [file.shown(self.columns).take(file.alive()) for file in self.files.values()]
        empty = pa.schema([pa.field(column.name, column.type) for column in self.columns]).empty_table()
        return pa.concat_tables([empty, *shown])


@dataclass(frozen=True, slots=True)
class MemoryStanding(Generic[P]):
    """Implements `headwater.lake.sink.Standing`."""

    oid: int
    table: MemoryTable
    position: P
    mirrored: MirroredColumns
    counts: Counts
    copy: str = ""  # which has made it

    @property
    def name(self) -> TableName:
        return self.table.name

    def check_writable(self) -> None:
        """No other client writes here."""

    def same_key(self, relation: Relation) -> bool:
        return self.mirrored.same_key(relation)


@dataclass(frozen=True, slots=True)
class MemoryContents:
    """One snapshot of the lake."""

    id: int = 0
    tables: Mapping[int, MemoryTable] = field(default_factory=dict)
    standings: Mapping[str, Mapping[int, MemoryStanding[Any]]] = field(default_factory=dict)  # by source and OID
    next_id: int = 1  # of a table or a file

    def named(self, name: TableName) -> MemoryTable | None:
        return next((table for table in self.tables.values() if table.name == name), None)

    def standing(self, source: str) -> dict[int, MemoryStanding[Any]]:
        found = self.standings.get(source, {})
        return {
            oid: replace(each, table=self.tables[each.table.id])
            for oid, each in found.items()
            if each.table.id in self.tables
        }


class MemoryLake:
    """Several sinks may share it; a commit sees everything that was committed before."""

    def __init__(self) -> None:
        self.contents = MemoryContents()
        self.snapshots = [self.contents]  # by their ids
        self._lock = threading.Lock()

    def commit(self, change: Callable[[MemoryContents], MemoryContents]) -> int:
        """Make the next snapshot of the newest one, or nothing if `change` raises; return its id."""
        with self._lock:
            self.contents = replace(change(self.contents), id=self.contents.id + 1)
            self.snapshots.append(self.contents)
            return self.contents.id

    def rows(self, name: TableName) -> list[dict[str, Any]]:
        """A table's rows, in no order."""
        table = self.contents.named(name)
        assert table is not None, f"there is no table {name}"
        found: list[dict[str, Any]] = table.rows().to_pylist()
        return found


class MemoryNames:
    """Implements `headwater.lake.sink.LakeNames`."""

    def __init__(self, taken: set[TableName]) -> None:
        self._taken = taken

    def take(self, name: TableName) -> None:
        if name in self._taken:
            raise TableError(f"the lake has another table or view {str(name)!r} already")
        self._taken.add(name)
