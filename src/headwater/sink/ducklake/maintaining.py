"""Maintenance of a DuckLake: files are merged, old snapshots expire, files that are not needed are deleted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from headwater import failpoints
from headwater.change import TableName
from headwater.ducklake.ended import ended_files
from headwater.ducklake.expiring import delete_scheduled, expire, expired, purge_inlined, scheduled_before
from headwater.ducklake.figures import table_figures
from headwater.ducklake.flushing import InlinedBin, due_to_flush
from headwater.ducklake.lake import Lake
from headwater.ducklake.mergeable import Bin, bins_of, mergeable_files, oldest_snapshot
from headwater.ducklake.model import Field, LakeTable
from headwater.ducklake.orphans import Orphan, delete_orphans, orphans
from headwater.errors import TableError
from headwater.lake import history, quarantine
from headwater.lake.maintenance import Chores, Figures, MaintenancePolicy, Portion, at_any_time
from headwater.sink.ducklake.merging import DuckLakeMerging, chores_of, late_inline_limit
from headwater.sink.ducklake.rewriting import DuckLakeMergeWriter
from headwater.sink.ducklake.standing import standings

__all__ = ["DuckLakeMaintenance"]

READERS = timedelta(hours=1)  # for so long they may read on in files that the lake no longer has


@dataclass(frozen=True, slots=True)
class DuckLakeMaintenance:
    """Implements `headwater.lake.maintenance.Maintenance`.

    Snapshots are those of the whole lake: they expire with any of its tables, and a plan has them under the first.
    """

    lake: Lake
    source: str
    position: type[Any]

    def tables(self) -> list[TableName]:
        if not self.lake.prepared():
            return []
        here = [each.name for each in self._standings().values()]
        return [*here, *([quarantine.NAME] if self.lake.table(quarantine.NAME) else [])]

    def figures(self) -> Mapping[TableName, Figures]:
        if not self.lake.prepared():
            return {}
        with self.lake.at_once(), self.lake.reading() as tx:
            tables = {each.table.id: each.name for each in self._standings().values()}
            if (kept := self.lake.table(quarantine.NAME)) is not None:
                tables[kept.id] = quarantine.NAME
            found = table_figures(tx, tables)
        return {name: found[id_] for id_, name in tables.items()}

    def plan(self, table: TableName, policy: MaintenancePolicy) -> Chores:
        found, chores, first = self._found(table), Chores(), table in self.tables()[:1]
        bins = self._bins(found, policy)
        chores += chores_of(bins, len(bins))
        if policy.expire is not None and first:
            gone = self._expired(policy.expire, policy.keep, policy.newest)
            chores += Chores(expired_snapshots=len(gone))
        if first and (policy.merge or policy.expire is not None or policy.orphans is not None):
            with self.lake.reading() as tx:
                due = scheduled_before(tx, self.lake.data_path, datetime.now(UTC) - READERS)
            chores += Chores(expired_files=len(due))
        if policy.orphans is not None:
            chores += _counted(orphans(self.lake, found, policy.orphans))
        return chores

    def merging(self, table: TableName, policy: MaintenancePolicy, most: int | None = None) -> DuckLakeMerging | None:
        found = self._found(table)
        inline_limit = late_inline_limit(self.lake, found.id)
        bins = self._bins(found, policy)[:most]
        if not bins:
            return None
        attempt = self.lake.begin(self._name)
        writer = DuckLakeMergeWriter(found.path, [each.id for each in self._key(found)], attempt, self.lake.s3)
        return DuckLakeMerging(self.lake, found, bins, writer, inline_limit)

    def expire(
        self,
        table: TableName,
        age: timedelta,
        keep: Collection[int] = (),
        newest: int = 1,
        portion: Portion | None = None,
    ) -> Chores:
        self._found(table)
        gone = self._expired(age, keep, newest, portion.most if portion else None)
        whole = portion is None or len(gone) < portion.most
        if gone:
            with portion.between() if portion else at_any_time() as ready:
                kept = set(portion.keep()) if portion else set[int]()
                gone = [each for each in gone if each not in kept]
                ready()
                expire(self.lake, gone)
            failpoints.hit("maintain.expired")
        done = Chores(expired_snapshots=len(gone))
        if not whole:
            return done
        purge_inlined(self.lake)  # though nothing is gone: the last time may have been broken off here
        return done + self.delete_replaced()

    def remove_orphans(self, table: TableName, age: timedelta) -> Chores:
        found = orphans(self.lake, self._found(table), age)
        return _counted(delete_orphans(self.lake, found)) + self.delete_replaced()

    def delete_replaced(self) -> Chores:
        with self.lake.reading() as tx:
            due = scheduled_before(tx, self.lake.data_path, datetime.now(UTC) - READERS)
        if due:
            delete_scheduled(self.lake, due)
        return Chores(expired_files=len(due))

    def collect(self) -> int:
        return self.lake.collect(self._name)

    @property
    def _name(self) -> str:
        """Its own, since a delivery takes all attempts under its name that it finds for dead."""
        return f"{self.source}/maintenance"

    def _standings(self) -> Any:
        return standings(self.lake, self.source, self.position)

    def _found(self, name: TableName) -> LakeTable:
        table = self.lake.table(name)
        if table is None:
            raise TableError(f"the lake has no table {str(name)!r} any longer")
        return table

    def _bins(self, table: LakeTable, policy: MaintenancePolicy) -> list[Bin | InlinedBin]:
        key, lake = self._key(table), self.lake
        with lake.reading() as tx:
            oldest = oldest_snapshot(tx)
            files = mergeable_files(tx, lake.data_path, table, key, oldest) if policy.merge else []
            old = ended_files(tx, lake.data_path, table, oldest) if policy.merge else []
            due = due_to_flush(tx, lake.url, table, policy.flush, oldest) if policy.flush else []
        return [*due, *bins_of(files, table, key, oldest), *bins_of(old, table, (), oldest)]

    def _key(self, table: LakeTable) -> list[Field]:
        """The columns to sort by; none for a history, which stays in the order of its commits."""
        fields = {each.id: each for each in table.columns}
        if set(history.COLUMNS) <= {each.name for each in table.columns}:
            return []
        standing = next((each for each in self._standings().values() if each.table.id == table.id), None)
        ids = [standing.mirrored.fields[number] for number in sorted(standing.mirrored.key)] if standing else []
        found = [fields[id_] for id_ in ids if id_ in fields]
        return [] if any(each.children for each in found) else found

    def _expired(self, age: timedelta, keep: Collection[int], newest: int, most: int | None = None) -> list[int]:
        with self.lake.reading() as tx:
            return expired(tx, datetime.now(UTC) - age, keep, newest, most)


def _counted(found: Collection[Orphan]) -> Chores:
    return Chores(orphans=len(found), orphan_bytes=sum(each.size for each in found))
