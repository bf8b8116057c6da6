"""What a lake holds and what a commit changes in it, as frozen, picklable facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.change import Position, TableName
from headwater.lake.counts import Counts
from headwater.lake.stream import P
from headwater.pickling import pickled_by_fields

__all__ = [
    "Advance",
    "Alteration",
    "ColumnStats",
    "DataFile",
    "DeleteFile",
    "Field",
    "FileDeletes",
    "InlinedEnds",
    "InlinedRows",
    "LakeTable",
    "LiveDeleteFile",
    "LiveFile",
    "NewTable",
    "PartitionKey",
    "Partitioning",
    "PlannedCommit",
    "RowNumbers",
    "SeenTable",
    "Snapshot",
    "TableChange",
    "TablePosition",
    "TableRef",
    "TableStats",
    "numbered",
]

RowNumbers = npt.NDArray[np.int64]  # row numbers in a data file, from 0
_BUCKET = re.compile(r"bucket\((\d+)\)")
TableRef = int | TableName  # a table that exists, by its id, or one that the same commit creates, by its name


def _nothing() -> RowNumbers:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of the whole lake, with the counters from which the next commit continues."""

    id: int
    schema_version: int
    next_catalog_id: int
    next_file_id: int


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Field:
    """A column. `id` is its Parquet field id, never reused in the table; `type` is spelled as in DuckLake.

    `initial_default` is the value that older files show for it, as `texts.text_of` spells it; None: NULL.
    """

    id: int
    name: str
    type: str
    nullable: bool = True
    children: tuple[Field, ...] = ()
    initial_default: str | None = None

    def __hash__(self) -> int:
        return hash((self.id, self.name))  # enough, and asked for very often


def numbered(columns: tuple[Field, ...], first: int = 1) -> tuple[Field, ...]:
    """The columns of a new table, or ones to add, with ids from `first` on, parents first as DuckLake gives them."""

    def number(fields: tuple[Field, ...], next_id: int) -> tuple[tuple[Field, ...], int]:
        done = []
        for each in fields:
            children, after = number(each.children, next_id + 1)
            done.append(replace(each, id=next_id, children=children))
            next_id = after
        return tuple(done), next_id

    return number(columns, first)[0]


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class PartitionKey:
    """What rows are partitioned by: a column, and its transform as the catalog spells it, `day` or `bucket(16)`."""

    column_id: int
    transform: str

    @property
    def buckets(self) -> int | None:
        found = _BUCKET.fullmatch(self.transform)
        return int(found[1]) if found else None


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Partitioning:
    """The keys that a table's rows are partitioned by now; files that were written under others keep their values."""

    id: int
    keys: tuple[PartitionKey, ...]


