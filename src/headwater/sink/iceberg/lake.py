"""An Iceberg catalog as our tables know it: loaded once, and again when another client has changed something."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Generic

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.types import NestedField

from headwater import failpoints
from headwater.change import TableName
from headwater.errors import AlreadyDelivered, CommitConflict, OperatorMustAct
from headwater.files import S3
from headwater.iceberg.attempts import Attempts
from headwater.iceberg.catalog import IcebergCatalog
from headwater.iceberg.credentials import s3_of, s3_of_table
from headwater.iceberg.dropped import DroppedFolders
from headwater.iceberg.files import live_files, live_paths
from headwater.iceberg.manifests import ManifestCache
from headwater.iceberg.model import DeleteFile, LiveFile
from headwater.iceberg.retention import pruned, unreadable
from headwater.iceberg.snapshots import FileChanges, next_snapshot
from headwater.iceberg.types import field_type
from headwater.lake import quarantine
from headwater.lake.stream import P, Stream
from headwater.sink.iceberg.ledger import Ledger, LedgerEntry, ledger_key
from headwater.sink.iceberg.standing import IcebergStanding, own_position, remembered, standing_of

__all__ = ["LAKE_ID", "PROPERTIES", "IcebergLake", "TableCommit", "not_where_planned"]

LAKE_ID = "headwater.lake-id"  # a property of the namespace that the quarantine is in
PROPERTIES = {
    "format-version": "2",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.target-file-size-bytes": str(256 << 20),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "history.expire.min-snapshots-to-keep": "50",
}
RENEW_SECONDS = 600.0  # for so long tables stay loaded that a catalog lends credentials for; these last some more
_TRIES = 5


@dataclass(frozen=True, slots=True)
class TableCommit:
    """What one commit changes in a table. `touched` are data files that must still be there when it lands.

    `emptied`: every file goes that the table has when it lands, also those that others have written meanwhile.
    """

    changes: FileChanges
    summary: Mapping[str, str]
    schema: Schema | None = None
    updates: tuple[TableUpdate, ...] = ()
    touched: frozenset[str] = frozenset()
    emptied: bool = False


@dataclass
class IcebergLake(Generic[P]):
    """The tables of one source, and the quarantine that all sources share."""

    catalog: IcebergCatalog
    source: str
    stream: Stream[P]
    manifests: ManifestCache = field(default_factory=ManifestCache)
    healed: bool = False  # no value is in the quarantine whose table did not land
    renew_after: float = RENEW_SECONDS
    _standings: dict[int, IcebergStanding[P]] | None = None
    _quarantine: Table | None = None
    _loaded: float = 0.0  # when the quarantine was

    @property
    def s3(self) -> S3 | None:
        """How to reach what is no table's own: it is in the quarantine's folder."""
        return s3_of_table(self.quarantine())

    def id(self) -> str:
        """Empty if no group has ever been mirrored into the lake."""
        return (self.catalog.namespace_properties(quarantine.NAME.schema) or {}).get(LAKE_ID, "")

    def prepare(self) -> None:
        """Make what every lake of ours has: an id, and the quarantine."""
        if not self.id():
            self.catalog.make_namespace(quarantine.NAME.schema, {LAKE_ID: str(uuid.uuid4())})
        if not self.quarantine_is_lost():
            self.quarantine()

    def quarantine_is_lost(self) -> bool:
        """Whether the catalog knows the quarantine, and its metadata is gone: the groups' ledgers are in it."""
        if self._quarantine is not None or self.catalog.load(quarantine.NAME) is not None:
            return False
        return self.catalog.lists(quarantine.NAME)

    def quarantine(self) -> Table:
        """The quarantine's table; created anew if another client dropped it."""
        if self._quarantine is None:
            if self.quarantine_is_lost():
                raise OperatorMustAct(
                    f"the metadata of {str(quarantine.NAME)!r} is gone from the lake",
                    hint="restore the warehouse; or give it up: `headwater run --recopy` copies all tables again",
                )
            found = self.catalog.load(quarantine.NAME) or self._new_quarantine()
            if [each.name for each in found.schema().fields] != list(quarantine.FIELDS):
                raise OperatorMustAct(
                    f"the lake has a table {str(quarantine.NAME)!r} that is not ours", hint="rename it in the lake"
                )
            self._quarantine, self._loaded = found, time.monotonic()
        return self._quarantine

    @property
    def attempts(self) -> Attempts:
        """Those of deliveries: each takes all of them that it finds for dead. So what goes on beside has its own."""
        return self._attempts(self.source)

    @property
    def copies(self) -> Attempts:
        return self._attempts(f"{self.source}/copy")

    @property
    def chores(self) -> Attempts:
        return self._attempts(f"{self.source}/maintenance")

    def _attempts(self, name: str) -> Attempts:
        return Attempts(self.quarantine().metadata.location, name, self.s3)

    @property
    def dropped(self) -> DroppedFolders:
        return DroppedFolders(self.quarantine().metadata.location, self.source, self.s3)

    def standings(self) -> Mapping[int, IcebergStanding[P]]:
        """Every table of the group that the lake has. A commit notices what other clients have changed since."""
        if self._standings is None:
            found = {oid: self._standing(oid, entry) for oid, entry in self.ledger().entries.items()}
            self._standings = {oid: each for oid, each in found.items() if each is not None}
        return self._standings

    def own(self, name: TableName) -> Table | None:
        """A table of the group, or the quarantine, as it is now; None if it is gone, or another one has its name."""
        known = {each.name: each.table for each in self.standings().values()} | {quarantine.NAME: self.quarantine()}
        found = self.catalog.load(name) if name in known else None
        return found if found is not None and _same(known[name], found) else None

    def ledger(self) -> Ledger[P]:
        table = self._quarantine or self.catalog.load(quarantine.NAME)
        kept = table.metadata.properties.get(ledger_key(self.source)) if table else None
        return Ledger.parse(kept, self.stream.position)

    def forget(self) -> None:
        """Another client has changed something: load everything again when it is next asked for."""
        self._standings = self._quarantine = None
        self.healed = False

    def renew(self) -> None:
        """Load everything again if the catalog lends credentials for its tables, and these may soon be over."""
        held, old = self._quarantine, time.monotonic() - self._loaded >= self.renew_after
        if held is not None and old and s3_of_table(held) != s3_of(self.catalog.properties):
            self.forget()

    def files(self, table: Table) -> list[LiveFile]:
        return live_files(table, self.manifests)

    def paths(self, table: Table) -> list[str]:
        """The paths of its data files and delete files, whoever wrote them."""
        return live_paths(table, self.manifests)

    def note(self, change: Callable[[Ledger[P]], Ledger[P]]) -> None:
        """Change the group's ledger. Other groups change theirs in the same table: then it is tried again."""
        for attempt in range(_TRIES):
            table = self.quarantine()
            ledger = change(self.ledger())
            try:
                self._quarantine = self.catalog.commit(
                    table, (), (SetPropertiesUpdate(updates={ledger_key(self.source): str(ledger)}),)
                )
                return
            except CommitConflict:
                self._quarantine = None
                if attempt == _TRIES - 1:
                    raise

    def own_position(self, table: Table) -> P:
        """The position that a table's snapshots show by themselves."""
        return own_position(table, self.source, self.stream.position)

    def entry(self, standing: IcebergStanding[P], position: P) -> LedgerEntry[P]:
        return LedgerEntry((standing.name,), (self.own_position(standing.table), position))

    def land(self, table: Table, commit: TableCommit, check: Callable[[Table], None] | None = None) -> Table:
        """Make a table's next snapshot. Others may commit meanwhile: it is made again if what it builds on is there.

        `check` raises if the table is not what the commit was planned for.
        """
        tries = _TRIES
        while True:
            if check is not None:
                check(table)
            schema = commit.schema or table.schema()
            changes = self._emptied(table, commit.changes) if commit.emptied else commit.changes
            snapshot = next_snapshot(table, schema, changes, commit.summary, self.manifests)
            requirements = (*snapshot.requirements, *_same_columns(table))
            said = SetPropertiesUpdate(updates=remembered(commit.summary, table))
            failpoints.hit("deliver.before-commit")
            try:
                old = unreadable(table) if changes.from_nothing else pruned(table.metadata, datetime.now(UTC))
                updates = (*commit.updates, *snapshot.updates, said, *_without(old))
                return self.catalog.commit(table, requirements, updates)
            except CommitConflict:
                for path in snapshot.written:
                    table.io.delete(path)
                table, tries = self._reloaded(table, commit), tries - 1
                if not tries:
                    raise

    def land_quarantine(self, commit: TableCommit, planned: Table | None = None) -> None:
        self._quarantine = self.land(planned or self.quarantine(), commit)

    def replace(self, standing: IcebergStanding[P]) -> None:
        """What a commit of ours has made of a table."""
        if self._standings is not None:
            self._standings[standing.oid] = standing

    def rewritten(self, table: Table) -> None:
        """What maintenance has made of a table: other files or fewer snapshots, and the same rows."""
        if _same(self._quarantine, table):
            self._quarantine = table
        standing = next((each for each in (self._standings or {}).values() if _same(each.table, table)), None)
        if standing is None:
            return
        if self.own_position(standing.table) == self.own_position(table):
            self.replace(replace(standing, table=table))
        else:  # a delivery of another process came before it
            self.forget()

    def moved(self, oid: int, position: P) -> None:
        """A table without a change stands further on now."""
        here = self.standings()
        self.replace(replace(here[oid], position=position))

    def _reloaded(self, table: Table, commit: TableCommit) -> Table:
        name = TableName(*table.name())
        now = self.catalog.load(name)
        if now is None or now.metadata.table_uuid != table.metadata.table_uuid:
            raise CommitConflict(f"another client has dropped {name} in the lake", hint="plan again")
        if now.metadata.format_version != table.metadata.format_version:
            raise CommitConflict(f"another client has made {name} a table of another format", hint="plan again")
        if _columns(now) != _columns(table):
            raise CommitConflict(f"another client has altered {name} in the lake", hint="plan again")
        if commit.touched and self._deletes(now, commit.touched) != self._deletes(table, commit.touched):
            raise CommitConflict(f"another client has changed rows of {name} in the lake", hint="plan again")
        return now

    def _deletes(self, table: Table, paths: Collection[str]) -> dict[str, tuple[DeleteFile, ...]]:
        """The deletes from each of these data files, if the table has it."""
        return {each.path: each.deletes for each in self.files(table) if each.path in paths}

    def _emptied(self, table: Table, changes: FileChanges) -> FileChanges:
        """All files go that the table has; if they can no longer be listed, the table begins anew."""
        try:
            return replace(changes, removed=self.paths(table))
        except FileNotFoundError:
            return replace(changes, from_nothing=True)

    def _standing(self, oid: int, entry: LedgerEntry[P]) -> IcebergStanding[P] | None:
        for name in entry.names:
            if (table := self.catalog.load(name)) is not None:
                found = standing_of(table, self.source, oid, self.stream.position, entry.floor)
                if found is not None:
                    return found
        return None

    def _new_quarantine(self) -> Table:
        schema = Schema(
            *(
                NestedField(at, name, field_type(kind, iter(())), required=False)
                for at, (name, kind) in enumerate(quarantine.FIELDS.items(), 1)
            )
        )
        spec, order = UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER
        return self.catalog.create(self.catalog.stage(quarantine.NAME, schema, spec, order, PROPERTIES))


def _same(one: Table | None, other: Table) -> bool:
    return one is not None and one.metadata.table_uuid == other.metadata.table_uuid


def _without(snapshots: list[int]) -> tuple[TableUpdate, ...]:
    """What removes snapshots. Their files stay until maintenance finds that nothing needs them."""
    return (RemoveSnapshotsUpdate(snapshot_ids=snapshots),) if snapshots else ()


def _columns(table: Table) -> tuple[int, int]:
    return table.metadata.current_schema_id, table.metadata.last_column_id


def _same_columns(table: Table) -> tuple[TableRequirement, ...]:
    """No field id that a commit gives to a new column has been given by others."""
    schema_id, last_id = _columns(table)
    return (
        AssertCurrentSchemaId(current_schema_id=schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=last_id),
    )


def not_where_planned(lake: IcebergLake[P], planned: IcebergStanding[P]) -> Callable[[Table], None]:
    """Refuse to land on a table whose own snapshots are not those that were planned on."""
    own = lake.own_position(planned.table)

    def check(table: Table) -> None:
        now = lake.own_position(table)
        if now != own:
            raise AlreadyDelivered(f"{planned.name} stands at {now} in the lake, not at {own}", hint="plan again")

    return check
