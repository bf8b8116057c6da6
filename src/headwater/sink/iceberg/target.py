"""What Spark's workers do in an Iceberg table: find and take out the rows that are replaced, write the new ones."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from headwater.files import S3, filesystem, inside
from headwater.iceberg.credentials import s3_of_table
from headwater.iceberg.model import LiveFile, Partition
from headwater.iceberg.partitions import partition_at, partition_values, sources_of
from headwater.iceberg.types import plain_type
from headwater.iceberg.writing import DataFolder, deleted_positions, write_data_file, write_delete_file
from headwater.lake import parquet
from headwater.lake.indexes import file_identity
from headwater.lake.loads import FILE_ROWS, Load, completed
from headwater.lake.parquet import StoredColumn
from headwater.lake.partitioning import divided, parts
from headwater.lake.recent import RecentKeys
from headwater.lake.target import Destination, Outcome, PartitionSet, Reports, Rows, Taken, each_written
from headwater.sink.iceberg.reports import TakenOut, Wrote, delete_files

__all__ = ["IcebergPlace", "IcebergTarget", "Landing", "landing", "stored_columns"]

MOST_PARTITIONS = 1_000  # to look into for a bucket's keys; for more, all are searched
RECENT_BYTES = 32 << 20  # of small files' keys, in each worker
DELETE_FILES = 8  # of one data file; at the next delete they become one


@dataclass(frozen=True, slots=True)
class IcebergPlace:
    """A live data file of the table that mirrors `oid`, or without one of the quarantine."""

    oid: int | None
    file: LiveFile

    @property
    def rows(self) -> int:
        return self.file.rows


@dataclass(frozen=True, slots=True)
class Landing:
    """A table of the lake to write to: where its files go, its columns, its key's field ids, how it is partitioned."""

    location: str
    s3: S3 | None
    schema: Schema
    key: tuple[int, ...]
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC


def landing(
    table: Table, schema: Schema, key: Sequence[str] = (), spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
) -> Landing:
    """The table with the columns and the partitions that it gets."""
    by_name = {field.name: field.field_id for field in schema.fields}
    ids = tuple(by_name[name] for name in key if name in by_name)
    return Landing(table.metadata.location, s3_of_table(table), schema, ids, spec)


