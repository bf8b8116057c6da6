"""Rows deleted from a data file: by their numbers in the catalog, by a delete file, or with the file itself.

Few row numbers go into the catalog (`inlined`): no file, no rewriting, full history. Many go into a delete file, and
since a data file has at most one delete file, the new one includes what was deleted before. Each row number has its
snapshot beside it, even if there is only one: without it, `table_changes` shows the deletes from a merged file under
the snapshots of the inserts (extension 1.5.5).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headwater.ducklake.model import DeleteFile, FileDeletes, LiveFile, RowNumbers
from headwater.ducklake.writing import SNAPSHOT_ID, SNAPSHOT_ID_FIELD, TableFolder, footer_size
from headwater.errors import TableError
from headwater.files import durable, folder, inside
from headwater.lake.parquet import field_with_id
from headwater.lake.recent import Recent

__all__ = [
    "INLINE_LIMIT",
    "delete_history",
    "delete_rows",
    "deleted_positions",
    "end_file",
    "restamp",
    "write_delete_file",
]

INLINE_LIMIT = 1_000  # per data file: every scan of the table reads them all from the catalog

RECENT_BYTES = 8 << 20  # of delete files: a delivery reads each twice, to see what is gone and to add to it

_PATH_FIELD = 2147483646
_POSITION_FIELD = 2147483645


def deleted_positions(files: fs.FileSystem, live: LiveFile) -> RowNumbers:
    """The numbers of a file's deleted rows, in order."""
    return delete_history(files, live)[0]


def delete_rows(
    where: TableFolder, live: LiveFile, rows: RowNumbers, *, snapshot: int, inline_limit: int = INLINE_LIMIT
) -> FileDeletes:
    """Plan the deletion of rows that are still alive; write the delete file if there are too many for the catalog.

    `snapshot` is the one the commit will probably get: the base's id + 1.
    """
    rows = np.asarray(rows, np.int64)
    rows = rows if _ascending(rows) else np.unique(rows)
    doubled = _doubled(where.files, live)
    if len(rows) + live.deleted_count - doubled == live.record_count:
        return end_file(where, live)
    if len(rows) + len(live.inlined_positions) <= inline_limit and not doubled:
        return replace(_untouched(live), inlined=rows)
    old_rows, old_snapshots = delete_history(where.files, live)
    every = np.concatenate([old_rows, rows])
    snapshots = np.concatenate([old_snapshots, np.full(len(rows), snapshot, np.int64)])
    order = np.argsort(every, kind="stable")
    written = write_delete_file(where, where.new_name("-delete"), live.path, (every[order], snapshots[order]))
    return replace(_untouched(live), delete_file=replace(written, predicted=snapshot))


def end_file(where: TableFolder, live: LiveFile) -> FileDeletes:
    """Plan the end of a file, and with it of all its rows."""
    if not len(live.inlined_positions):
        return replace(_untouched(live), ended=True)
    # For an ended file, table_changes shows either its inlined deletes or its end, never both (extension 1.5.5): so
    # the old deletes move to a delete file, which it does subtract from what the end deletes.
    written = write_delete_file(where, where.new_name("-delete"), live.path, delete_history(where.files, live))
    return replace(_untouched(live), delete_file=written, ended=True)


def restamp(where: TableFolder, written: DeleteFile, snapshot: int) -> DeleteFile:
    """The same deletes in a new file, those of this commit under the snapshot it really gets."""
    table = _read(where.files, inside(where.path) + written.path)
    snapshots = table.column(SNAPSHOT_ID).to_numpy().copy()
    snapshots[snapshots == written.predicted] = snapshot
    data_path = table.column("file_path")[0].as_py()
    name = written.path.removesuffix("-delete.parquet") + f"-{snapshot}-delete.parquet"
    again = write_delete_file(where, name, data_path, (table.column("pos").to_numpy(), snapshots))
    return replace(again, predicted=snapshot)


def _untouched(live: LiveFile) -> FileDeletes:
    return FileDeletes(live.id, live.delete_file, len(live.inlined_positions))


def _doubled(files: fs.FileSystem, live: LiveFile) -> int:
    """How many deletes are both in the catalog and in the delete file: the extension's flush may leave such."""
    both = live.delete_file is not None and len(live.inlined_positions)
    return live.deleted_count - len(delete_history(files, live)[0]) if both else 0


def delete_history(files: fs.FileSystem, live: LiveFile) -> tuple[RowNumbers, RowNumbers]:
    """Every row number deleted so far, in order, and the snapshot that deleted it."""
    positions, snapshots = live.inlined_positions, live.inlined_snapshots
    if live.delete_file is not None:
        if live.delete_file.format != "parquet":
            raise TableError(
                f"{live.path!r} has deletes in the format {live.delete_file.format!r}",
                hint="switch write_deletion_vectors off and run ducklake_rewrite_data_files with delete_threshold 0",
            )
        path = inside(live.delete_file.path)
        table = _recent.get(path, lambda: _read(files, path))
        older = table.column("pos").to_numpy()
        positions = np.concatenate([older, positions])
        if SNAPSHOT_ID in table.column_names:
            since = table.column(SNAPSHOT_ID).to_numpy()
        else:
            since = np.full(len(older), live.delete_file.begin_snapshot, np.int64)
        snapshots = np.concatenate([since, snapshots])
    if _ascending(positions):
        return positions, snapshots
    positions, first = np.unique(positions, return_index=True)
    return positions, snapshots[first]


def _ascending(rows: RowNumbers) -> bool:
    """Whether each is higher than the one before, as they nearly always are."""
    return bool((rows[1:] > rows[:-1]).all())


_recent = Recent[pa.Table](RECENT_BYTES, lambda table: table.columns)


def _read(files: fs.FileSystem, path: str) -> pa.Table:
    with files.open_input_file(path) as source:
        return pq.read_table(source)


def write_delete_file(
    where: TableFolder, name: str, data_path: str, history: tuple[RowNumbers, RowNumbers]
) -> DeleteFile:
    """Write the ascending numbers of deleted rows, and the snapshot that deleted each."""
    positions, snapshots = history
    fields = [
        field_with_id("file_path", pa.string(), _PATH_FIELD),
        field_with_id("pos", pa.int64(), _POSITION_FIELD),
        field_with_id(SNAPSHOT_ID, pa.int64(), SNAPSHOT_ID_FIELD),
    ]
    columns = [pa.repeat(pa.scalar(data_path, pa.string()), len(positions)), pa.array(positions), pa.array(snapshots)]
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    with durable(where.files, folder(where.files, where.path) + name) as sink:
        with pq.ParquetWriter(sink, table.schema, compression="snappy", store_schema=False) as writer:
            writer.write_table(table)
        size = sink.tell()
    footer = footer_size(writer.writer.metadata)
    return DeleteFile(name, len(positions), size, footer, int(snapshots.min()), int(snapshots.max()))
