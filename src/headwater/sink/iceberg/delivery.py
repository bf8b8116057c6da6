"""Changes to Iceberg tables: planned on their newest snapshots, written by workers, landed table by table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic

from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.types import NestedField, PrimitiveType

from headwater import failpoints
from headwater.change import NewestCommit, Relation, TableName
from headwater.errors import AlreadyDelivered, CommitConflict, CommitError, CommitUnknown, HeadwaterError, TableError
from headwater.iceberg.fileio import reaching_files
from headwater.iceberg.files import check_deletes
from headwater.iceberg.model import LiveFile
from headwater.iceberg.partitions import check_kept
from headwater.lake import quarantine
from headwater.lake.counts import Counts
from headwater.lake.sink import Inline, Keys, Kinds, Landed, Wanted
from headwater.lake.stream import P
from headwater.lake.target import PartitionSet, Reports, Sought, misfits_of, rows_of
from headwater.sink.iceberg.columns import Evolved, evolved
from headwater.sink.iceberg.healing import heal
from headwater.sink.iceberg.lake import IcebergLake, TableCommit, not_where_planned
from headwater.sink.iceberg.naming import rename_later
from headwater.sink.iceberg.ordering import order_updates
from headwater.sink.iceberg.quarantine import keep
from headwater.sink.iceberg.reports import counted, data_bytes, file_changes, touched
from headwater.sink.iceberg.standing import IcebergStanding, delivered, ownership, standing_of, summary
from headwater.sink.iceberg.target import IcebergPlace, IcebergTarget, Landing, landing

__all__ = ["IcebergDelivery", "IcebergPlan", "schema_updates"]


@dataclass(frozen=True, slots=True)
class IcebergPlan(Generic[P]):
    """Implements `headwater.lake.sink.Plan`."""

    lake: IcebergLake[P]
    standings: Mapping[int, IcebergStanding[P]]
    evolutions: Mapping[int, Evolved] = field(default_factory=dict)

    @property
    def snapshot_id(self) -> int:
        """A catalog has no snapshots, only its tables do: what stands for one is a position, here of the foremost.

        A reader of it sees each table as it is now, also one that is behind the others.
        """
        return max((each.position.value for each in self.standings.values()), default=0)

    @reaching_files()
    def evolved(self, relation: Relation, kinds: Kinds) -> tuple[IcebergPlan[P], bool]:
        standing = self.standings[relation.oid]
        check_deletes(standing.table, self.lake.manifests)
        schema, last_id = standing.table.schema(), standing.table.metadata.last_column_id
        found = evolved(schema, last_id, standing.mirrored, relation, kinds)
        check_kept(str(relation.table), standing.table.metadata, found.schema)
        changed = found.schema.fields != schema.fields or found.mirrored != standing.mirrored
        evolutions = {**self.evolutions, relation.oid: found} if changed else self.evolutions
        return replace(self, evolutions=evolutions), found.schema.fields != schema.fields

    @reaching_files()
    def begin(
        self,
        keys: Keys,
        newest: NewestCommit | None = None,
        attempt: str | None = None,  # noqa: ARG002
        inline: Inline | None = None,  # noqa: ARG002
    ) -> IcebergDelivery[P]:
        if keys:
            heal(self.lake)
        landings = {oid: self._landing(oid, key) for oid, key in keys.items()}
        kept = self.lake.quarantine()
        own = landing(kept, kept.schema(), quarantine.KNOWN_BY)
        locations = [each.location for each in (*landings.values(), own)]
        noted = self.lake.attempts.begin(locations) if keys else ""  # nothing is written without a table
        target = IcebergTarget(landings, own, self.lake.source, noted)
        return IcebergDelivery(self, keys, target, newest)

    def schema(self, oid: int) -> Schema:
        return self.evolutions[oid].schema if oid in self.evolutions else self.standings[oid].table.schema()

    def _landing(self, oid: int, key: tuple[str, ...]) -> Landing:
        """Without a key, a table's rows are known by all of its columns that we mirror."""
        table = self.standings[oid].table
        return landing(table, self.schema(oid), key or self._mirrored(oid), table.spec())

    def _mirrored(self, oid: int) -> tuple[str, ...]:
        mirrored = self.evolutions[oid].mirrored if oid in self.evolutions else self.standings[oid].mirrored
        by_id = {each.field_id: each.name for each in self.schema(oid).fields}
        return tuple(by_id[id_] for _, id_ in sorted(mirrored.fields.items()))


