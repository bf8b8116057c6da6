"""A DuckLake as the end of the pipeline: tables, files, deletes and positions land in one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from headwater.change import Lsn, TableName
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import PlannedCommit
from headwater.ducklake.partitions import SUPPORT, partition_keys
from headwater.lake.names import Names
from headwater.lake.sink import MirrorSpec, TableSnapshot
from headwater.sink.ducklake.columns import fields_of
from headwater.sink.ducklake.copying import DuckLakeCopy, NewMirror, renamed
from headwater.sink.ducklake.delivery import DuckLakePlan
from headwater.sink.ducklake.lost import drop_quarantine, lost
from headwater.sink.ducklake.moments import snapshots_at
from headwater.sink.ducklake.quarantine import AUTHOR, new_quarantine, quarantine_table
from headwater.sink.ducklake.reader import DuckLakeReader
from headwater.sink.ducklake.standing import DuckLakeStanding, standings
from headwater.sink.ducklake.target import DuckLakeTarget, landing

__all__ = ["DuckLakeSink"]


class DuckLakeSink:
    """Implements `headwater.lake.sink.Sink`.

    Exactly once: a commit names the position it starts from, and lands only if the lake stands there.
    """

    calendar_only = False
    lake_snapshots = True

    def __init__(self, lake: Lake, source: str, *, prepared: bool = True) -> None:
        self._lake = lake
        self.source = source
        self._prepared = prepared  # for Headwater's own tables; a lake that is only looked at need not be

    def standings(self) -> Mapping[int, DuckLakeStanding]:
        return standings(self._lake, self.source) if self._prepared else {}

    def lake_id(self) -> str:
        return self._lake.id()

    def lost(self, *, every_file: bool = False) -> Mapping[TableName, str]:
        return lost(self._lake, self.source, every_file=every_file) if self._prepared else {}

    def drop_quarantine(self) -> None:
        drop_quarantine(self._lake, self.source)

    def reader(self, snapshot_id: int) -> DuckLakeReader:
        return DuckLakeReader(self._lake.url, self._lake.s3, snapshot_id)

    def snapshots_at(self, at: Lsn) -> Mapping[int, TableSnapshot[Lsn]]:
        return snapshots_at(self._lake, self.source, self.standings(), at)

    def plan(self) -> DuckLakePlan:
        # The snapshot is read first, so that what others change after it is noticed at the commit.
        base, here = self._lake.snapshot(), self.standings()
        # Another client may have put rows into the catalog itself, where no file holds them: have them moved.
        for table_id in self._lake.inlined_rows([each.table.id for each in here.values()]):
            self._lake.flush_inlined(next(each.table for each in here.values() if each.table.id == table_id))
            base = self._lake.snapshot()
        return DuckLakePlan(self._lake, self.source, base, here, quarantine_table(self._lake, self.source))

    def new_mirror(self, spec: MirrorSpec) -> NewMirror:
        here, oid = self.standings(), spec.relation.oid
        gone = {each: here[each] for each in (oid, *spec.replaces) if each in here}
        fields, mirrored = fields_of(spec.relation, dict(spec.kinds), with_history=spec.history)
        table = self._lake.new_table(spec.name, fields)
        spec.check_partitions(SUPPORT)
        keys = partition_keys(spec.partition_by, table.columns)
        return NewMirror(oid, replace(table, partition_keys=keys), mirrored, gone)

    def begin_copy(self, mirrors: Sequence[NewMirror], names: Mapping[int, TableName]) -> DuckLakeCopy:
        new = new_quarantine(self._lake)
        landings = {each.oid: landing(each.table) for each in mirrors}
        kept = landing(new or quarantine_table(self._lake, self.source))
        attempt = self._lake.begin(self.source)
        target = DuckLakeTarget(landings, kept, self._lake.snapshot().id + 1, self.source, attempt)
        return DuckLakeCopy(self._lake, mirrors, names, target, new)

    def names(self, given_up: Iterable[int]) -> Names:
        here = self.standings()
        return self._lake.names([here[oid].table.id for oid in given_up if oid in here])

    def rename(self, names: Mapping[int, TableName]) -> None:
        alterations = renamed(self._lake, self.source, names)
        self._lake.commit(PlannedCommit(self._lake.snapshot(), self.source, alterations=alterations, author=AUTHOR))

    def collect(self) -> int:
        return self._lake.collect(self.source)

    def maintenance(self) -> None:
        return None

    def close(self) -> None:
        self._lake.close()
