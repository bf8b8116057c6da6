"""What Spark's workers do in a DuckLake: find and take out the rows that are replaced, write the new ones."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.ducklake.asking import kept_open
from headwater.ducklake.catalog import Dialect
from headwater.ducklake.inlinedvalues import encoded
from headwater.ducklake.model import DataFile, Field, InlinedRows, LakeTable, NewTable, PartitionKey
from headwater.ducklake.partitions import hive_folder, partition_at, partition_values, same_for_all
from headwater.ducklake.writing import ROW_ID, TableFolder, plain_type, write_data_file
from headwater.files import filesystem, inside
from headwater.lake.loads import FILE_ROWS, Load, completed
from headwater.lake.partitioning import divided, parts
from headwater.lake.target import Destination, Outcome, PartitionSet, Rows, Taken, each_written
from headwater.pickling import pickled_by_fields
from headwater.sink.ducklake.places import DuckLakePlace, InlinedPlace, read_keys
from headwater.sink.ducklake.reports import Wrote

__all__ = ["DuckLakeTarget", "Landing", "landing"]

MOST_PARTITIONS = 1_000  # to look into for a bucket's keys; for more, all are searched


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Landing:
    """A table of the lake to write to: its folder, its columns, which of them are the key, how it is partitioned.

    With `inlined`, its rows go into the catalog, which speaks that dialect.
    """

    path: str
    fields: tuple[Field, ...]
    key: tuple[Field, ...]
    partition_keys: tuple[PartitionKey, ...] = ()
    inlined: Dialect | None = None


def landing(table: LakeTable | NewTable, key: Sequence[str] = (), inlined: Dialect | None = None) -> Landing:
    by_name = {field.name: field for field in table.columns}
    known_by = tuple(by_name[name] for name in key if name in by_name)
    return Landing(table.path, table.columns, known_by, table.partition_keys, inlined)


@dataclass(frozen=True, slots=True)
class DuckLakeTarget:
    """Implements `headwater.lake.target.Target`. `snapshot` is the id the commit will most likely get."""

    landings: Mapping[int, Landing]  # by the source's OID
    quarantine: Landing | None  # None: the stream has no misfits
    snapshot: int
    source: str
    attempt: str = ""  # in the names of the files

    def landing(self, to: Destination) -> Landing:
        return self._of(None if to.part == "quarantine" else to.oid)

    def _of(self, oid: int | None) -> Landing:
        """Without an OID, the quarantine."""
        found = self.quarantine if oid is None else self.landings[oid]
        assert found is not None, "a stream without misfits has nothing for a quarantine"
        return found

    def only(self, tables: Collection[int]) -> DuckLakeTarget:
        return replace(self, landings={oid: each for oid, each in self.landings.items() if oid in tables})

    @contextmanager
    def searching(self, places: Collection[DuckLakePlace]) -> Iterator[None]:
        inlined = [each for each in places if isinstance(each, InlinedPlace)]
        with kept_open({each.url for each in inlined}):
            read_keys([(each, self._of(each.oid).key) for each in inlined])
            yield

    def keys(self, place: DuckLakePlace) -> Iterator[tuple[int, list[pa.Array]]]:
        return place.keys(self._of(place.oid).key)

    def rows(self, place: DuckLakePlace, positions: pa.Array, columns: Collection[str] | None = None) -> pa.Table:
        fields = [each for each in self._of(place.oid).fields if columns is None or each.name in columns]
        return place.read(fields, positions)

    def identity(self, place: DuckLakePlace) -> str | None:
        return place.identity(self._of(place.oid).key)

    def row_ids(self, place: DuckLakePlace) -> pa.Array | None:
        return place.row_ids()

    def gone(self, place: DuckLakePlace) -> npt.NDArray[np.int64]:
        return place.gone()

    def take_out(self, place: DuckLakePlace, positions: pa.Array, row_ids: pa.Array | None = None) -> Taken | None:
        if not len(positions):
            return None
        path = self._of(place.oid).path
        where = TableFolder(filesystem(path), path, self.attempt)
        return place.take_out(positions, where, self.snapshot, row_ids)

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

    def write_each(self, shares: Mapping[Destination, Sequence[Rows]]) -> Iterator[tuple[Destination, Outcome]]:
        inlined = {to: self.landing(to) for to in shares if self.landing(to).inlined}
        done = _inlined_at_once(inlined, shares)
        yield from done.items()
        yield from each_written(self, {to: rows for to, rows in shares.items() if to not in done})

    def write(self, to: Destination, rows: Iterable[Rows]) -> list[bytes]:
        landing, rows = self.landing(to), list(rows) if self.landing(to).inlined else rows
        if landing.inlined and (inlined := _inlined(landing, landing.inlined, list(rows))) is not None:
            return inlined
        files, done = filesystem(landing.path), list[DataFile]()
        try:
            for replacing, load in _file_loads(rows, partitioned=bool(landing.partition_keys)):
                whole = completed(load, {each.name: plain_type(each) for each in landing.fields})
                for partition, part in _divided(whole, landing):
                    below = hive_folder(landing.partition_keys, landing.fields, partition)
                    where = TableFolder(files, landing.path, self.attempt, below)
                    file = write_data_file(where, part, landing.fields, with_row_ids=replacing)
                    done.append(replace(file, partition=partition))
        except Exception:  # the driver never learns of the files before it
            for each in done:
                files.delete_file(inside(landing.path) + each.path)
            raise
        return [pickle.dumps(Wrote(each)) for each in done]


def _inlined(landing: Landing, dialect: Dialect, rows: Sequence[Rows]) -> list[bytes] | None:
    """A report with the rows themselves; None if the catalog cannot hold one of their values."""
    found = _inlined_tables([(landing, rows)], dialect)
    return None if found is None else found[0]


def _inlined_at_once(
    landings: Mapping[Destination, Landing], shares: Mapping[Destination, Sequence[Rows]]
) -> dict[Destination, list[bytes]]:
    """The same for many tables, as far as several have columns of the same names and types."""
    alike: defaultdict[Hashable, list[Destination]] = defaultdict(list)
    for to, landing in landings.items():
        alike[landing.inlined, *((each.name, each.type, each.children) for each in landing.fields)].append(to)
    done: dict[Destination, list[bytes]] = {}
    for tos in alike.values():
        dialect = landings[tos[0]].inlined
        assert dialect is not None, "it is one whose rows go into the catalog"
        found = _inlined_tables([(landings[to], shares[to]) for to in tos], dialect)
        done |= {} if found is None else dict(zip(tos, found, strict=True))
    return done


def _inlined_tables(tables: Sequence[tuple[Landing, Sequence[Rows]]], dialect: Dialect) -> list[list[bytes]] | None:
    """For each of some tables that are alike a report with its rows; none if there are no rows."""
    fields = tables[0][0].fields
    types = {each.name: plain_type(each) for each in fields}
    parts = [[(completed(rows, types), ids) for rows, ids in mine if rows.num_rows] for _, mine in tables]
    if not any(parts):
        return [[] for _ in tables]
    values = encoded(pa.concat_tables([rows for mine in parts for rows, _ in mine]), fields, dialect)
    if values is None:
        return None
    reports, first = list[list[bytes]](), 0
    for (landing, _), mine in zip(tables, parts, strict=True):
        ids = [id_ for rows, ids in mine for id_ in ([None] * rows.num_rows if ids is None else ids.to_pylist())]
        end = first + len(ids)
        rows = InlinedRows(landing.fields, [column[first:end] for column in values], ids)
        reports.append([pickle.dumps(Wrote(rows))] if ids else [])
        first = end
    return reports


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
