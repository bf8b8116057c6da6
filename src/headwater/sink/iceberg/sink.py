"""An Iceberg catalog as the end of the pipeline: one snapshot per table and delivery, which carries the position."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Generic

from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table

from headwater.change import TableName
from headwater.errors import HeadwaterError
from headwater.iceberg.catalog import IcebergCatalog, check_name
from headwater.iceberg.credentials import s3_of_table
from headwater.iceberg.fileio import reaching_files
from headwater.iceberg.partitions import SUPPORT, new_spec
from headwater.lake import quarantine
from headwater.lake.sink import Landed, MirrorSpec, TableSnapshot, one_by_one
from headwater.lake.stream import P, Stream
from headwater.lake.target import Reports
from headwater.sink.iceberg.collecting import collected
from headwater.sink.iceberg.columns import columns_of
from headwater.sink.iceberg.copying import CopyNote, IcebergCopy, NewMirror, staged
from headwater.sink.iceberg.delivery import IcebergPlan
from headwater.sink.iceberg.healing import heal
from headwater.sink.iceberg.lake import IcebergLake
from headwater.sink.iceberg.lost import drop_quarantine, lost
from headwater.sink.iceberg.maintaining import IcebergMaintenance
from headwater.sink.iceberg.moments import snapshots_at
from headwater.sink.iceberg.naming import IcebergNames, rename_mirrors
from headwater.sink.iceberg.reader import IcebergReader, ReadTable
from headwater.sink.iceberg.standing import COPY, IcebergStanding, showing, stretches
from headwater.sink.iceberg.target import IcebergTarget, landing

__all__ = ["IcebergSink"]


class IcebergSink(Generic[P]):
    """Implements `headwater.lake.sink.Sink`.

    Exactly once: a table's snapshot names the position it stands at, and the next one lands only on that snapshot. An
    attempt is always noted in the lake, where its marker names the folders that it writes to.
    """

    calendar_only = True  # Iceberg has no infinity: readers take DuckDB's number for a day of the year 5881580
    lake_snapshots = False

    def __init__(self, catalog: IcebergCatalog, source: str, stream: Stream[P]) -> None:
        self._catalog = catalog
        self._lake = IcebergLake(catalog, source, stream)
        self.source = source

    def prepare(self) -> None:
        self._lake.prepare()

    def standings(self) -> Mapping[int, IcebergStanding[P]]:
        return self._lake.standings()

    def lake_id(self) -> str:
        return self._lake.id()

    def lost(self, *, every_file: bool = False) -> Mapping[TableName, str]:
        return lost(self._lake, every_file=every_file) if self._lake.id() else {}

    def drop_quarantine(self) -> None:
        drop_quarantine(self._lake)

    @reaching_files()
    def reader(self, snapshot_id: int) -> IcebergReader:
        lake, at = self._lake, self._lake.stream.position(snapshot_id)
        lake.forget()  # a running delivery may have moved the tables since
        tables = {}
        for each in lake.standings().values():
            if (shown := showing(stretches(each, self.source), at)) is not None:
                tables[each.name] = _read_table(each.table, shown.snapshot_id)
        kept = lake.quarantine()
        current = kept.metadata.current_snapshot()
        tables[quarantine.NAME] = _read_table(kept, current.snapshot_id if current else None)
        return IcebergReader(tables)

    def snapshots_at(self, at: P) -> Mapping[int, TableSnapshot[P]]:
        self._lake.forget()
        return snapshots_at(self.source, self.standings(), at)

    shared = None

    def land_together(self, parts: Sequence[tuple[Any, Reports, Mapping[int, P]]]) -> list[Landed | HeadwaterError]:
        return one_by_one(parts)

    def kept_open(self) -> AbstractContextManager[None]:
        return nullcontext()

    def at_once(self) -> AbstractContextManager[None]:
        return nullcontext()

    def plan(self) -> IcebergPlan[P]:
        self._lake.renew()
        return IcebergPlan(self._lake, dict(self.standings()))

    def new_mirror(self, spec: MirrorSpec) -> NewMirror[P]:
        check_name(spec.name)
        here, oid = self.standings(), spec.relation.oid
        gone = {each: here[each] for each in (oid, *spec.replaces) if each in here}
        place = next((each for each in gone.values() if each.name == spec.name), gone.get(oid))
        if place is not None:
            place.check_writable()
        before = place.table.metadata if place else None
        columns = columns_of(spec.relation, spec.kinds, with_history=spec.history, before=before)
        spec.check_partitions(SUPPORT)
        divided = new_spec(spec.partition_by, columns.schema, before)
        return NewMirror(oid, spec.name, columns, gone, place, divided)

    @reaching_files()
    def begin_copy(
        self,
        mirrors: Sequence[NewMirror[P]],
        names: Mapping[int, TableName],
        attempt: str | None = None,
    ) -> IcebergCopy[P]:
        ready = [staged(self._lake, each) for each in mirrors]
        landings = {each.mirror.oid: each.landing for each in ready}
        kept = self._lake.quarantine()
        own = landing(kept, kept.schema(), quarantine.KNOWN_BY)
        attempts = self._lake.copies if attempt is None else self._lake.attempts
        noted = attempts.begin([each.location for each in (*landings.values(), own)])
        target = IcebergTarget(landings, own, self.source, noted)
        return IcebergCopy(self._lake, ready, names, target, attempts)

    def taken_up(self, mirror: NewMirror[P], note: bytes, *, misfits: bool) -> NewMirror[P] | None:  # noqa: ARG002
        kept = CopyNote.read(note)
        here = None if mirror.place is None else mirror.place.table.metadata.location
        if kept.shape != mirror.shape or here not in (None, kept.location):
            return None
        return replace(mirror, copy=kept.copy, location=kept.location)

    def has_landed(self, oid: int, note: bytes) -> bool:
        there = self.standings().get(oid)
        return there is not None and there.table.metadata.properties.get(COPY) == CopyNote.read(note).copy

    def names(self, given_up: Iterable[int]) -> IcebergNames:
        here = self.standings()
        return IcebergNames(self._catalog, {here[oid].name for oid in given_up if oid in here})

    def rename(self, names: Mapping[int, TableName]) -> None:
        try:
            rename_mirrors(self._lake, names)
        except HeadwaterError:
            self._lake.forget()
            raise

    def collect(self, attempts: Collection[str] = ()) -> int:  # noqa: ARG002
        self._lake.renew()
        count = collected(self._lake, self._lake.attempts)
        heal(self._lake)
        return count

    def collect_copies(self, unfinished: Collection[str] = ()) -> int:
        self._lake.renew()
        return collected(self._lake, self._lake.copies, unfinished)

    def probe(self) -> None:
        self.standings()

    def maintenance(self) -> IcebergMaintenance:
        self._lake.renew()
        return IcebergMaintenance(self._lake)

    def look_again(self) -> None:
        self._lake.forget()

    def close(self) -> None:
        self._catalog.close()


def _read_table(table: Table, snapshot: int | None) -> ReadTable:
    return ReadTable(_kept_metadata(table), snapshot, s3_of_table(table))


def _kept_metadata(table: Table) -> str:
    """A copy of the table's metadata: deliveries delete their own after some commits, and a reader may take longer.

    `headwater maintain` deletes the copy, as it does any file that the table does not have.
    """
    path = f"{table.metadata.location}/metadata/headwater-{uuid.uuid4().hex}.metadata.json"
    ToOutputFile.table_metadata(table.metadata, table.io.new_output(path))
    return path
