"""Where rows of a DuckLake are that a delivery may replace: in a data file, or in the catalog itself."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.ducklake import deletes
from headwater.ducklake.asking import asked_at_once, asking
from headwater.ducklake.contents import read_columns, read_rows
from headwater.ducklake.inlined import LIVE, InlinedTable, ReadRows, read_inlined, read_inlined_tables
from headwater.ducklake.model import Field, InlinedEnds, LiveFile
from headwater.ducklake.url import LakeUrl
from headwater.ducklake.writing import ROW_ID, TableFolder
from headwater.errors import CommitConflict, TableError
from headwater.files import filesystem, inside
from headwater.lake.indexes import file_identity
from headwater.lake.recent import SMALL_FILE, Recent, RecentKeys
from headwater.lake.target import Taken
from headwater.pickling import pickled_by_fields
from headwater.sink.ducklake.reports import TakenOut

__all__ = ["DuckLakePlace", "FilePlace", "InlinedPlace", "read_keys"]

RECENT_BYTES = 32 << 20  # of small files' keys, in each worker


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class FilePlace:
    """A live data file of the table that mirrors `oid`, or without one of the quarantine."""

    oid: int | None
    file: LiveFile

    @property
    def rows(self) -> int:
        return self.file.record_count

    def keys(self, key: tuple[Field, ...]) -> Iterator[tuple[int, list[pa.Array]]]:
        return _keys.get((self.file.path, key), self.rows, lambda: _read_keys(self.file, key))

    def read(self, fields: Sequence[Field], positions: pa.Array) -> pa.Table:
        return read_rows(filesystem(self.file.path), self.file, fields, positions.to_numpy())

    def identity(self, key: tuple[Field, ...]) -> str | None:
        return f"{file_identity(self.file.path, self.rows)} {self.file.mapping_id} {key}"

    def row_ids(self) -> pa.Array | None:
        return _read_row_ids(self.file.path)

    def gone(self) -> npt.NDArray[np.int64]:
        return deletes.deleted_positions(filesystem(self.file.path), self.file)

    def take_out(
        self, positions: pa.Array, where: TableFolder, snapshot: int, row_ids: pa.Array | None = None
    ) -> Taken | None:
        wanted = positions.to_numpy()
        alive = ~_among(wanted, self.gone())
        if not alive.any():
            return None
        gone = wanted[alive]
        report = TakenOut(deletes.delete_rows(where, self.file, gone, snapshot=snapshot), len(gone))
        ids = self._row_ids(gone) if row_ids is None else row_ids.filter(pa.array(alive))
        return Taken(pa.array(alive), ids, pickle.dumps(report))

    def _row_ids(self, positions: npt.NDArray[np.int64]) -> pa.Array:
        """A row's id is in the file, if it was ever updated or moved; else it follows from its place."""
        file = self.file
        if file.record_count > SMALL_FILE:
            kept = _read_row_ids(file.path)
        else:
            kept = _row_ids.get(file.path, lambda: _read_row_ids(file.path))
        if kept is None:
            assert file.row_id_start is not None, "a file without row ids has numbered rows"
            return pa.array(file.row_id_start + positions)
        return kept.take(pa.array(positions))


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class InlinedPlace:
    """Rows of the table that mirrors `oid` which are in a table of the catalog, as they are in a snapshot.

    A row's position is its number among them in the order of their ids.
    """

    oid: int | None
    url: LakeUrl
    table: InlinedTable
    snapshot: int
    rows: int

    def __hash__(self) -> int:
        return hash((self.table.name, self.snapshot))  # enough, and asked for several times in a search

    def keys(self, key: tuple[Field, ...]) -> Iterator[tuple[int, list[pa.Array]]]:
        found = _inlined_keys.get((self, key), lambda: self._read(key))
        _inlined_ids.put(self, found.ids)
        yield 0, [column.combine_chunks() for column in found.columns.itercolumns()]

    def read(self, fields: Sequence[Field], positions: pa.Array) -> pa.Table:
        return self._read(fields).columns.take(positions)

    def identity(self, key: tuple[Field, ...]) -> str | None:  # noqa: ARG002
        return None

    def row_ids(self) -> pa.Array | None:
        return None

    def gone(self) -> npt.NDArray[np.int64]:
        return np.empty(0, np.int64)

    def take_out(
        self,
        positions: pa.Array,
        where: TableFolder,  # noqa: ARG002
        snapshot: int,  # noqa: ARG002
        row_ids: pa.Array | None = None,  # noqa: ARG002
    ) -> Taken | None:
        ids = _inlined_ids.get(self, lambda: self._read(()).ids).take(positions)
        report = TakenOut(InlinedEnds(self.table.name, len(ids), tuple(ids.to_pylist())), len(ids))
        return Taken(pa.repeat(pa.scalar(True), len(ids)), ids, pickle.dumps(report))

    def _read(self, fields: Sequence[Field]) -> ReadRows:
        there = asked_at_once(self.url)  # in the transaction that the place was found in
        with asking(self.url) as tx:
            if there or tx.existing([self.table.name]):
                found = read_inlined(tx, self.table, fields, LIVE, self.snapshot, self.snapshot)
                if len(found.ids) == self.rows:
                    return found
        raise CommitConflict(f"rows in {self.table.name!r} were moved to a file meanwhile", hint="plan again")


DuckLakePlace = FilePlace | InlinedPlace


def _among(wanted: npt.NDArray[np.int64], ascending: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which of these numbers are among others; `np.isin` takes many times as long for a few."""
    if not len(ascending):
        return np.zeros(len(wanted), bool)
    near = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return np.asarray(ascending[near] == wanted)


_keys = RecentKeys(RECENT_BYTES)
_inlined_keys = Recent[ReadRows](RECENT_BYTES // 4, lambda rows: (rows.ids, *rows.columns.columns))
_inlined_ids = Recent[pa.Array](RECENT_BYTES // 4, lambda ids: (ids,))
_row_ids = Recent[pa.Array | None](RECENT_BYTES // 4, lambda ids: () if ids is None else (ids,))


def read_keys(wanted: Sequence[tuple[InlinedPlace, tuple[Field, ...]]]) -> None:
    """Read the keys of many places with few rows in few queries: `InlinedPlace.keys` finds them then.

    Those that are not as they were planned are left out; whoever looks into them will find out why.
    """
    alike: defaultdict[tuple[LakeUrl, int], list[tuple[InlinedPlace, tuple[Field, ...]]]] = defaultdict(list)
    for place, key in wanted:
        if place.rows <= SMALL_FILE:
            alike[place.url, place.snapshot].append((place, key))
    for (url, snapshot), mine in alike.items():
        if len(mine) > 1:
            try:
                with asking(url) as tx:
                    found = read_inlined_tables(tx, [(place.table, key) for place, key in mine], snapshot)
            except TableError:  # of one of them
                continue
            for (place, key), rows in zip(mine, found, strict=True):
                if rows is not None and len(rows.ids) == place.rows:
                    _inlined_keys.put((place, key), rows)


def _read_keys(file: LiveFile, key: tuple[Field, ...]) -> Iterator[tuple[int, list[pa.Array]]]:
    return read_columns(filesystem(file.path), file, key)


def _read_row_ids(path: str) -> pa.Array | None:
    with pq.ParquetFile(inside(path), filesystem=filesystem(path), pre_buffer=False) as parquet:
        if ROW_ID not in parquet.schema_arrow.names:
            return None
        return parquet.read([ROW_ID], use_threads=False)[ROW_ID].combine_chunks()
