"""A DuckLake as the end of the pipeline: tables, files, deletes and positions land in one snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Generic

from headwater.change import TableName
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import PlannedCommit
from headwater.ducklake.partitions import SUPPORT, partition_keys
from headwater.ducklake.together import commit_together
from headwater.ducklake.url import PostgresUrl
from headwater.errors import HeadwaterError
from headwater.lake.names import Names
from headwater.lake.sink import Landed, MirrorSpec, TableSnapshot
from headwater.lake.stream import P, Stream
from headwater.lake.target import Reports
from headwater.sink.ducklake.columns import fields_of
from headwater.sink.ducklake.copying import CopyNote, DuckLakeCopy, NewMirror, renamed
from headwater.sink.ducklake.delivery import DuckLakeDelivery, DuckLakePlan
from headwater.sink.ducklake.lost import drop_quarantine, lost
from headwater.sink.ducklake.maintaining import DuckLakeMaintenance
from headwater.sink.ducklake.moments import snapshots_at
from headwater.sink.ducklake.quarantine import AUTHOR, found_quarantine, new_quarantine, quarantine_table
from headwater.sink.ducklake.reader import DuckLakeReader
from headwater.sink.ducklake.reports import data_bytes
from headwater.sink.ducklake.standing import DuckLakeStanding, standings, standings_now
from headwater.sink.ducklake.target import DuckLakeTarget, landing

__all__ = ["DuckLakeSink"]


class DuckLakeSink(Generic[P]):
    """Implements `headwater.lake.sink.Sink`.

    Exactly once: a commit names the position it starts from, and lands only if the lake stands there.
    """

    calendar_only = False
    lake_snapshots = True

    def __init__(self, lake: Lake, source: str, stream: Stream[P], *, prepared: bool = True) -> None:
        self._lake = lake
        self.source = source
        self._stream = stream
        self._prepared = prepared  # for Headwater's own tables; a lake that is only looked at need not be

    def standings(self) -> Mapping[int, DuckLakeStanding[P]]:
        return standings(self._lake, self.source, self._stream.position) if self._prepared else {}

    def lake_id(self) -> str:
        return self._lake.id()

    def lost(self, *, every_file: bool = False) -> Mapping[TableName, str]:
        return lost(self._lake, self.source, self._stream, every_file=every_file) if self._prepared else {}

    def drop_quarantine(self) -> None:
        if self._stream.misfits:
            drop_quarantine(self._lake, self.source)

    def reader(self, snapshot_id: int) -> DuckLakeReader:
        return DuckLakeReader(self._lake.url, self._lake.s3, snapshot_id)

    def snapshots_at(self, at: P) -> Mapping[int, TableSnapshot[P]]:
        return snapshots_at(self._lake, self.source, self.standings(), at)

    @property
    def shared(self) -> str | None:
        return self._lake.url.conninfo if isinstance(self._lake.url, PostgresUrl) else None

    def land_together(
        self, parts: Sequence[tuple[DuckLakeDelivery[P], Reports, Mapping[int, P]]]
    ) -> list[Landed | HeadwaterError]:
        planned = [delivery.planned(reports, (), upto, {}) for delivery, reports, upto in parts]
        lakes = [delivery.plan.lake for delivery, _, _ in parts]
        done = commit_together([(lake, commit) for lake, (commit, _) in zip(lakes, planned, strict=True)])
        return [
            Landed(id_, counts, bytes=data_bytes(commit.changes)) if isinstance(id_, int) else id_
            for id_, (commit, counts) in zip(done, planned, strict=True)
        ]

    def kept_open(self) -> AbstractContextManager[None]:
        return self._lake.kept_open()

    def at_once(self) -> AbstractContextManager[None]:
        return self._lake.at_once()

    def plan(self) -> DuckLakePlan[P]:
        plan = self._planned()
        if self._stream.misfits and plan.quarantine is None:
            quarantine_table(self._lake, self.source)
            plan = self._planned()
        return plan

    def _planned(self) -> DuckLakePlan[P]:
        """A plan on what the lake has at this moment."""
        lake = self._lake
        with lake.at_once():
            kept = found_quarantine(lake) if self._stream.misfits else None
            newest, here = standings_now(lake, self.source, self._stream.position)
            return DuckLakePlan(lake, self.source, newest, here, kept)

    def new_mirror(self, spec: MirrorSpec) -> NewMirror[P]:
        fields, mirrored = fields_of(spec.relation, dict(spec.kinds), with_history=spec.history)
        with self._lake.at_once():
            here, oid = self.standings(), spec.relation.oid
            table = self._lake.new_table(spec.name, fields)
        gone = {each: here[each] for each in (oid, *spec.replaces) if each in here}
        spec.check_partitions(SUPPORT)
        keys = partition_keys(spec.partition_by, table.columns)
        return NewMirror(oid, replace(table, partition_keys=keys), mirrored, gone)

    def begin_copy(
        self, mirrors: Sequence[NewMirror[P]], names: Mapping[int, TableName], attempt: str | None = None
    ) -> DuckLakeCopy[P]:
        landings = {each.oid: landing(each.table) for each in mirrors}
        with self._lake.at_once():
            snapshot = self._lake.snapshot()
            new = new_quarantine(self._lake) if self._stream.misfits else None
            kept = new or (found_quarantine(self._lake) if self._stream.misfits else None)
        name = attempt or self._lake.begin(self._copies)
        target = DuckLakeTarget(landings, landing(kept) if kept else None, snapshot.id + 1, self.source, name)
        return DuckLakeCopy(self._lake, mirrors, names, target, attempt is None, new)

    def taken_up(self, mirror: NewMirror[P], note: bytes, *, misfits: bool) -> NewMirror[P] | None:
        kept = CopyNote.read(note)
        if kept is None or replace(kept.table, uuid=mirror.table.uuid, path=mirror.table.path) != mirror.table:
            return None
        with self._lake.at_once():
            here = found_quarantine(self._lake) if misfits else None
        if misfits and (here is None or here.path != kept.quarantine):
            return None
        return replace(mirror, table=kept.table)

    def has_landed(self, oid: int, note: bytes) -> bool:
        kept, there = CopyNote.read(note), self.standings().get(oid)
        return kept is not None and there is not None and self._lake.uuid_of(there.table) == kept.table.uuid

    def names(self, given_up: Iterable[int]) -> Names:
        here = self.standings()
        return self._lake.names([here[oid].table.id for oid in given_up if oid in here])

    def rename(self, names: Mapping[int, TableName]) -> None:
        alterations = renamed(self._lake, self.source, self._stream.position, names)
        self._lake.commit(PlannedCommit(self._lake.snapshot(), self.source, alterations=alterations, author=AUTHOR))

    def collect(self, attempts: Collection[str] = ()) -> int:
        return self._lake.collect(self.source, attempts)

    def collect_copies(self, unfinished: Collection[str] = ()) -> int:
        return self._lake.collect(self._copies, spared=unfinished)

    @property
    def _copies(self) -> str:
        """Under which name copies are noted: a delivery takes all attempts under its own that it finds for dead."""
        return f"{self.source}/copy"

    def probe(self) -> None:
        self.standings()
        self._lake.probe(self.source)

    def maintenance(self) -> DuckLakeMaintenance:
        return DuckLakeMaintenance(self._lake, self.source, self._stream.position)

    def look_again(self) -> None:
        """Nothing is remembered: every plan asks the catalog."""

    def close(self) -> None:
        self._lake.close()
