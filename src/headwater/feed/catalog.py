"""Which files and rows of a table a span of snapshots is about, from the catalog.

The catalog does not say which snapshots the deletes in a delete file belong to: a flush writes older ones into a new
file, and may leave `partial_max` empty (extension 1.5.5). But files are numbered in the order of the commits, and a
snapshot knows the next number: a file that is older than a span has none of its events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from headwater.ducklake import reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.model import LakeTable, RowNumbers
from headwater.feed.dating import delete_log
from headwater.feed.spans import Moment, Snapshots, Span
from headwater.feed.stored import StoredDeletes, StoredFile

__all__ = ["files_at", "files_in", "files_with_ids", "inlined_deletes"]


def files_in(tx: Transaction, table: LakeTable, span: Span) -> list[StoredFile]:
    """The data files that can have events in the span."""
    return files_with_ids(
        tx, table, {*_new(tx, table.id, span), *_ended(tx, table.id, span), *_deleted(tx, table.id, span)}, span
    )


def files_at(tx: Transaction, table: LakeTable, moment: Moment) -> list[StoredFile]:
    """The data files that were part of the table in a snapshot."""
    found = tx.rows(
        f"{_FILES} WHERE table_id = %s AND begin_snapshot <= %s AND (end_snapshot IS NULL OR end_snapshot > %s)",
        table.id,
        moment.snapshot,
        moment.snapshot,
    )
    return _files(tx, table, found, Span(moment.snapshot, moment.snapshot, 0))


def files_with_ids(tx: Transaction, table: LakeTable, ids: Collection[int], span: Span) -> list[StoredFile]:
    """Those of these data files that were part of the table in `span.after` or in the span."""
    found = tx.rows(
        f"{_FILES} WHERE data_file_id {{among}} AND begin_snapshot <= %s"
        " AND (end_snapshot IS NULL OR end_snapshot > %s) ORDER BY data_file_id",
        tx.ids(ids),
        span.upto,
        span.after,
    )
    return _files(tx, table, found, span)


_FILES = (
    "SELECT data_file_id, path, path_is_relative, record_count, file_size_bytes, begin_snapshot, end_snapshot,"
    " partial_max, mapping_id FROM ducklake_data_file"
)


def _new(tx: Transaction, table_id: int, span: Span) -> Iterator[int]:
    """Files with rows that were made in the span, as far as the catalog can tell: the others are older than it."""
    for (id_,) in tx.rows(
        "SELECT data_file_id FROM ducklake_data_file WHERE data_file_id >= %s AND table_id = %s"
        " AND begin_snapshot <= %s AND (begin_snapshot > %s OR partial_max > %s)",
        span.first_file,
        table_id,
        span.upto,
        span.after,
        span.after,
    ):
        yield id_


def _ended(tx: Transaction, table_id: int, span: Span) -> Iterator[int]:
    for (id_,) in tx.rows(
        "SELECT data_file_id FROM ducklake_data_file WHERE table_id = %s AND end_snapshot > %s AND end_snapshot <= %s",
        table_id,
        span.after,
        span.upto,
    ):
        yield id_


def _deleted(tx: Transaction, table_id: int, span: Span) -> Iterator[int]:
    """The data files from which single rows were deleted in the span, or may have been."""
    found = tx.rows(
        "SELECT data_file_id FROM ducklake_delete_file"
        " WHERE delete_file_id >= %s AND table_id = %s AND begin_snapshot <= %s",
        span.first_file,
        table_id,
        span.upto,
    )
    if name := inlined_deletes(tx, table_id):
        found += tx.rows(
            f"SELECT DISTINCT file_id FROM {name} WHERE begin_snapshot > %s AND begin_snapshot <= %s",
            span.after,
            span.upto,
        )
    return (id_ for (id_,) in found)


def inlined_deletes(tx: Transaction, table_id: int) -> str | None:
    """The table of the catalog that holds deletes from this table's files, if there is one."""
    name = f"ducklake_inlined_delete_{table_id:d}"
    return name if tx.existing([name]) else None


def _files(tx: Transaction, table: LakeTable, found: list[tuple[Any, ...]], span: Span) -> list[StoredFile]:
    ids = [row[0] for row in found]
    if not ids:
        return []
    made = {row[0]: row[5] for row in found if row[7] in (None, row[5])}  # by files that one snapshot made
    delete_files = _delete_files(tx, table, ids, span, made)
    inlined = _deleted_in_catalog(tx, table.id, ids, span.upto)
    names = reading.mapped_names(tx, {row[-1] for row in found})
    none = np.empty(0, np.int64)
    return [
        StoredFile(
            id_,
            reading.resolved(table.path, path, relative),
            rows,
            size,
            begin,
            end,
            partial_max,
            mapping_id,
            *names[mapping_id],
            tuple(delete_files.get(id_, ())),
            *inlined.get(id_, (none, none)),
        )
        for id_, path, relative, rows, size, begin, end, partial_max, mapping_id in found
    ]


def _delete_files(
    tx: Transaction, table: LakeTable, data_files: list[int], span: Span, made: Mapping[int, int]
) -> dict[int, list[StoredDeletes]]:
    """By data file: its delete files that were valid in `span.after` or in the span."""
    rows = tx.rows(
        "SELECT delete_file_id, data_file_id, path, path_is_relative, format, delete_count, begin_snapshot,"
        " end_snapshot, partial_max,"
        " (SELECT max(snapshot_id) FROM ducklake_snapshot WHERE snapshot_id < begin_snapshot)"
        " FROM ducklake_delete_file WHERE data_file_id {among} AND begin_snapshot <= %s"
        " AND (end_snapshot IS NULL OR end_snapshot > %s)",
        tx.ids(data_files),
        span.upto,
        span.after,
    )
    found = defaultdict(list)
    log = delete_log(tx, table.id, span) if any(row[0] >= span.first_file for row in rows) else None
    for id_, data_file, path, relative, format_, count, begin, end, partial_max, before in rows:
        where = reading.resolved(table.path, path, relative)
        since = begin if before is None else before + 1
        logged = log if id_ >= span.first_file else None
        deletes = StoredDeletes(where, format_, count, begin, end, partial_max, since, logged, made.get(data_file))
        found[data_file].append(deletes)
    return found


def _deleted_in_catalog(
    tx: Transaction, table_id: int, data_files: list[int], upto: int
) -> dict[int, tuple[RowNumbers, Snapshots]]:
    """By data file: the rows whose deletes are in the catalog, and the snapshots that deleted them."""
    name = inlined_deletes(tx, table_id)
    if name is None:
        return {}
    found = tx.rows(
        f"SELECT file_id, row_id, begin_snapshot FROM {name} WHERE file_id {{among}} AND begin_snapshot <= %s",
        tx.ids(data_files),
        upto,
    )
    rows = np.array(found, np.int64).reshape(-1, 3)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    files, starts = np.unique(rows[:, 0], return_index=True)
    parts = np.split(rows, starts[1:])
    return {int(file): (part[:, 1].copy(), part[:, 2].copy()) for file, part in zip(files, parts, strict=False)}
