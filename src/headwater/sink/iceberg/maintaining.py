"""Maintenance of an Iceberg lake: files are merged, old snapshots expire, files that are not needed are deleted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate
from pyiceberg.types import IntegerType, LongType, NestedField, PrimitiveType

from headwater import failpoints
from headwater.change import TableName
from headwater.errors import CommitConflict, TableError
from headwater.iceberg.attempts import attempt_of
from headwater.iceberg.credentials import s3_of_table
from headwater.iceberg.model import LiveFile
from headwater.iceberg.orphans import Orphan
from headwater.iceberg.packing import Bin, packed
from headwater.iceberg.retention import expired, unneeded_files
from headwater.lake import history, quarantine
from headwater.lake.maintenance import Chores, Figures, MaintenancePolicy, Portion, figures_of
from headwater.sink.iceberg.collecting import collected
from headwater.sink.iceberg.lake import IcebergLake
from headwater.sink.iceberg.merging import IcebergMerging
from headwater.sink.iceberg.quarantine import came_ahead
from headwater.sink.iceberg.rewriting import IcebergMergeWriter
from headwater.sink.iceberg.standing import shows_position
from headwater.sink.iceberg.sweeping import dropped_names, sweep, unneeded

__all__ = ["IcebergMaintenance"]

_TRIES = 5


@dataclass(frozen=True, slots=True)
class IcebergMaintenance:
    """Implements `headwater.lake.maintenance.Maintenance`."""

    lake: IcebergLake[Any]

    def tables(self) -> list[TableName]:
        """Those that the lake has, and those that were dropped and whose files may still be there."""
        here = [*(each.name for each in self.lake.standings().values()), quarantine.NAME]
        return [*here, *sorted(dropped_names(self.lake) - set(here))]

    def figures(self) -> Mapping[TableName, Figures]:
        tables = {each.name: each.table for each in self.lake.standings().values()}
        tables[quarantine.NAME] = self.lake.quarantine()
        return {name: figures_of(self.lake.files(table)) for name, table in tables.items()}

    def plan(self, table: TableName, policy: MaintenancePolicy) -> Chores:
        swept = () if policy.orphans is None else unneeded(self.lake, table, policy.orphans)
        found, chores = self._loaded(table), _counted(swept)
        if found is None:
            return chores
        if policy.merge:
            bins = self._bins(found)
            chores += Chores(sum(len(each.files) for each in bins), sum(each.size for each in bins), len(bins))
        if policy.expire is not None:
            gone = [] if policy.keep else self._expired(found, policy.expire, policy.newest)
            chores += Chores(expired_snapshots=len(gone), expired_files=len(self._only_in(found, gone)))
        return chores

    def merging(self, table: TableName, policy: MaintenancePolicy, most: int | None = None) -> IcebergMerging | None:
        found = self._loaded(table) if policy.merge else None
        bins = self._bins(found)[:most] if found else []
        if found is None or not bins:
            return None
        metadata = found.metadata
        attempt = self.lake.chores.begin([metadata.location])
        key = [each.name for each in self._key(found)]
        ordered = bool(key) and metadata.default_sort_order_id != 0
        writer = IcebergMergeWriter(metadata.location, found.schema(), key, ordered, attempt, s3_of_table(found))
        return IcebergMerging(self.lake, self.lake.chores, found, bins, writer)

    def expire(
        self,
        table: TableName,
        age: timedelta,
        keep: Collection[int] = (),
        newest: int = 1,
        portion: Portion | None = None,  # noqa: ARG002
    ) -> Chores:
        for attempt in range(_TRIES):
            found = self._loaded(table)
            gone = self._expired(found, age, newest) if found and not keep else []
            if found is None or not gone:
                return Chores()
            try:
                now = self._removed(found, gone)
            except CommitConflict:
                if attempt == _TRIES - 1:
                    raise
                continue
            failpoints.hit("maintain.expired")
            self.lake.rewritten(now)
            files = self._only_in(found, gone)
            for path in files:
                with suppress(FileNotFoundError):
                    found.io.delete(path)
            return Chores(expired_snapshots=len(gone), expired_files=len(files))
        raise AssertionError("unreachable")

    def remove_orphans(self, table: TableName, age: timedelta) -> Chores:
        return _counted(sweep(self.lake, table, age))

    def delete_replaced(self) -> Chores:
        return Chores()  # older snapshots have them, until these expire

    def collect(self) -> int:
        return collected(self.lake, self.lake.chores)

    def _loaded(self, name: TableName) -> Table | None:
        """None for one that we dropped; TableError if the lake does not have it for another reason."""
        found = self.lake.own(name)
        if found is None and name not in dropped_names(self.lake):
            raise TableError(f"the lake has no table {str(name)!r} any longer")
        return found

    def _bins(self, table: Table) -> list[Bin]:
        """Only of files that we wrote: those of other clients may show their columns by name, or be no Parquet."""
        taboo, leading = came_ahead(table), self._key(table)[:1]
        live = [each for each in self.lake.files(table) if attempt_of(each.path) and each.path not in taboo]
        return packed(live, lambda each: _lowest(each, leading))

    def _key(self, table: Table) -> list[NestedField]:
        """The columns to sort by; none for a history, which stays in the order of its commits."""
        fields = {each.field_id: each for each in table.schema().fields}
        if set(history.COLUMNS) <= {each.name for each in fields.values()}:
            return []
        standing = next((s for s in self.lake.standings().values() if s.name == TableName(*table.name())), None)
        ids = [standing.mirrored.fields[number] for number in sorted(standing.mirrored.key)] if standing else []
        found = [fields[id_] for id_ in ids if id_ in fields]
        return found if all(isinstance(each.field_type, PrimitiveType) for each in found) else []

    def _expired(self, table: Table, age: timedelta, newest: int) -> list[int]:
        before = int((datetime.now(UTC) - age).timestamp() * 1000)
        return expired(table.metadata, before, newest, needed=shows_position)

    def _removed(self, table: Table, gone: list[int]) -> Table:
        unchanged = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=table.metadata.current_snapshot_id)
        return self.lake.catalog.commit(table, (unchanged,), (RemoveSnapshotsUpdate(snapshot_ids=gone),))

    def _only_in(self, table: Table, gone: list[int]) -> set[str]:
        lost, snapshots = set(gone), table.metadata.snapshots
        return unneeded_files(
            table,
            [each for each in snapshots if each.snapshot_id in lost],
            [each for each in snapshots if each.snapshot_id not in lost],
            self.lake.manifests,
        )


def _lowest(file: LiveFile, key: list[NestedField]) -> tuple[bool, Any]:
    """The lowest value of the leading key column, by which files are put next to each other."""
    for each in key:
        if (low := file.lower.get(each.field_id)) is not None:
            if isinstance(each.field_type, IntegerType | LongType):
                return True, int.from_bytes(low, "little", signed=True)  # an int's stays readable as a long's
            assert isinstance(each.field_type, PrimitiveType)
            return True, from_bytes(each.field_type, low)
    return False, 0


def _counted(found: Collection[Orphan]) -> Chores:
    return Chores(orphans=len(found), orphan_bytes=sum(each.size for each in found))
