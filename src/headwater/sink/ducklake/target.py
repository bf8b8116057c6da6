"""What Spark's workers do in a DuckLake: find and take out the rows that are replaced, write the new ones."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.ducklake import deletes
from headwater.ducklake.contents import read_columns, read_rows
from headwater.ducklake.model import Field, LakeTable, LiveFile, NewTable, PartitionKey
from headwater.ducklake.partitions import hive_folder, partition_at, partition_values, same_for_all
from headwater.ducklake.writing import ROW_ID, TableFolder, plain_type, write_data_file
from headwater.files import filesystem, inside
from headwater.lake.loads import FILE_ROWS, Load, completed
from headwater.lake.partitioning import divided, parts
from headwater.lake.recent import SMALL_FILE, Recent, RecentKeys
from headwater.lake.target import Destination, PartitionSet, Taken
from headwater.sink.ducklake.reports import TakenOut, Wrote

__all__ = ["DuckLakePlace", "DuckLakeTarget", "Landing", "landing"]

MOST_PARTITIONS = 1_000  # to look into for a bucket's keys; for more, all are searched
RECENT_BYTES = 32 << 20  # of small files' keys, in each worker


@dataclass(frozen=True, slots=True)
class DuckLakePlace:
    """A live data file of the table that mirrors `oid`, or without one of the quarantine."""

    oid: int | None
    file: LiveFile

    @property
    def rows(self) -> int:
        return self.file.record_count


@dataclass(frozen=True, slots=True)
class Landing:
    """A table of the lake to write to: its folder, its columns, which of them are the key, how it is partitioned."""

    path: str
    fields: tuple[Field, ...]
    key: tuple[Field, ...]
    partition_keys: tuple[PartitionKey, ...] = ()


def landing(table: LakeTable | NewTable, key: Sequence[str] = ()) -> Landing:
    by_name = {field.name: field for field in table.columns}
    known_by = tuple(by_name[name] for name in key if name in by_name)
    return Landing(table.path, table.columns, known_by, table.partition_keys)


@dataclass(frozen=True, slots=True)
class DuckLakeTarget:
    """Implements `headwater.lake.target.Target`. `snapshot` is the id the commit will most likely get."""

    landings: Mapping[int, Landing]  # by the source's OID
    quarantine: Landing
    snapshot: int
    source: str
    attempt: str = ""  # in the names of the files

    def landing(self, to: Destination) -> Landing:
        return self.quarantine if to.part == "quarantine" or to.oid is None else self.landings[to.oid]

    def _landing(self, place: DuckLakePlace) -> Landing:
        return self.quarantine if place.oid is None else self.landings[place.oid]

    def keys(self, place: DuckLakePlace) -> Iterator[tuple[int, list[pa.Array]]]:
        key = self._landing(place).key
        return _keys.get((place.file.path, key), place.rows, lambda: _read_keys(place.file, key))

    def rows(self, place: DuckLakePlace, positions: pa.Array) -> pa.Table:
        landing = self._landing(place)
        return read_rows(filesystem(place.file.path), place.file, landing.fields, positions.to_numpy())

    def gone(self, place: DuckLakePlace) -> npt.NDArray[np.int64]:
        return deletes.deleted_positions(filesystem(place.file.path), place.file)

    def take_out(self, place: DuckLakePlace, positions: pa.Array) -> Taken | None:
        if not len(positions):
            return None
        wanted = positions.to_numpy()
        path = self._landing(place).path
        alive = ~np.isin(wanted, self.gone(place), assume_unique=True)
        if not alive.any():
            return None
        gone = wanted[alive]
        report = TakenOut(
            deletes.delete_rows(
                TableFolder(filesystem(path), path, self.attempt), place.file, gone, snapshot=self.snapshot
            ),
            len(gone),
        )
        return Taken(pa.array(alive), self._row_ids(place.file, gone), pickle.dumps(report))

    def partitioned_by(self, oid: int) -> Collection[str]:
        landing = self.landings[oid]
        by_id = {field.id: field for field in landing.fields}
        found = ((key, by_id[key.column_id]) for key in landing.partition_keys)
        return {field.name for key, field in found if same_for_all(key, field.type)}

    def partitions(self, oid: int, columns: Mapping[str, pa.Array]) -> PartitionSet | None:
        landing = self.landings[oid]
        types = {field.id: field.type for field in landing.fields}
        values = {
            at: array
            for at, array in partition_values(landing.partition_keys, landing.fields, columns).items()
            if same_for_all(key := landing.partition_keys[at], types[key.column_id])
        }
        different = divided(list(values.values()))
        if len(different) > MOST_PARTITIONS:
            return None
        found = (partition_at(landing.partition_keys, landing.fields, values, int(rows[0])) for rows in different)
        return PartitionSet(tuple(values), frozenset(found))

    def write(self, to: Destination, rows: Iterable[tuple[pa.Table, pa.Array | None]]) -> list[bytes]:
        landing = self.landing(to)
        files, done = filesystem(landing.path), list[Wrote]()
        try:
            for replacing, load in _file_loads(rows, partitioned=bool(landing.partition_keys)):
                whole = completed(load, {each.name: plain_type(each) for each in landing.fields})
                for partition, part in _divided(whole, landing):
                    below = hive_folder(landing.partition_keys, landing.fields, partition)
                    where = TableFolder(files, landing.path, self.attempt, below)
                    file = write_data_file(where, part, landing.fields, with_row_ids=replacing)
                    done.append(Wrote(replace(file, partition=partition)))
        except Exception:  # the driver never learns of the files before it
            for each in done:
                files.delete_file(inside(landing.path) + each.file.path)
            raise
        return [pickle.dumps(each) for each in done]

    def _row_ids(self, file: LiveFile, positions: np.ndarray) -> pa.Array:
        """A row's id is in the file, if it was ever updated or moved; else it follows from its place."""
        if file.record_count > SMALL_FILE:
            kept = _read_row_ids(file.path)
        else:
            kept = _row_ids.get(file.path, lambda: _read_row_ids(file.path))
        return pa.array(file.row_id_start + positions) if kept is None else kept.take(pa.array(positions))