class TableStats(NamedTuple):
    """What the catalog counts of a table: rows that were ever written, the id of the next new row, bytes of files."""

    records: int
    next_row_id: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table of the lake. `path` is absolute and ends in `/`.

    `columns_since` is the snapshot that last changed its columns, if that was asked.
    """

    id: int
    schema: str
    name: str
    path: str
    columns: tuple[Field, ...]
    partitioning: Partitioning | None = None
    is_sorted: bool = False  # by another client
    columns_since: int | None = None
    stats: TableStats | None = None  # None: it never had a row

    @property
    def partition_keys(self) -> tuple[PartitionKey, ...]:
        return self.partitioning.keys if self.partitioning else ()


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class LiveDeleteFile:
    """The delete file a data file has now."""

    id: int
    path: str
    format: str
    begin_snapshot: int
    count: int


@pickled_by_fields
@dataclass(frozen=True, slots=True, eq=False)
class LiveFile:
    """A data file that is part of its table now, with everything that is deleted from it.

    `bounds` has, for the columns asked for, the lowest and highest value in DuckLake's text, None where unknown.
    `mapping_id` is set for files that other clients added without field ids; `names` has the names of the columns in
    such a file, by column id, and `in_path` the columns whose value is not in the file but in its path. `partition` are
    its values for the keys of the partitioning `partition_id`, if they were asked for.
    """

    id: int
    table_id: int
    path: str
    record_count: int
    row_id_start: int | None
    mapping_id: int | None = None
    delete_file: LiveDeleteFile | None = None
    inlined_positions: RowNumbers = field(default_factory=_nothing)
    inlined_snapshots: RowNumbers = field(default_factory=_nothing)
    bounds: Mapping[int, tuple[str | None, str | None]] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    in_path: frozenset[int] = frozenset()
    partition_id: int | None = None
    partition: tuple[str | None, ...] = ()

    @property
    def deleted_count(self) -> int:
        return len(self.inlined_positions) + (self.delete_file.count if self.delete_file else 0)


@dataclass(frozen=True, slots=True)
class TablePosition(Generic[P]):
    """How far a source table has come in this lake, its table here, and the sink's note on its columns (`mirrored`)."""

    table_id: int
    position: P
    mirrored: str | None = None
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class Advance:
    """Move a source table from `expected` (None: it was never here) to `new`; without a `mirrored` the old one stays.

    `counts` are added to those it has, of a new table to those in quarantine only.
    """

    table: TableRef
    expected: Position | None
    new: Position
    mirrored: str | None = None
    counts: Counts = field(default_factory=Counts)

    @property
    def is_idle(self) -> bool:
        """Whether nothing but the position changes."""
        return isinstance(self.table, int) and self.mirrored is None and self.counts == Counts()


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of one column of a data file. `min` and `max` are bounds, not always values; None where unknown."""

    column_id: int
    size: int
    values: int
    nulls: int
    min: str | None
    max: str | None
    contains_nan: bool | None


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file in its table's folder that a commit is to register. `path` is relative to the folder.

    `has_row_ids`: its rows carry the ids of the rows they replace; else the commit numbers them. `partition` has the
    text of its value for each partition key of the table, None for NULL.
    """

    path: str
    rows: int
    size: int
    footer_size: int
    stats: tuple[ColumnStats, ...] = ()
    has_row_ids: bool = False
    partition: tuple[str | None, ...] = ()


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file in its table's folder that a commit is to register.

    Every position in it carries the snapshot that deletes it, the lowest being `begin_snapshot` and the highest
    `partial_max`. `predicted` is the snapshot that the commit was expected to get, None if it deletes nothing by this
    file; a commit that gets another one writes the file again (`deletes.restamp`).
    """

    path: str
    count: int
    size: int
    footer_size: int
    begin_snapshot: int
    partial_max: int
    predicted: int | None = None


@pickled_by_fields
@dataclass(frozen=True, slots=True, eq=False)
class FileDeletes:
    """What a commit does to one live data file: rows deleted in the catalog, or by a delete file, or all of them.

    `seen_delete_file` and `seen_inlined` are the deletes it was planned on: others at commit time are a conflict.
    A `delete_file` replaces both. `ended` removes the file from the table, with its last rows.
    """

    data_file_id: int
    seen_delete_file: LiveDeleteFile | None
    seen_inlined: int
    inlined: RowNumbers = field(default_factory=_nothing)
    delete_file: DeleteFile | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table for a commit to create; made by `Lake.new_table`, so that files can be written to `path` before."""

    name: TableName
    uuid: str
    path: str
    columns: tuple[Field, ...]
    partition_keys: tuple[PartitionKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Alteration:
    """A table's columns from this snapshot on, in order, and its new name if it gets one.

    Columns are known by their ids: a new one (from `Lake.next_column_id` on) is added, a missing one dropped, and one
    with another name, type (see `evolution.promotable`) or nullability is changed.
    """

    table: int
    columns: tuple[Field, ...]
    name: TableName | None = None


@pickled_by_fields
@dataclass(frozen=True, slots=True, eq=False)
class InlinedRows:
    """Rows for the catalog itself: their columns, as it stores the values. A row without an id is a new one."""

    fields: tuple[Field, ...]
    values: Sequence[Sequence[object]]  # by column
    row_ids: Sequence[int | None]


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class InlinedEnds:
    """Rows in the catalog that end with a commit, by the table of the catalog that has them; without ids, all of it."""

    name: str
    rows: int
    row_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableChange:
    """Files and rows in, rows and files out. With `truncate`, all files and rows that the table has end."""

    table: TableRef
    data_files: tuple[DataFile, ...] = ()
    deletes: tuple[FileDeletes, ...] = ()
    truncate: bool = False
    inlined: tuple[InlinedRows, ...] = ()
    inlined_ends: tuple[InlinedEnds, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A table as a commit was planned on it, and the table of the catalog that takes its rows, if there is one."""

    table: LakeTable
    inlined: str | None


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    """One snapshot over any number of tables, planned on `base`, and the positions that it reaches.

    Tables are dropped first, so that new ones may take their names; then columns change; then rows do, and the files
    of `changes` are written under the new columns.
    """

    base: Snapshot
    source: str
    positions: Mapping[int, Advance] = field(default_factory=dict)
    new_tables: tuple[NewTable, ...] = ()
    changes: tuple[TableChange, ...] = ()
    author: str | None = None
    message: str | None = None
    extra_info: str | None = None
    alterations: tuple[Alteration, ...] = ()
    dropped: tuple[int, ...] = ()
    forgotten: tuple[int, ...] = ()  # OIDs of source tables whose positions are removed
    attempt: str | None = None  # the attempt that wrote the files
    noted: bool = True  # in the lake, by `Lake.begin`; else its caller has noted it elsewhere
    seen: Mapping[int, SeenTable] = field(default_factory=dict)  # some tables in `base`: they need not be asked for
