"""A data file over its whole life, and every row that was deleted from it, as the catalog knows them."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyroaring import BitMap

from headwater.ducklake.contents import stored_columns
from headwater.ducklake.model import Field, RowNumbers
from headwater.ducklake.writing import SNAPSHOT_ID, SNAPSHOT_ID_FIELD
from headwater.errors import Outdated, TableError
from headwater.feed.dating import DeleteLog
from headwater.feed.spans import NEVER, Snapshots, Span
from headwater.files import inside
from headwater.lake.parquet import opened, read_group

__all__ = ["StoredDeletes", "StoredFile", "outdated"]

_MADE = Field(SNAPSHOT_ID_FIELD, SNAPSHOT_ID, "int64")
_VECTOR_MAGIC = 0x6439D3D1  # of a deletion vector, read as a little-endian number


def _nothing() -> RowNumbers:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class StoredDeletes:
    """A delete file, valid in the snapshots [begin, end). If it is partial, each of its rows has a snapshot of its own.

    `count` is how many rows it lists. `since` is the first snapshot after the last retained one before `begin`. A file
    that was registered before the span asked about has no `log`: none of its deletes is in the span. `made` is the
    snapshot that made all rows of the data file, if it was one: the log does not name deletes of that snapshot itself.
    """

    path: str
    format: str
    count: int
    begin: int
    end: int | None
    partial_max: int | None
    since: int
    log: DeleteLog | None
    made: int | None = None

    @property
    def new(self) -> bool:
        return self.log is not None

    def read(self, files: fs.FileSystem) -> tuple[RowNumbers, Snapshots]:
        """The numbers of the deleted rows, and the first snapshot without each.

        A file that does not say so may repeat deletes of an older one, which only expired snapshots showed. Then they
        count as early as they can be: a row with the same key that was inserted afterwards must not go with them.
        """
        rows, snapshots = self._puffin(files) if self.format == "puffin" else self._parquet(files)
        hidden = snapshots < (NEVER if self.end is None else self.end)
        return rows[hidden], snapshots[hidden]

    def _parquet(self, files: fs.FileSystem) -> tuple[RowNumbers, Snapshots]:
        with files.open_input_file(inside(self.path)) as source:
            file = pq.ParquetFile(source)
            _, position, *more = file.schema_arrow.names  # the first is the data file's path
            table = file.read(columns=[position, *(name for name in more if name == SNAPSHOT_ID)])
        rows = _numbers(table.column(position))
        if SNAPSHOT_ID not in table.column_names:
            return rows, np.full(len(rows), self.since, np.int64)
        snapshots = np.maximum(_numbers(table.column(SNAPSHOT_ID)), self.begin)
        if self.log is None:
            return rows, snapshots
        return rows, np.where(snapshots == self.made, snapshots, self.log.dated(snapshots))

    def _puffin(self, files: fs.FileSystem) -> tuple[RowNumbers, Snapshots]:
        with files.open_input_file(inside(self.path)) as source:
            rows = _vector(source.read(), self.path)
        return rows, np.full(len(rows), self.since, np.int64)


def _numbers(column: pa.ChunkedArray) -> RowNumbers:
    return np.asarray(column.to_numpy(), np.int64)


def _vector(blob: bytes, path: str) -> RowNumbers:
    """The rows of a deletion vector, as Iceberg's Puffin specification describes the blob `deletion-vector-v1`."""
    magic, bitmaps = struct.unpack_from("<iq", blob, 4)
    if magic != _VECTOR_MAGIC:
        raise TableError(f"{path!r} is not a deletion vector", hint="restore the file, or seed the destinations again")
    at, found = 16, [_nothing()]
    for _ in range(bitmaps):
        (high,) = struct.unpack_from("<i", blob, at)
        bitmap = BitMap.deserialize(blob[at + 4 :])
        at += 4 + len(bitmap.serialize())
        found.append(np.array(bitmap, np.int64) | high << 32)
    return np.sort(np.concatenate(found))


