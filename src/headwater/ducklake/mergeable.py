"""Which data files of a table can be merged, and which of them with each other.

A merged file takes the place of older ones in every snapshot, also for those that look back. So it must have each
column that a retained snapshot can show of its rows, in the type of that time: only files are merged that were written
under the same columns. A column's name may change; and what happened to the columns before the oldest retained snapshot
no longer matters, so that files of different ages come together once the snapshots between them have expired.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from headwater.ducklake import reading
from headwater.ducklake.attempts import attempt_of
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.model import Field, LakeTable, LiveFile
from headwater.ducklake.writing import arrow_type
from headwater.errors import TableError
from headwater.lake.packing import packed

__all__ = [
    "Bin",
    "Epochs",
    "MergeableFile",
    "bins_of",
    "group_of",
    "mergeable_files",
    "oldest_snapshot",
    "readable",
    "writable",
]


@dataclass(frozen=True, slots=True, eq=False)
class MergeableFile:
    """A data file. `columns` are those that it must keep; `low` is the lowest value of its leading key column.

    If it has rows of several snapshots, `partial_max` is the newest of them. From the snapshot `end` on, it is no
    longer part of the table.
    """

    live: LiveFile
    size: int
    begin: int
    partial_max: int | None
    columns: tuple[Field, ...]
    low: str | None = None
    end: int | None = None

    @property
    def path(self) -> str:
        return self.live.path

    @property
    def rows(self) -> int:
        return self.live.record_count

    @property
    def deleted(self) -> int:
        return 0 if self.end is not None else min(self.rows, self.live.deleted_count)


@dataclass(frozen=True, slots=True, eq=False)
class Bin:
    """Files of one partition that become one. `below` is their folder in that of the table, ending in `/`, or empty.

    Rows that were deleted in the snapshot `oldest` or before are no longer needed.
    """

    files: tuple[MergeableFile, ...]
    below: str
    oldest: int

    @property
    def ended(self) -> bool:
        """Whether only older snapshots show them."""
        return self.files[0].end is not None

    @property
    def columns(self) -> tuple[Field, ...]:
        return self.files[0].columns

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)


def bins_of(files: Sequence[MergeableFile], table: LakeTable, key: Sequence[Field], oldest: int) -> list[Bin]:
    """What is worth merging; files with neighbouring keys next to each other."""
    found = packed(files, lambda each: group_of(table, each), lambda each: _lowest(each.low, key))
    return [Bin(each, _below(table, each[0]), oldest) for _, each in found]


def group_of(table: LakeTable, file: MergeableFile) -> Hashable:
    """What files that are merged must have in common."""
    ended = file.end is not None
    return _below(table, file), file.live.partition_id, file.live.partition, _kept_by(file.columns), ended


def mergeable_files(
    tx: Transaction, data_path: str, table: LakeTable, key: Sequence[Field], oldest: int
) -> list[MergeableFile]:
    """The live files that can be merged at all.

    Left alone are files that name their columns (`mapping_id`), are elsewhere, or have a column of a type that we do
    not write; and those whose deletes another client has put into a file: it may say a wrong snapshot for them
    (extension 1.5.5), of which the feed takes care only as long as the file stays as it is.
    """
    newest, leading = reading.newest_snapshot(tx).id, [each.id for each in key[:1]]
    live = reading.live_files(tx, data_path, [table.id], newest, {table.id: leading}, [table.id])
    stored = {
        row[0]: row[1:]
        for row in tx.rows(
            "SELECT data_file_id, file_size_bytes, begin_snapshot, partial_max FROM ducklake_data_file"
            " WHERE table_id = %s AND end_snapshot IS NULL AND file_format = 'parquet' AND encryption_key IS NULL",
            table.id,
        )
    }
    odd = _with_older_delete_files(tx, table.id)
    odd |= {id_ for id_, times in Counter(each.id for each in live).items() if times > 1}  # two delete files at once
    epochs = Epochs(tx, data_path, table.id)
    found = []
    for each in live:
        if each.id in stored and each.id not in odd and readable(each, table):
            size, begin, partial_max = stored[each.id]
            columns = epochs.columns(max(partial_max or begin, oldest))
            if columns is not None:
                low = next((each.bounds[id_][0] for id_ in leading if id_ in each.bounds), None)
                found.append(MergeableFile(each, size, begin, partial_max, columns, low))
    return found


def oldest_snapshot(tx: Transaction) -> int:
    ((oldest,),) = tx.rows("SELECT min(snapshot_id) FROM ducklake_snapshot")
    return int(oldest)


def readable(file: LiveFile, table: LakeTable) -> bool:
    """Whether we know how to read it, and when its rows were deleted."""
    ours = file.delete_file is None or (file.delete_file.format == "parquet" and attempt_of(file.delete_file.path))
    return bool(ours) and file.mapping_id is None and file.path.startswith(table.path)


def _with_older_delete_files(tx: Transaction, table_id: int) -> set[int]:
    """Files that have had several delete files, one after the other."""
    found = tx.rows(
        "SELECT DISTINCT data_file_id FROM ducklake_delete_file WHERE table_id = %s AND end_snapshot IS NOT NULL",
        table_id,
    )
    return {id_ for (id_,) in found}


class Epochs:
    """A table's columns over time."""

    def __init__(self, tx: Transaction, data_path: str, table_id: int) -> None:
        self._tx, self._data_path, self._table_id = tx, data_path, table_id
        found = tx.rows("SELECT begin_snapshot, end_snapshot FROM ducklake_column WHERE table_id = %s", table_id)
        self._starts = sorted({at for row in found for at in row if at is not None})
        self._known: dict[int, tuple[Field, ...] | None] = {}

    def columns(self, snapshot: int) -> tuple[Field, ...] | None:
        """Those of a snapshot; None if we do not write such."""
        place = bisect_right(self._starts, snapshot) - 1
        if place not in self._known:
            table = reading.table_at(self._tx, self._data_path, self._table_id, self._starts[max(place, 0)])
            self._known[place] = table.columns if table and all(map(writable, table.columns)) else None
        return self._known[place]


def writable(field: Field) -> bool:
    """Whether we write columns of its type."""
    try:
        arrow_type(field)
    except TableError:
        return False
    return True


def _kept_by(fields: Sequence[Field]) -> tuple[Hashable, ...]:
    """What a file's columns are to it: everything but the names."""
    return tuple((each.id, each.type, _kept_by(each.children)) for each in fields)


def _below(table: LakeTable, file: MergeableFile) -> str:
    folder, slash, _ = file.path.removeprefix(table.path).rpartition("/")
    return folder + slash


def _lowest(low: str | None, key: Sequence[Field]) -> tuple[bool, int, str]:
    if low is None:
        return False, 0, ""
    return (True, int(low), "") if key[0].type.lstrip("u").startswith("int") else (True, 0, low)