_keys = RecentKeys(RECENT_BYTES)
_row_ids = Recent[pa.Array | None](RECENT_BYTES // 4, lambda ids: () if ids is None else (ids,))


def _read_keys(file: LiveFile, key: tuple[Field, ...]) -> Iterator[tuple[int, list[pa.Array]]]:
    return read_columns(filesystem(file.path), file, key)


def _read_row_ids(path: str) -> pa.Array | None:
    with pq.ParquetFile(inside(path), filesystem=filesystem(path), pre_buffer=False) as parquet:
        if ROW_ID not in parquet.schema_arrow.names:
            return None
        return parquet.read([ROW_ID], use_threads=False)[ROW_ID].combine_chunks()


def _divided(rows: pa.Table, landing: Landing) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """The rows by partition; all of them, if the table is not partitioned."""
    if not landing.partition_keys:
        yield (), rows
        return
    ids = {key.column_id for key in landing.partition_keys}
    columns = {each.name: rows[each.name].combine_chunks() for each in landing.fields if each.id in ids}
    values = partition_values(landing.partition_keys, landing.fields, columns)
    for at, part in parts(rows, list(values.values()), FILE_ROWS):
        yield partition_at(landing.partition_keys, landing.fields, values, int(at[0])), part


def _file_loads(
    rows: Iterable[tuple[pa.Table, pa.Array | None]], *, partitioned: bool
) -> Iterator[tuple[bool, pa.Table]]:
    """Gather rows into loads of a file's size; rows with ids and rows without never share a file."""
    loads = {False: Load(partitioned), True: Load(partitioned)}
    for table, row_ids in rows:
        replacing = row_ids is not None
        load = loads[replacing]
        load.tables.append(table.append_column(ROW_ID, row_ids) if replacing else table)
        if load.is_full:
            yield replacing, load.unload()
    yield from ((replacing, load.unload()) for replacing, load in loads.items() if load)
