"""The versions of rows in data files, and new files for them: of a version it is known who made it, and who ended it.

Versions that are alive go into a file of their own. Those that were deleted, and that a retained snapshot can still
show, go into files that have ended (`end`), so that whoever reads the newest snapshot never opens them: the end deletes
the rows that were deleted last, and a delete file says when the others were. DuckDB finds the snapshot of a delete by
the row's id (extension 1.5.5): two versions of one row in one file would get the same one, so they are in different
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from headwater.ducklake.contents import read_columns
from headwater.ducklake.deletes import delete_history, write_delete_file
from headwater.ducklake.mergeable import MergeableFile
from headwater.ducklake.model import DataFile, DeleteFile, Field
from headwater.ducklake.writing import (
    ROW_ID,
    ROW_ID_FIELD,
    SNAPSHOT_ID,
    SNAPSHOT_ID_FIELD,
    TableFolder,
    write_data_file,
)

__all__ = ["NEVER", "Versions", "VersionsFile", "read_versions", "write_versions"]

Snapshots = npt.NDArray[np.int64]  # a snapshot's id for each row
NEVER = 2**63 - 1  # the end of a version that is alive
_IDS = (Field(ROW_ID_FIELD, ROW_ID, "int64"), Field(SNAPSHOT_ID_FIELD, SNAPSHOT_ID, "int64"))


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """Rows with the columns ROW_ID and SNAPSHOT_ID, which made them, and the snapshot that ended each."""

    rows: pa.Table
    ended: Snapshots

    @classmethod
    def joined(cls, parts: Sequence[Versions]) -> Versions:
        return cls(pa.concat_tables([each.rows for each in parts]), np.concatenate([each.ended for each in parts]))

    @property
    def made(self) -> Snapshots:
        return _numbers(self.rows, SNAPSHOT_ID)

    def take(self, places: npt.NDArray[np.int64]) -> Versions:
        return Versions(self.rows.take(pa.array(places)), self.ended[places])

    def sorted_by(self, key: Sequence[str]) -> Versions:
        if not key:
            return self
        return self.take(pc.sort_indices(self.rows, [(name, "ascending") for name in key]).to_numpy())

    def alive(self) -> Versions:
        return self.take(np.flatnonzero(self.ended == NEVER))

    def layers(self, oldest: int) -> list[Versions]:
        """Those that ended after the snapshot `oldest`, with no row twice in a part; none that were never shown."""
        dead = self.take(np.flatnonzero((self.ended != NEVER) & (self.ended > oldest) & (self.ended > self.made)))
        ids = _numbers(dead.rows, ROW_ID)
        order = np.lexsort((dead.made, ids))
        first = np.searchsorted(ids[order], ids[order])  # where the versions of the same row begin
        layer = np.empty(len(ids), np.int64)
        layer[order] = np.arange(len(ids)) - first
        return [dead.take(np.flatnonzero(layer == each)) for each in range(int(layer.max(initial=-1)) + 1)]


@dataclass(frozen=True, slots=True)
class VersionsFile:
    """A file that was written and that no snapshot has yet: rows made in the snapshots `begin` to `partial_max`.

    None of them is left in the snapshot `end`; `deletes` has those that were deleted before.
    """

    data: DataFile
    begin: int
    partial_max: int
    end: int | None = None
    deletes: DeleteFile | None = None


def read_versions(files: fs.FileSystem, file: MergeableFile, columns: Sequence[Field]) -> Versions:
    """All rows of a data file that has some, the deleted ones too."""
    fields, live = (*columns, *_IDS), file.live
    names = [each.name for each in fields]
    rows = pa.concat_tables(pa.table(piece, names) for _, piece in read_columns(files, live, fields))
    places = np.arange(rows.num_rows)
    ids = _numbers(rows, ROW_ID) if rows.column(ROW_ID).null_count == 0 else (live.row_id_start or 0) + places
    made = np.full(rows.num_rows, file.begin, np.int64)
    if file.partial_max is not None:
        made = np.maximum(made, _numbers(rows, SNAPSHOT_ID))
    ended = np.full(rows.num_rows, NEVER, np.int64)
    gone, since = delete_history(files, live)
    ended[gone] = since
    plain = rows.select([each.name for each in columns])
    return Versions(plain.append_column(ROW_ID, pa.array(ids)).append_column(SNAPSHOT_ID, pa.array(made)), ended)


def write_versions(
    where: TableFolder, versions: Versions, fields: Sequence[Field], oldest: int, kind: str = ""
) -> Iterable[VersionsFile]:
    """Write what is alive, and what snapshots after `oldest` can still show."""
    alive = versions.alive()
    if alive.rows.num_rows:
        yield _described(_write(where, alive, fields, kind), alive)
    for layer in versions.layers(oldest):
        end, gone = int(layer.ended.max()), np.flatnonzero(layer.ended < layer.ended.max())
        data, deletes = _write(where, layer, fields, "-ended"), None
        if len(gone):
            name = where.new_name("-delete")
            deletes = write_delete_file(where, name, where.path + data.path, (gone, layer.ended[gone]))
        yield _described(data, layer, end, deletes)


def _write(where: TableFolder, versions: Versions, fields: Sequence[Field], kind: str) -> DataFile:
    return write_data_file(where, versions.rows, fields, with_row_ids=True, with_snapshots=True, kind=kind)


def _described(
    data: DataFile, versions: Versions, end: int | None = None, deletes: DeleteFile | None = None
) -> VersionsFile:
    made = versions.made
    return VersionsFile(data, int(made.min()), int(made.max()), end, deletes)


def _numbers(rows: pa.Table, name: str) -> npt.NDArray[np.int64]:
    return np.asarray(rows.column(name).to_numpy(), np.int64)
