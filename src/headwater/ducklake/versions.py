"""The versions of rows in data files, and new files for them: of a version it is known who made it, and who ended it.

Versions that are alive go into a file of their own. Those that were deleted, and that a retained snapshot can still
show, go into files that have ended (`end`), so that whoever reads the newest snapshot never opens them: the end deletes
the rows that were deleted last, and a delete file says when the others were. DuckDB finds the snapshot of a delete by
the row's id (extension 1.5.5): two versions of one row in one file would get the same one, so they are in different
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

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
from headwater.lake.packing import FULL
from headwater.lake.parquet import in_order

__all__ = ["NEVER", "Layout", "Origins", "Versions", "VersionsFile", "read_versions", "write_versions"]

Snapshots = npt.NDArray[np.int64]  # a snapshot's id for each row
Places = npt.NDArray[np.int64]  # numbers of rows
Origins = npt.NDArray[np.int32]  # for each row, the number of its file in a bin, and its row number there
FEW = 10  # versions that each of the merged files has brought, on the average
NEVER = 2**63 - 1  # the end of a version that is alive
_IDS = (Field(ROW_ID_FIELD, ROW_ID, "int64"), Field(SNAPSHOT_ID_FIELD, SNAPSHOT_ID, "int64"))


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """Rows with the columns ROW_ID and SNAPSHOT_ID, which made them, and the snapshot that ended each.

    `origins` says where they come from, if that is known.
    """

    rows: pa.Table
    ended: Snapshots
    origins: Origins | None = None

    @classmethod
    def joined(cls, parts: Sequence[Versions]) -> Versions:
        rows, ended = pa.concat_tables([each.rows for each in parts]), np.concatenate([each.ended for each in parts])
        origins = [each.origins for each in parts if each.origins is not None]
        return cls(rows, ended, np.concatenate(origins) if len(origins) == len(parts) else None)

    @property
    def made(self) -> Snapshots:
        return _numbers(self.rows, SNAPSHOT_ID)

    def take(self, places: npt.NDArray[np.int64]) -> Versions:
        origins = None if self.origins is None else self.origins[places]
        return Versions(self.rows.take(pa.array(places)), self.ended[places], origins)

    def order(self, key: Sequence[str]) -> Places:
        """The rows by these columns; without any, as they come."""
        if not key:
            return np.arange(self.rows.num_rows)
        places = pc.sort_indices(self.rows, [(name, "ascending") for name in key]).to_numpy()
        return np.asarray(places, np.int64)

    def known_by(self) -> tuple[tuple[int, int], ...]:
        """Each version's row, and the snapshot that made it."""
        return tuple(zip(_numbers(self.rows, ROW_ID).tolist(), self.made.tolist(), strict=True))

    def alive(self) -> Versions:
        return self.take(np.flatnonzero(self.ended == NEVER))

    def layers(self, oldest: int, order: Places | None = None) -> list[Places]:
        """Those that ended after the snapshot `oldest`, with no row twice in a part; none that were never shown."""
        asked = np.arange(self.rows.num_rows) if order is None else order
        made, ended = self.made, self.ended
        dead = asked[((ended != NEVER) & (ended > oldest) & (ended > made))[asked]]
        ids = _numbers(self.rows, ROW_ID)[dead]
        by_row = np.lexsort((made[dead], ids))
        first = np.searchsorted(ids[by_row], ids[by_row])  # where the versions of the same row begin
        layer = np.empty(len(ids), np.int64)
        layer[by_row] = np.arange(len(ids)) - first
        return [dead[layer == each] for each in range(int(layer.max(initial=-1)) + 1)]


@dataclass(frozen=True, slots=True)
class VersionsFile:
    """A file that was written and that no snapshot has yet: rows made in the snapshots `begin` to `partial_max`.

    None of them is left in the snapshot `end`; `deletes` has those that were deleted before. `origins` are those of
    rows that are alive.
    """

    data: DataFile
    begin: int
    partial_max: int
    end: int | None = None
    deletes: DeleteFile | None = None
    origins: Origins | None = field(default=None, compare=False)


def read_versions(files: fs.FileSystem, file: MergeableFile, columns: Sequence[Field], number: int = 0) -> Versions:
    """All rows of a data file that has some, the deleted ones too; `number` is that of the file in its bin."""
    fields, live = (*columns, *_IDS), file.live
    names = [each.name for each in fields]
    rows = pa.concat_tables(pa.table(piece, names) for _, piece in read_columns(files, live, fields))
    places = np.arange(rows.num_rows)
    ids = _numbers(rows, ROW_ID) if rows.column(ROW_ID).null_count == 0 else (live.row_id_start or 0) + places
    made = np.full(rows.num_rows, file.begin, np.int64)
    if file.partial_max is not None:
        made = np.maximum(made, _numbers(rows, SNAPSHOT_ID))
    ended = np.full(rows.num_rows, NEVER if file.end is None else file.end, np.int64)
    gone, since = delete_history(files, live)
    ended[gone] = since
    plain = rows.select([each.name for each in columns])
    origins = np.stack([np.full(rows.num_rows, number), places], axis=1).astype(np.int32)
    shown = plain.append_column(ROW_ID, pa.array(ids)).append_column(SNAPSHOT_ID, pa.array(made))
    return Versions(shown, ended, origins)


@dataclass(frozen=True, slots=True)
class Layout:
    """How versions are written: these columns, sorted by the `key`; none that ended in `oldest` or before."""

    fields: Sequence[Field]
    oldest: int
    key: Sequence[str] = ()
    kind: str = ""  # part of the name of the file with what is alive
    files: int | None = None  # of how many that had ended; None: of others

    def final(self, layer: Places) -> str:
        """For the name of a file of versions that have ended: whether there is no use in merging it once more.

        Of a row that changes all the time, each version needs a file of its own.
        """
        return FULL if self.files is not None and len(layer) < self.files * FEW else ""


def write_versions(where: TableFolder, versions: Versions, layout: Layout) -> Iterable[VersionsFile]:
    """Write what is alive, and what snapshots after the oldest can still show."""
    order, ended = versions.order(layout.key), versions.ended
    alive = order[ended[order] == NEVER]
    if len(alive):
        origins = None if versions.origins is None else versions.origins[alive]
        written = _write(where, versions, alive, layout, layout.kind)
        yield replace(_described(written, versions.made[alive]), origins=origins)
    for layer in versions.layers(layout.oldest, order):
        end, gone = int(ended[layer].max()), np.flatnonzero(ended[layer] < ended[layer].max())
        data, deletes = _write(where, versions, layer, layout, f"-ended{layout.final(layer)}"), None
        if len(gone):
            name = where.new_name("-delete")
            deletes = write_delete_file(where, name, where.path + data.path, (gone, ended[layer][gone]))
        yield _described(data, versions.made[layer], end, deletes)


def _write(where: TableFolder, versions: Versions, places: Places, layout: Layout, kind: str) -> DataFile:
    batches = in_order(versions.rows, places)
    return write_data_file(where, batches, layout.fields, with_row_ids=True, with_snapshots=True, kind=kind)


def _described(
    data: DataFile, made: Snapshots, end: int | None = None, deletes: DeleteFile | None = None
) -> VersionsFile:
    return VersionsFile(data, int(made.min()), int(made.max()), end, deletes)


def _numbers(rows: pa.Table, name: str) -> npt.NDArray[np.int64]:
    return np.asarray(rows.column(name).to_numpy(), np.int64)
