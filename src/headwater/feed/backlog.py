"""How much has happened to a table since a snapshot, from the catalog, before any file is looked at."""

from __future__ import annotations

from datetime import datetime

from headwater.ducklake.catalog import Transaction
from headwater.ducklake.model import LakeTable
from headwater.feed.catalog import files_with_ids, inlined_deletes
from headwater.feed.inlined import INLINED_ROW
from headwater.feed.spans import Span
from headwater.feed.stored import StoredFile
from headwater.lake.sqltext import identifier

__all__ = ["Weight", "first_file_after", "first_retained", "partial_files", "retained", "times_after", "weights"]

Weight = tuple[int, int, int]  # a snapshot, about how many events it has, and about how many bytes are read for them

_INSIDE = "{0} > %s AND {0} <= %s GROUP BY {0}"
_A_ROW = "f.file_size_bytes / (f.record_count + 1)"


def first_file_after(tx: Transaction, snapshot: int) -> int | None:
    """The number from which on files were registered after a snapshot; None if the snapshot is expired."""
    found = tx.rows("SELECT next_file_id FROM ducklake_snapshot WHERE snapshot_id = %s", snapshot)
    return int(found[0][0]) if found else None


def retained(tx: Transaction, table_id: int, after: int, upto: int, limit: int) -> list[int]:
    """The snapshots `(after, upto]` that are not expired and have the table; the first `limit` of them, in order."""
    found = tx.rows(
        "SELECT snapshot_id FROM ducklake_snapshot WHERE snapshot_id > %s AND snapshot_id <= %s AND snapshot_id >="
        " (SELECT min(begin_snapshot) FROM ducklake_table WHERE table_id = %s) ORDER BY snapshot_id LIMIT %s",
        after,
        upto,
        table_id,
        limit,
    )
    return [id_ for (id_,) in found]


def first_retained(tx: Transaction, table_id: int) -> int:
    """The oldest snapshot that the lake still has of a table; the newest one always is."""
    ((first,),) = tx.rows(
        "SELECT min(snapshot_id) FROM ducklake_snapshot WHERE snapshot_id >="
        " (SELECT min(begin_snapshot) FROM ducklake_table WHERE table_id = %s)",
        table_id,
    )
    return int(first)


def times_after(tx: Transaction, snapshot: int) -> list[tuple[int, datetime]]:
    """The snapshots after one that are not expired, and when they were committed, in order."""
    found = tx.rows(
        "SELECT snapshot_id, snapshot_time FROM ducklake_snapshot WHERE snapshot_id > %s ORDER BY snapshot_id", snapshot
    )
    return [(id_, datetime.fromisoformat(time) if isinstance(time, str) else time) for id_, time in found]


def weights(tx: Transaction, table_id: int, span: Span) -> list[Weight]:
    """What the catalog itself can tell of each snapshot, or a later one; without files that are partial."""
    found = [
        *tx.rows(
            "SELECT begin_snapshot, sum(record_count), sum(file_size_bytes) FROM ducklake_data_file WHERE"
            f" data_file_id >= %s AND table_id = %s AND partial_max IS NULL AND {_INSIDE.format('begin_snapshot')}",
            *(span.first_file, table_id, span.after, span.upto),
        ),
        *tx.rows(
            "SELECT end_snapshot, sum(record_count), sum(file_size_bytes) FROM ducklake_data_file"
            f" WHERE table_id = %s AND {_INSIDE.format('end_snapshot')}",
            *(table_id, span.after, span.upto),
        ),
        *tx.rows(
            f"SELECT d.begin_snapshot, sum(d.delete_count), sum(d.delete_count * ({_A_ROW}))"
            " FROM ducklake_delete_file d JOIN ducklake_data_file f ON f.data_file_id = d.data_file_id"
            " WHERE d.delete_file_id >= %s AND d.table_id = %s AND d.partial_max IS NULL"
            " AND d.begin_snapshot <= %s GROUP BY d.begin_snapshot",
            *(span.first_file, table_id, span.upto),
        ),
        *_inlined(tx, table_id, span),
    ]
    return [(snapshot, int(rows or 0), int(size or 0)) for snapshot, rows, size in found]


def _inlined(tx: Transaction, table_id: int, span: Span) -> list[tuple[int, int, int]]:
    found = []
    if name := inlined_deletes(tx, table_id):
        found += tx.rows(
            f"SELECT d.begin_snapshot, count(*), sum({_A_ROW}) FROM {name} d"
            f" JOIN ducklake_data_file f ON f.data_file_id = d.file_id WHERE {_INSIDE.format('d.begin_snapshot')}",
            *(span.after, span.upto),
        )
    for (name,) in tx.rows("SELECT table_name FROM ducklake_inlined_data_tables WHERE table_id = %s", table_id):
        for column in ("begin_snapshot", "end_snapshot"):
            found += tx.rows(
                f"SELECT {column}, count(*), {INLINED_ROW:d} * count(*) FROM {identifier(name)}"
                f" WHERE {_INSIDE.format(column)}",
                *(span.after, span.upto),
            )
    return found


def partial_files(tx: Transaction, table: LakeTable, span: Span) -> list[StoredFile]:
    """The data files of which only files know in which snapshots their rows were made, or deleted."""
    found = tx.rows(
        "SELECT data_file_id FROM ducklake_data_file WHERE data_file_id >= %s AND table_id = %s"
        " AND partial_max > %s AND begin_snapshot <= %s"
        " UNION SELECT data_file_id FROM ducklake_delete_file WHERE delete_file_id >= %s AND table_id = %s"
        " AND partial_max > %s AND begin_snapshot <= %s",
        *(span.first_file, table.id, span.after, span.upto) * 2,
    )
    return files_with_ids(tx, table, [id_ for (id_,) in found], span)