@dataclass(frozen=True, slots=True)
class IcebergDelivery(Generic[P]):
    """Implements `headwater.lake.sink.Delivery`."""

    plan: IcebergPlan[P]
    keys: Keys
    target: IcebergTarget
    newest: NewestCommit | None

    @reaching_files()
    def places(self, wanted: Wanted) -> list[IcebergPlace]:
        return [place for oid, sought in wanted.items() for place in self._places_in(oid, sought)]

    @reaching_files()
    def quarantine(self) -> list[IcebergPlace]:
        lake = self.plan.lake
        return [IcebergPlace(None, file) for file in lake.files(lake.quarantine())]

    def commit(
        self, reports: Reports, truncated: Collection[int], upto: Mapping[int, P], names: Mapping[int, TableName]
    ) -> Landed:
        try:
            with reaching_files():
                return self._committed(reports, truncated, upto, names)
        except HeadwaterError:
            self.plan.lake.forget()
            raise

    def _committed(
        self, reports: Reports, truncated: Collection[int], upto: Mapping[int, P], names: Mapping[int, TableName]
    ) -> Landed:
        lake = self.plan.lake
        if self.target.attempt:
            lake.attempts.check(self.target.attempt)
        kept = keep(lake, reports, upto)
        counts, missed = self._landed(reports, truncated, upto, certain=not kept)
        failpoints.hit("iceberg.unnoted")
        self._note(upto, missed)
        rename_later(lake, {oid: name for oid, name in names.items() if oid not in missed})
        lake.healed = True
        if missed:
            lake.forget()
        if self.target.attempt:
            lake.attempts.end(self.target.attempt)
        reached = [position.value for oid, position in upto.items() if oid not in missed]
        landed = data_bytes(note for to, notes in reports.items() if to.oid not in missed for note in notes)
        return Landed(max(reached, default=self.plan.snapshot_id), counts, frozenset(missed), landed)

    def discard(self, reports: Reports) -> None:
        self.target.discard(reports)

    def _landed(
        self, reports: Reports, truncated: Collection[int], upto: Mapping[int, P], *, certain: bool
    ) -> tuple[dict[int, Counts], set[int]]:
        """Land the tables that change, one by one. Once something has landed, others can only be left for later."""
        counts: dict[int, Counts] = {}
        missed: dict[int, CommitError | TableError] = {}
        for oid, position in upto.items():
            mine = reports.get(rows_of(oid), [])
            if not mine and oid not in truncated and oid not in self.plan.evolutions:
                continue
            try:
                counts[oid] = self._land(oid, position, mine, reports, truncated=oid in truncated)
            except (CommitConflict, AlreadyDelivered, TableError) as error:
                missed[oid] = error
        if missed and not counts and certain:
            raise next(iter(missed.values()))
        self.target.discard({to: reports[to] for to in map(rows_of, missed) if to in reports})
        return counts, set(missed)

    def _land(self, oid: int, upto: P, mine: Sequence[bytes], reports: Reports, *, truncated: bool) -> Counts:
        lake, standing = self.plan.lake, self.plan.standings[oid]
        changes, got = file_changes(mine), counted(mine)
        if truncated:
            live = lake.files(standing.table)
            got = replace(got, deleted=got.deleted + sum(each.rows for each in live) - sum(_deleted(live)))
        got = replace(got, quarantined=counted(reports.get(misfits_of(oid), ())).inserted)
        found = self.plan.evolutions.get(oid)
        mirrored = found.mirrored if found else standing.mirrored
        schema, updates = schema_updates(standing, found.schema if found else None)
        updates = (*updates, SetPropertiesUpdate(updates=ownership(lake.source, oid, mirrored))) if found else updates
        said = summary(lake.source, upto, standing.counts + got) | delivered(standing.position, self.newest)
        commit = TableCommit(changes, said, schema, updates, frozenset(touched(mine)), emptied=truncated)
        table = lake.land(standing.table, commit, not_where_planned(lake, standing))
        done = standing_of(table, lake.source, oid, lake.stream.position)
        assert done is not None
        lake.replace(done)
        failpoints.hit("iceberg.landed")
        return got

    def _note(self, upto: Mapping[int, P], missed: Collection[int]) -> None:
        """Tables without a change stand further on, too; the ledger says so, once all others have landed."""
        lake, here = self.plan.lake, self.plan.lake.standings()
        quiet = {oid: at for oid, at in upto.items() if oid not in missed and here[oid].position < at}
        if not quiet:
            return
        entries = {oid: lake.entry(here[oid], at) for oid, at in quiet.items()}
        try:
            lake.note(lambda ledger: ledger.with_entries(entries))
        except CommitConflict as error:  # other tables have landed
            raise CommitUnknown(f"how far tables without a change are could not be noted: {error.message}") from error
        for oid, at in quiet.items():
            lake.moved(oid, at)

    def _places_in(self, oid: int, sought: Sought) -> Iterator[IcebergPlace]:
        table, leading = self.plan.standings[oid].table, self._leading(oid)
        spec_id = table.metadata.default_spec_id
        for file in self.plan.lake.files(table):
            if _overlaps(file, leading, sought.bounds) and _in_reach(file, spec_id, sought.partitions):
                yield IcebergPlace(oid, file)

    def _leading(self, oid: int) -> NestedField:
        schema = self.plan.schema(oid)
        return schema.find_field(self.keys[oid][0]) if self.keys[oid] else schema.fields[0]


