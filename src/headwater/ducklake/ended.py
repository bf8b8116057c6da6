"""Files that only older snapshots show: every merge leaves some, and if nothing expires they are merged, too."""

from __future__ import annotations

from collections import Counter

from headwater.ducklake import reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.mergeable import Epochs, MergeableFile, readable
from headwater.ducklake.model import LakeTable, LiveFile

__all__ = ["ended_files"]


def ended_files(tx: Transaction, data_path: str, table: LakeTable, oldest: int) -> list[MergeableFile]:
    """The files of the table that have ended and that can be merged with each other, as `mergeable_files` has it.

    Their deletes are all in a delete file that has ended with them.
    """
    rows = tx.rows(
        "SELECT f.data_file_id, f.path, f.path_is_relative, f.record_count, f.row_id_start, f.mapping_id,"
        " f.partition_id, f.file_size_bytes, f.begin_snapshot, f.end_snapshot, f.partial_max, d.delete_file_id, d.path,"
        " d.path_is_relative, d.format, d.begin_snapshot, d.delete_count FROM ducklake_data_file f"
        " LEFT JOIN ducklake_delete_file d ON d.data_file_id = f.data_file_id AND d.end_snapshot = f.end_snapshot"
        " WHERE f.table_id = %s AND f.end_snapshot IS NOT NULL AND f.file_format = 'parquet'"
        " AND f.encryption_key IS NULL ORDER BY f.data_file_id",
        table.id,
    )
    odd = {id_ for id_, times in Counter(row[0] for row in rows).items() if times > 1} | _with_other_deletes(tx, table)
    partitions, epochs = reading.partitions_of_files(tx, [table.id]), Epochs(tx, data_path, table.id)
    found = []
    for id_, path, relative, count, start, mapping, partition, size, begin, end, newest, *deletes in rows:
        live = LiveFile(
            id_,
            table.id,
            reading.resolved(table.path, path, relative),
            count,
            start,
            mapping,
            reading.delete_file_of(table.path, deletes),
            partition_id=partition,
            partition=partitions.get(id_, ()),
        )
        columns = epochs.columns(max(newest or begin, oldest))
        if id_ not in odd and columns is not None and readable(live, table):
            found.append(MergeableFile(live, size, begin, newest, columns, end=end))
    return found


def _with_other_deletes(tx: Transaction, table: LakeTable) -> set[int]:
    """Files with deletes in the catalog, or in a file that was replaced before they ended."""
    others = tx.rows(
        "SELECT d.data_file_id FROM ducklake_delete_file d JOIN ducklake_data_file f ON f.data_file_id = d.data_file_id"
        " WHERE d.table_id = %s AND f.end_snapshot IS NOT NULL"
        " AND (d.end_snapshot IS NULL OR d.end_snapshot <> f.end_snapshot)",
        table.id,
    )
    return {id_ for (id_,) in others} | set(reading.inlined_delete_counts(tx, [table.id]))