@dataclass(frozen=True, slots=True)
class IcebergTarget:
    """Implements `headwater.lake.target.Target`."""

    landings: Mapping[int, Landing]  # by the source's OID
    quarantine: Landing
    source: str
    attempt: str  # in the names of the files

    def landing(self, to: Destination) -> Landing:
        return self.quarantine if to.part == "quarantine" or to.oid is None else self.landings[to.oid]

    def only(self, tables: Collection[int]) -> IcebergTarget:
        return replace(self, landings={oid: each for oid, each in self.landings.items() if oid in tables})

    def searching(self, places: Collection[IcebergPlace]) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def keys(self, place: IcebergPlace) -> Iterator[tuple[int, list[pa.Array]]]:
        landing = self._landing(place)
        by_id = {field.field_id: field for field in landing.schema.fields}
        key = tuple(by_id[id_] for id_ in landing.key)
        return _keys.get((place.file.path, landing.key), place.rows, lambda: self._read_keys(place, key))

    def identity(self, place: IcebergPlace) -> str | None:
        landing = self._landing(place)
        return f"{file_identity(place.file.path, place.rows, landing.s3)} {landing.key}"

    def row_ids(self, place: IcebergPlace) -> pa.Array | None:  # noqa: ARG002
        return None

    def gone(self, place: IcebergPlace) -> npt.NDArray[np.int64]:
        return deleted_positions(self._files(place), place.file)

    def rows(self, place: IcebergPlace, positions: pa.Array, columns: Collection[str] | None = None) -> pa.Table:
        fields = [each for each in self._landing(place).schema.fields if columns is None or each.name in columns]
        with parquet.opened(self._files(place), place.file.path) as opened:
            return parquet.read_rows(opened, stored_columns(opened, fields), positions.to_numpy())

    def take_out(
        self,
        place: IcebergPlace,
        positions: pa.Array,
        row_ids: pa.Array | None = None,  # noqa: ARG002
    ) -> Taken | None:
        wanted, file = positions.to_numpy(), place.file
        gone = self.gone(place) if len(wanted) else np.empty(0, np.int64)
        alive = ~np.isin(wanted, gone, assume_unique=True)
        if not alive.any():
            return None
        at, own = wanted[alive], tuple(each.path for each in file.deletes if each.of == file.path)
        where = self._folder(self._landing(place))
        if len(at) + len(gone) == file.rows:
            report = TakenOut(file.path, len(at), None, (file.path, *own))
        elif len(own) >= DELETE_FILES:
            report = TakenOut(file.path, len(at), write_delete_file(where, file, np.union1d(at, gone)), own)
        else:
            report = TakenOut(file.path, len(at), write_delete_file(where, file, at))
        return Taken(pa.array(alive), pa.nulls(len(at), pa.int64()), pickle.dumps(report))

    def partitioned_by(self, oid: int) -> Collection[str]:
        landing = self.landings[oid]
        ids = sources_of(landing.spec)
        return {field.name for field in landing.schema.fields if field.field_id in ids}

    def partitions(self, oid: int, columns: Mapping[str, pa.Array]) -> PartitionSet | None:
        spec, schema = self.landings[oid].spec, self.landings[oid].schema
        values = partition_values(spec, schema, columns)
        different = divided(list(values.values()))
        if len(different) > MOST_PARTITIONS:
            return None
        found = (partition_at(spec, schema, values, int(rows[0])) for rows in different)
        return PartitionSet(tuple(values), frozenset(found))

    def write(self, to: Destination, rows: Iterable[Rows]) -> list[bytes]:
        landing, done = self.landing(to), list[Wrote]()
        where = self._folder(landing)
        try:
            for replacing, load in _file_loads(rows, partitioned=bool(landing.spec.fields)):
                table = completed(load, {each.name: plain_type(each.field_type) for each in landing.schema.fields})
                for partition, at, part in _divided(table, landing):
                    file = write_data_file(where, part, landing.schema, landing.spec.spec_id, partition)
                    done.append(Wrote(file, int(np.count_nonzero(replacing[at]))))
        except Exception:  # no report will name those before it
            for each in done:
                where.files.delete_file(inside(each.file.path))
            raise
        return [pickle.dumps(each) for each in done]

    def write_each(self, shares: Mapping[Destination, Sequence[Rows]]) -> Iterator[tuple[Destination, Outcome]]:
        return each_written(self, shares)

    def discard(self, reports: Reports) -> None:
        """Delete the files of reports that do not land."""
        for to, notes in reports.items():
            delete_files(notes, self.landing(to).s3)

    def _landing(self, place: IcebergPlace) -> Landing:
        return self.quarantine if place.oid is None else self.landings[place.oid]

    def _files(self, place: IcebergPlace) -> fs.FileSystem:
        return filesystem(place.file.path, self._landing(place).s3)

    def _folder(self, landing: Landing) -> DataFolder:
        return DataFolder(filesystem(landing.location, landing.s3), landing.location, self.attempt)

    def _read_keys(self, place: IcebergPlace, key: Sequence[NestedField]) -> Iterator[tuple[int, list[pa.Array]]]:
        with parquet.opened(self._files(place), place.file.path) as opened:
            yield from parquet.read_columns(opened, stored_columns(opened, key))


_keys = RecentKeys(RECENT_BYTES)


def stored_columns(opened: pq.ParquetFile, fields: Sequence[NestedField]) -> list[StoredColumn]:
    """Columns by field id; those that the file is too old to have are null in every row."""
    by_id = {parquet.field_id(field): field.name for field in opened.schema_arrow}
    return [StoredColumn(each.name, plain_type(each.field_type), by_id.get(each.field_id)) for each in fields]


def _divided(rows: pa.Table, landing: Landing) -> Iterator[tuple[Partition, Any, pa.Table]]:
    """The rows by partition, with their numbers; all of them, if the table is not partitioned."""
    spec, schema = landing.spec, landing.schema
    if not spec.fields:
        yield (), slice(None), rows
        return
    ids = sources_of(spec)
    columns = {each.name: rows[each.name].combine_chunks() for each in schema.fields if each.field_id in ids}
    values = partition_values(spec, schema, columns)
    for at, part in parts(rows, list(values.values()), FILE_ROWS):
        yield partition_at(spec, schema, values, int(at[0])), at, part


def _file_loads(
    rows: Iterable[tuple[pa.Table, pa.Array | None]], *, partitioned: bool
) -> Iterator[tuple[npt.NDArray[np.bool_], pa.Table]]:
    """Gather rows into loads of a file's size, each with which of its rows replace older ones."""
    load, replacing = Load(partitioned), list[npt.NDArray[np.bool_]]()
    for table, row_ids in rows:
        load.tables.append(table)
        replacing.append(np.full(table.num_rows, row_ids is not None))
        if load.is_full:
            yield np.concatenate(replacing), load.unload()
            replacing.clear()
    if load:
        yield np.concatenate(replacing), load.unload()