def schema_updates(
    standing: IcebergStanding[P], wanted: Schema | None
) -> tuple[Schema | None, tuple[TableUpdate, ...]]:
    """The schema under the id that it will have, and what makes it the table's; the sort order follows the key."""
    if wanted is None:
        return None, ()
    known, order = standing.table.metadata.schemas, order_updates(standing.table.metadata, wanted)
    for each in known:
        if each.fields == wanted.fields and set(each.identifier_field_ids) == set(wanted.identifier_field_ids):
            return each, (SetCurrentSchemaUpdate(schema_id=each.schema_id), *order)
    new = Schema(
        *wanted.fields,
        schema_id=max(each.schema_id for each in known) + 1,
        identifier_field_ids=wanted.identifier_field_ids,
    )
    return new, (AddSchemaUpdate(schema_=new), SetCurrentSchemaUpdate(schema_id=-1), *order)


def _deleted(live: Sequence[LiveFile]) -> Iterator[int]:
    return (each.deleted for each in live)


def _in_reach(file: LiveFile, spec_id: int, partitions: PartitionSet | None) -> bool:
    """Whether the file is in one of the partitions, or was written under another spec than the present one."""
    return partitions is None or file.spec_id != spec_id or partitions.has(file.partition)


def _overlaps(file: LiveFile, column: NestedField, wanted: tuple[int, int] | None) -> bool:
    """Whether the file may hold a value of the column within the bounds."""
    low, high = file.lower.get(column.field_id), file.upper.get(column.field_id)
    if wanted is None or low is None or high is None or not isinstance(column.field_type, PrimitiveType):
        return True
    lowest, highest = _number(column.field_type, low), _number(column.field_type, high)
    return lowest <= wanted[1] and highest >= wanted[0]


def _number(type_: PrimitiveType, value: bytes) -> int:
    """A bound as a whole number; that of an int stays readable when the column has become a long."""
    return int.from_bytes(value, "little", signed=True) if len(value) in (4, 8) else int(from_bytes(type_, value))