@dataclass(frozen=True, slots=True, eq=False)
class StoredFile:
    """A data file, part of its table in the snapshots [begin, end), with what was deleted from it.

    If it is partial, each of its rows has the snapshot that made it, and `partial_max` is the newest of them.
    """

    id: int
    path: str
    rows: int
    size: int
    begin: int
    end: int | None = None
    partial_max: int | None = None
    mapping_id: int | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    in_path: frozenset[int] = frozenset()
    delete_files: tuple[StoredDeletes, ...] = ()
    inlined_rows: RowNumbers = field(default_factory=_nothing)
    inlined_snapshots: Snapshots = field(default_factory=_nothing)

    def may_make_rows_at(self, snapshot: int) -> bool:
        return self.begin <= snapshot <= (self.begin if self.partial_max is None else self.partial_max)

    def makes_rows_in(self, span: Span) -> bool:
        """Whether it may have rows that were made in the span."""
        if self.partial_max is None:
            return span.holds(self.begin) and self.begin not in span.quiet
        return self.begin <= span.upto and self.partial_max > span.after

    def ends_rows_in(self, span: Span) -> bool:
        """Whether its end, and with it that of all its rows, is a change of the span."""
        return span.holds(self.end) and self.end not in span.quiet

    def deletes_rows_in(self, span: Span) -> bool:
        """Whether single rows of it may have been deleted in the span."""
        inlined = bool(np.any(self.inlined_snapshots > span.after))
        return inlined or any(each.new for each in self.delete_files)

    def events_in(self, span: Span) -> int:
        """How many events the span can have of it, at most."""
        made = self.rows if self.makes_rows_in(span) else 0
        if self.ends_rows_in(span):
            return made + self.rows
        return made + (min(self.rows, self._deletes_in(span)) if self.deletes_rows_in(span) else 0)

    def _deletes_in(self, span: Span) -> int:
        listed = sum(each.count for each in self.delete_files if each.new)
        return listed + int(np.count_nonzero(self.inlined_snapshots > span.after))

    @property
    def row_size(self) -> int:
        return self.size // max(self.rows, 1)

    @property
    def rows_before_end(self) -> int:
        """The rows that its end deletes."""
        last = [each.count for each in self.delete_files if each.end is None or each.end == self.end]
        return self.rows - sum(last) - int(np.count_nonzero(self.inlined_snapshots != self.end))

    def weight_in(self, span: Span) -> tuple[int, int]:
        """How many rows the partial ones of its files have at most in the span, and their bytes."""
        made = self.rows if self.partial_max is not None and self.makes_rows_in(span) else 0
        rows = made + sum(each.count for each in self.delete_files if each.new and each.partial_max is not None)
        return rows, rows * self.row_size

    def partial_counts(self, files: fs.FileSystem) -> Iterator[tuple[int, int]]:
        """Snapshots, and how many rows the partial ones of its files say they made or deleted."""
        if self.partial_max is not None:
            yield from self.made_counts(files)
        for each in self.delete_files:
            if each.new and each.partial_max is not None:
                with outdated(each.path):
                    yield from _counts(each.read(files)[1])

    def made_counts(self, files: fs.FileSystem) -> Iterable[tuple[int, int]]:
        """The snapshots that made its rows, and how many each made."""
        if self.partial_max is None:
            return [(self.begin, self.rows)]
        with outdated(self.path):
            return _made(files, self)

    def made(self, parquet: pq.ParquetFile, group: int) -> Snapshots:
        """The snapshot that made each row of a row group."""
        begin = np.full(parquet.metadata.row_group(group).num_rows, self.begin, np.int64)
        if self.partial_max is None:
            return begin
        (snapshots,) = read_group(parquet, group, stored_columns(parquet, self, [_MADE]))
        return np.maximum(begin, np.asarray(snapshots.to_numpy(), np.int64))

    def deleted(self, files: fs.FileSystem) -> tuple[RowNumbers, Snapshots]:
        """The numbers of the rows that were deleted, in order, and the first snapshot without each."""
        found: list[tuple[Any, Any]] = [each.read(files) for each in self.delete_files]
        found.append((self.inlined_rows, self.inlined_snapshots))
        rows, snapshots = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.lexsort((snapshots, rows))
        rows, first = np.unique(rows[order], return_index=True)
        return rows, snapshots[order][first]


@contextmanager
def outdated(path: str) -> Iterator[None]:
    """Reading a file that others may merge with others, and clean up."""
    try:
        yield
    except FileNotFoundError as error:
        raise Outdated(
            f"{path!r}, or a delete file of it, is no longer there",
            hint="it was merged and cleaned up meanwhile: plan again; if it stays so, the source lake has lost a file",
        ) from error


def _made(files: fs.FileSystem, file: StoredFile) -> list[tuple[int, int]]:
    found = Counter[int]()
    with opened(files, file.path) as parquet:
        for group in range(parquet.num_row_groups):
            found.update(dict(_counts(file.made(parquet, group))))
    return list(found.items())


def _counts(snapshots: Snapshots) -> list[tuple[int, int]]:
    found, counts = np.unique(snapshots, return_counts=True)
    return list(zip(found.tolist(), counts.tolist(), strict=True))
