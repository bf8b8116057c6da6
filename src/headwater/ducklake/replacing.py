"""Merged files put in place of the old ones, in one snapshot of the lake: its rows are those of the one before it.

The new files are part of the table in the same snapshots as the old ones were, so the catalog forgets these at once.
They stay on disk for a while, for those who are reading them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headwater import failpoints
from headwater.ducklake import attempts, reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.flushing import InlinedBin, Moved, inlined_state
from headwater.ducklake.mergeable import Bin, MergeableFile
from headwater.ducklake.model import LakeTable, LiveFile, RowNumbers, Snapshot
from headwater.ducklake.versions import VersionsFile
from headwater.lake.sqltext import identifier

__all__ = ["NothingLeft", "Replacement", "replace_files", "schedule_deletion"]

_OF_A_FILE = (
    "ducklake_data_file",
    "ducklake_file_column_stats",
    "ducklake_file_variant_stats",
    "ducklake_file_partition_value",
    "ducklake_delete_file",
)


@dataclass(frozen=True, slots=True, eq=False)
class Replacement:
    """What is in a bin, and the files that have its rows now.

    Of the rows in the catalog that have ended, only those in `moved` have; None: all.
    `late` has, for some of the files by their numbers, rows in them that were deleted meanwhile, and in which snapshot;
    only if the catalog has a table for them.
    """

    bin: Bin | InlinedBin
    files: tuple[VersionsFile, ...]
    moved: Moved | None = None
    late: Mapping[int, tuple[RowNumbers, RowNumbers]] = field(default_factory=dict)

    @property
    def left_behind(self) -> int:
        """How many rows stay in the catalog."""
        if self.moved is None or not isinstance(self.bin, InlinedBin):
            return 0
        return self.bin.state.ended - len(self.moved)

    @property
    def old(self) -> tuple[MergeableFile, ...]:
        return self.bin.files if isinstance(self.bin, Bin) else ()


class NothingLeft(Exception):
    """Others have changed all of the files meanwhile."""


def replace_files(
    tx: Transaction, data_path: str, table: LakeTable, attempt: str, planned: Sequence[Replacement]
) -> list[Replacement]:
    """Write those replacements into an open transaction whose old files are as they were; NothingLeft: none is.

    Whoever commits first wins: a delivery does not wait for us, and one that was planned before is planned again.
    """
    newest = reading.newest_snapshot(tx)
    ids = sum(1 + (file.deletes is not None) for each in planned for file in each.files)
    # First of all: its primary key is the lock that serialises all writers of the lake, DuckDB's included.
    tx.send(
        "INSERT INTO ducklake_snapshot(snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)"
        " VALUES (%s, {now}, %s, %s, %s)",
        newest.id + 1,
        newest.schema_version,
        newest.next_catalog_id,
        newest.next_file_id + max(1, ids),  # at least one, since readers cache statistics by the next id
    )
    valid = _still_valid(tx, table.id, planned)
    if not valid:
        raise NothingLeft
    attempts.land(tx, attempt, noted=True)
    old = [file.live for each in valid for file in each.old]
    _forget(tx, data_path, table.id, old)
    _forget_inlined(tx, valid)
    _insert(tx, table.id, newest, valid)
    _correct_stats(tx, table.id, valid)
    kinds = dict.fromkeys("merge_adjacent" if each.old else "inline_flush" for each in valid)
    done = ",".join(f"{kind}:{table.id}" for kind in kinds), "headwater", f"maintenance of {table.name}"
    tx.insert(
        "ducklake_snapshot_changes", "snapshot_id, changes_made, author, commit_message", [(newest.id + 1, *done)]
    )
    failpoints.hit("maintain.before-commit")
    return valid


def _still_valid(tx: Transaction, table_id: int, planned: Sequence[Replacement]) -> list[Replacement]:
    """Those whose files are what they were, with the same deletes, or whose rows in the catalog are."""
    files = [file.live for each in planned for file in each.old]
    now = {
        id_: (end, deletes)
        for id_, end, deletes in tx.rows(
            "SELECT f.data_file_id, f.end_snapshot, d.delete_file_id FROM ducklake_data_file f"
            " LEFT JOIN ducklake_delete_file d ON d.data_file_id = f.data_file_id"
            " AND coalesce(d.end_snapshot, -1) = coalesce(f.end_snapshot, -1) WHERE f.data_file_id {among}",
            tx.ids(each.id for each in files),
        )
    }
    inlined = reading.inlined_delete_counts(tx, [table_id])

    def unchanged(file: MergeableFile) -> bool:
        live = file.live
        seen = file.end, (live.delete_file.id if live.delete_file else None)
        return now.get(live.id) == seen and inlined.get(live.id, 0) == len(live.inlined_positions)

    names = tx.existing({each.bin.table.name for each in planned if isinstance(each.bin, InlinedBin)})

    def valid(each: Replacement) -> bool:
        if isinstance(each.bin, Bin):
            return all(unchanged(file) for file in each.bin.files)
        name = each.bin.table.name
        return bool(each.files) and name in names and inlined_state(tx, name) == each.bin.state

    return [each for each in planned if valid(each)]


def _forget(tx: Transaction, data_path: str, table_id: int, files: Sequence[LiveFile]) -> None:
    ids = tx.ids(each.id for each in files)
    deletes = [(each.delete_file.id, each.delete_file.path) for each in files if each.delete_file is not None]
    schedule_deletion(tx, data_path, [*((each.id, each.path) for each in files), *deletes])
    for name in _OF_A_FILE:
        tx.send(f"DELETE FROM {name} WHERE data_file_id {{among}}", ids)
    if any(len(each.inlined_positions) for each in files):
        tx.send(f"DELETE FROM ducklake_inlined_delete_{table_id:d} WHERE file_id {{among}}", ids)


def _forget_inlined(tx: Transaction, replacements: Sequence[Replacement]) -> None:
    for each in replacements:
        if isinstance(each.bin, InlinedBin):
            name = identifier(each.bin.table.name)
            tx.send(f"DELETE FROM {name}" + ("" if each.moved is None else " WHERE end_snapshot IS NULL"))
            tx.execute_many(f"DELETE FROM {name} WHERE row_id = %s AND begin_snapshot = %s", each.moved or ())


def schedule_deletion(tx: Transaction, data_path: str, files: Iterable[tuple[int, str]]) -> None:
    """Note files, by their ids and paths, to be deleted once their readers are done."""
    for id_, path in files:
        tx.send(
            "INSERT INTO ducklake_files_scheduled_for_deletion(data_file_id, path, path_is_relative, schedule_start)"
            " VALUES (%s, %s, %s, {now})",
            id_,
            path.removeprefix(data_path),
            path.startswith(data_path),
        )


def _insert(tx: Transaction, table_id: int, newest: Snapshot, replacements: Sequence[Replacement]) -> None:
    data: list[tuple[object, ...]] = []
    deletes: list[tuple[object, ...]] = []
    columns: list[tuple[object, ...]] = []
    partitions: list[tuple[object, ...]] = []
    marks: list[tuple[object, ...]] = []
    next_id = newest.next_file_id
    for each in replacements:
        partition_id, partition = (
            (each.old[0].live.partition_id, each.old[0].live.partition) if each.old else (None, ())
        )
        for number, file in enumerate(each.files):
            id_, next_id = next_id, next_id + 1
            if number in each.late:
                marks += ((id_, int(row), int(at)) for row, at in zip(*each.late[number], strict=True))
            new, gone = file.data, file.deletes
            data.append(
                (id_, table_id, file.begin, file.end, new.path, True, "parquet", new.rows, new.size, new.footer_size,
                 partition_id, file.partial_max)
            )  # fmt: skip
            columns += (
                (id_, table_id, s.column_id, s.size, s.values, s.nulls, s.min, s.max, s.contains_nan) for s in new.stats
            )
            partitions += ((id_, table_id, index, value) for index, value in enumerate(partition))
            if gone is not None:
                deletes.append(
                    (next_id, table_id, gone.begin_snapshot, file.end, id_, gone.path, True, "parquet", gone.count,
                     gone.size, gone.footer_size, gone.partial_max)
                )  # fmt: skip
                next_id += 1
    tx.insert(
        "ducklake_data_file",  # no row_id_start: each row has its own id
        "data_file_id, table_id, begin_snapshot, end_snapshot, path, path_is_relative, file_format, record_count,"
        " file_size_bytes, footer_size, partition_id, partial_max",
        data,
    )
    tx.insert(
        "ducklake_file_column_stats",
        "data_file_id, table_id, column_id, column_size_bytes, value_count, null_count, min_value, max_value,"
        " contains_nan",
        columns,
    )
    keys = "data_file_id, table_id, partition_key_index, partition_value"
    tx.insert("ducklake_file_partition_value", keys, partitions)
    tx.insert(
        "ducklake_delete_file",
        "delete_file_id, table_id, begin_snapshot, end_snapshot, data_file_id, path, path_is_relative, format,"
        " delete_count, file_size_bytes, footer_size, partial_max",
        deletes,
    )
    if marks:
        tx.insert(f"ducklake_inlined_delete_{table_id:d}", "file_id, row_id, begin_snapshot", marks)


def _correct_stats(tx: Transaction, table_id: int, replacements: Sequence[Replacement]) -> None:
    """The table has fewer rows in its files now, from which DuckDB estimates; row ids go on where they were.

    Where it also equals the rows that are alive, DuckDB takes a table's bounds for exact, which deletes do not make
    narrower. So there must not be any, as after each commit of ours.
    """
    alive = [file.data for each in replacements for file in each.files if file.end is None]
    old = [file for each in replacements for file in each.old if file.end is None]
    inlined = [each.bin.state.rows - each.left_behind for each in replacements if isinstance(each.bin, InlinedBin)]
    tx.send(
        "UPDATE ducklake_table_stats SET record_count = record_count + %s, file_size_bytes = file_size_bytes + %s"
        " WHERE table_id = %s",
        sum(each.rows for each in alive) - sum(each.rows for each in old) - sum(inlined),
        sum(each.size for each in alive) - sum(each.size for each in old),
        table_id,
    )
    tx.send("DELETE FROM ducklake_table_column_stats WHERE table_id = %s", table_id)
