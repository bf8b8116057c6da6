"""What Spark's workers do in a DuckLake: find and take out the rows that are replaced, write the new ones."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.ducklake import deletes
from headwater.ducklake.model import DataFile, Field, FileDeletes, LiveFile
from headwater.ducklake.writing import ROW_ID, write_data_file
from headwater.files import filesystem, inside
from headwater.target import Taken

__all__ = ["DuckLakePlace", "DuckLakeTarget", "Landing", "TakenOut", "Wrote", "read_report"]

FILE_ROWS = 1_000_000  # a data file is closed at whichever comes first
FILE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class DuckLakePlace:
    """A live data file of the table that mirrors `oid`."""

    oid: int
    file: LiveFile

    @property
    def rows(self) -> int:
        return self.file.record_count


@dataclass(frozen=True, slots=True)
class Landing:
    """The lake's table for a source table: its folder, its columns, and which of them are the key."""

    path: str
    fields: tuple[Field, ...]
    key: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class TakenOut:
    """Report: rows deleted from a live file."""

    deletes: FileDeletes
    rows: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """Report: a new data file; `replacing`: its rows have the ids of older ones."""

    file: DataFile
    replacing: bool


def read_report(report: bytes) -> TakenOut | Wrote:
    found = pickle.loads(report)
    assert isinstance(found, TakenOut | Wrote)
    return found


@dataclass(frozen=True, slots=True)
class DuckLakeTarget:
    """Implements `headwater.target.Target`. `snapshot` is the id the commit will most likely get."""

    landings: Mapping[int, Landing]
    snapshot: int

    def keys(self, place: DuckLakePlace) -> Iterator[tuple[int, list[pa.Array]]]:
        landing = self.landings[place.oid]
        with _opened(place.file.path) as file:
            names = _columns(file, landing.key)
            first = 0
            for group in range(file.num_row_groups):  # iter_batches makes room for a whole batch, however few rows come
                rows = file.read_row_group(group, columns=names, use_threads=False)
                yield first, [rows[name].combine_chunks() for name in names]
                first += rows.num_rows

    def take_out(self, place: DuckLakePlace, positions: pa.Array) -> Taken | None:
        wanted = positions.to_numpy()
        files = filesystem(place.file.path)
        alive = ~np.isin(wanted, deletes.deleted_positions(files, place.file), assume_unique=True)
        if not alive.any():
            return None
        gone = wanted[alive]
        report = TakenOut(
            deletes.delete_rows(files, self.landings[place.oid].path, place.file, gone, snapshot=self.snapshot),
            len(gone),
        )
        return Taken(pa.array(alive), self._row_ids(place.file, gone), pickle.dumps(report))

    def write(self, oid: int, rows: Iterable[tuple[pa.Table, pa.Array | None]]) -> list[bytes]:
        landing = self.landings[oid]
        reports = []
        for replacing, table in _file_loads(rows):
            files = filesystem(landing.path)
            file = write_data_file(files, landing.path, table, landing.fields, with_row_ids=replacing)
            reports.append(pickle.dumps(Wrote(file, replacing)))
        return reports

    def _row_ids(self, file: LiveFile, positions: np.ndarray) -> pa.Array:
        """A row's id is in the file, if it was ever updated or moved; else it follows from its place."""
        with _opened(file.path) as parquet:
            if ROW_ID in parquet.schema_arrow.names:
                return parquet.read([ROW_ID])[ROW_ID].take(pa.array(positions)).combine_chunks()
        return pa.array(file.row_id_start + positions)


def _opened(path: str) -> pq.ParquetFile:
    return pq.ParquetFile(inside(path), filesystem=filesystem(path), pre_buffer=False)


def _columns(file: pq.ParquetFile, fields: Sequence[Field]) -> list[str]:
    """The file's names of these columns: by field id, because a column may have been renamed since; else by name."""
    by_id = {(field.metadata or {}).get(b"PARQUET:field_id"): field.name for field in file.schema_arrow}
    return [by_id.get(str(field.id).encode(), field.name) for field in fields]


def _file_loads(rows: Iterable[tuple[pa.Table, pa.Array | None]]) -> Iterator[tuple[bool, pa.Table]]:
    """Gather rows into loads of a file's size; rows with ids and rows without never share a file."""
    held: dict[bool, list[pa.Table]] = {False: [], True: []}
    for table, row_ids in rows:
        replacing = row_ids is not None
        load = held[replacing]
        load.append(table.append_column(ROW_ID, row_ids) if replacing else table)
        if sum(t.num_rows for t in load) >= FILE_ROWS or sum(t.nbytes for t in load) >= FILE_BYTES:
            yield replacing, pa.concat_tables(load)
            load.clear()
    for replacing, load in held.items():
        if sum(t.num_rows for t in load):
            yield replacing, pa.concat_tables(load)
