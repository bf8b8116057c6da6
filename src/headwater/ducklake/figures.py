"""What tables are made of, in numbers, for a few queries in all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from headwater.ducklake import reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.inlined import inlined_counts
from headwater.lake.maintenance import Figures
from headwater.lake.packing import FILE_BYTES, FILE_ROWS, FULL

__all__ = ["table_figures"]


def table_figures(tx: Transaction, table_ids: Collection[int]) -> dict[int, Figures]:
    """The figures of these tables."""
    newest = reading.newest_snapshot(tx).id
    deleted, inlined = _deleted(tx, table_ids), inlined_counts(tx, table_ids, newest)
    found = {table_id: Figures() for table_id in table_ids} | _files(tx, table_ids)
    for table_id, each in found.items():
        rows = inlined.get(table_id, [])
        alive = sum(counts.live for counts in rows)
        found[table_id] = replace(
            each,
            deleted_rows=deleted.get(table_id, 0),
            inlined_rows=alive,
            old_rows=sum(counts.rows for counts in rows) - alive,
        )
    return found


def _files(tx: Transaction, table_ids: Collection[int]) -> dict[int, Figures]:
    live = "f.end_snapshot IS NULL"
    small = (
        f"f.file_size_bytes < {FILE_BYTES // 2} AND f.record_count < {FILE_ROWS // 2}"
        f" AND f.path NOT LIKE '%%{FULL}.parquet'"
    )
    rows = tx.rows(
        f"SELECT f.table_id, count(CASE WHEN {live} THEN 1 END), count(CASE WHEN {live} AND {small} THEN 1 END),"
        f" sum(CASE WHEN {live} THEN f.file_size_bytes ELSE 0 END), count(f.end_snapshot),"
        f" sum(CASE WHEN {live} THEN 0 ELSE f.file_size_bytes END)"
        " FROM ducklake_data_file f WHERE f.table_id {among} GROUP BY f.table_id",
        tx.ids(table_ids),
    )
    return {
        table_id: Figures(files, few, int(size), old_files=old, old_bytes=int(old_size))
        for table_id, files, few, size, old, old_size in rows
    }


def _deleted(tx: Transaction, table_ids: Collection[int]) -> dict[int, int]:
    """By table, how many rows are deleted from its files."""
    found = dict(
        tx.rows(
            "SELECT table_id, sum(delete_count) FROM ducklake_delete_file WHERE end_snapshot IS NULL"
            " AND table_id {among} GROUP BY table_id",
            tx.ids(table_ids),
        )
    )
    marks = [
        f"SELECT {table_id:d}, count(*) FROM {name}"
        for table_id, name in reading.with_inlined_deletes(tx, table_ids).items()
    ]
    inlined = dict(reading.unions(tx, marks))
    return {table_id: int(found.get(table_id, 0)) + inlined.get(table_id, 0) for table_id in {*found, *inlined}}
