"""New Iceberg tables with all their rows, and tables that are filled anew in one snapshot."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import CreateTableTransaction, Table
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)

from headwater import failpoints
from headwater.change import TableName
from headwater.errors import AlreadyDelivered, CommitConflict, CommitError, HeadwaterError, TableError
from headwater.iceberg.attempts import Attempts
from headwater.iceberg.fileio import reaching_files
from headwater.iceberg.snapshots import next_snapshot
from headwater.lake.counts import Counts
from headwater.lake.sink import Landed
from headwater.lake.stream import P
from headwater.lake.target import SETTLED, Reports, misfits_of, rows_of
from headwater.sink.iceberg.columns import Evolved
from headwater.sink.iceberg.delivery import schema_updates
from headwater.sink.iceberg.healing import drop_replaced, heal
from headwater.sink.iceberg.lake import PROPERTIES, IcebergLake, TableCommit, not_where_planned
from headwater.sink.iceberg.ledger import LedgerEntry, Replaced
from headwater.sink.iceberg.naming import rename_later, rename_mirrors, third_name
from headwater.sink.iceberg.ordering import key_order
from headwater.sink.iceberg.quarantine import keep, settle_all
from headwater.sink.iceberg.reports import counted, data_bytes, file_changes
from headwater.sink.iceberg.specs import drop_unfit_specs
from headwater.sink.iceberg.standing import COPY, IcebergStanding, ownership, remembered, summary
from headwater.sink.iceberg.target import IcebergTarget, Landing, landing

__all__ = ["CopyNote", "IcebergCopy", "NewMirror", "StagedMirror", "staged"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewMirror(Generic[P]):
    """A table to be copied. `replaces` are the mirrors that go: its own, if it is copied again, and those it follows.

    The one whose `place` it takes is filled anew in one snapshot: its readers see the old rows until the new are there.
    """

    oid: int
    name: TableName
    columns: Evolved
    replaces: Mapping[int, IcebergStanding[P]]
    place: IcebergStanding[P] | None
    spec: PartitionSpec
    copy: str = field(default_factory=lambda: uuid.uuid4().hex)  # the same for one that goes on with its files
    location: str | None = None  # of the table to create, if an earlier copy has written there

    @property
    def shape(self) -> str:
        """What its files must have been written for."""
        return f"{self.columns.schema.model_dump_json()} {self.spec.model_dump_json()}"


class CopyNote(NamedTuple):
    """Where a copy's files are, and for which columns and partitions they were written."""

    copy: str
    location: str
    shape: str

    @classmethod
    def read(cls, note: bytes) -> CopyNote:
        return cls(*json.loads(note))

    def written(self) -> bytes:
        return json.dumps(self).encode()


@dataclass(frozen=True, slots=True)
class StagedMirror(Generic[P]):
    """The same with the place where its files go, and the name under which it lands: its own may be taken by then."""

    mirror: NewMirror[P]
    name: TableName
    new: CreateTableTransaction | None  # None: it takes the place of another

    @property
    def landing(self) -> Landing:
        if self.new is not None:
            metadata = self.new.table_metadata
            return landing(self.new._table, metadata.schema(), (), metadata.spec())
        assert self.mirror.place is not None
        return landing(self.mirror.place.table, self.mirror.columns.schema, (), self.mirror.spec)


def staged(lake: IcebergLake[P], mirror: NewMirror[P]) -> StagedMirror[P]:
    if mirror.place is not None:
        return StagedMirror(mirror, mirror.place.name, None)
    taken = {each.name for each in lake.standings().values()}
    name = third_name(mirror.name) if mirror.name in taken else mirror.name
    properties = PROPERTIES | ownership(lake.source, mirror.oid, mirror.columns.mirrored)
    schema = mirror.columns.schema
    staged = lake.catalog.stage(name, schema, mirror.spec, key_order(schema), properties, mirror.location)
    return StagedMirror(mirror, name, staged)


@dataclass(frozen=True, slots=True)
class IcebergCopy(Generic[P]):
    """Implements `headwater.lake.sink.Copy`."""

    lake: IcebergLake[P]
    mirrors: Sequence[StagedMirror[P]]
    names: Mapping[int, TableName]  # that other mirrors get with it
    target: IcebergTarget
    attempts: Attempts  # among which it is noted

    @property
    def name(self) -> str:
        return self.target.attempt

    def note(self, oid: int) -> bytes:
        staged = next(each for each in self.mirrors if each.mirror.oid == oid)
        return CopyNote(staged.mirror.copy, staged.landing.location, staged.mirror.shape).written()

    def commit(self, at: Mapping[int, P], reports: Reports) -> Landed:
        try:
            with reaching_files():
                return self._committed(at, reports)
        finally:
            self.lake.forget()

    def _committed(self, at: Mapping[int, P], reports: Reports) -> Landed:
        lake, newest = self.lake, max(at.values())
        heal(lake)  # the copy's values come next, and only the newest can be taken back
        landing = [each for each in self.mirrors if each.mirror.oid in at]
        replaced = {oid for each in landing for oid in each.mirror.replaces}
        planned = lake.quarantine()  # the ledger's commits load it again, with what others have done to it meanwhile
        settled = settle_all(lake, self.target, replaced, newest)
        try:
            self.attempts.check(self.target.attempt)
            self._announce(landing)
            own = _own_names(landing) if self.names else {}
            rename_mirrors(lake, {**self.names, **own, **_making_way(landing, self.names)})
            kept = keep(lake, reports, at, settled, planned)
        except (CommitConflict, AlreadyDelivered, TableError):
            self.target.discard({SETTLED: settled})
            raise
        counts, missed = self._landed(landing, reports, at, kept=kept)
        failpoints.hit("iceberg.replaced")
        self._tidy([each for each in landing if each.mirror.oid not in missed])
        self.attempts.end(self.target.attempt)
        landed = data_bytes(note for to, notes in reports.items() if to.oid not in missed for note in notes)
        return Landed(newest.value, counts, frozenset(missed), landed)

    def discard(self, reports: Reports) -> None:
        self.target.discard(reports)

    def _announce(self, landing: Sequence[StagedMirror[P]]) -> None:
        """The ledger has it first: after a crash, a table that was made is found again, and so are those that go."""
        new: dict[int, LedgerEntry[P]] = {
            each.mirror.oid: LedgerEntry(
                (each.mirror.name, each.name), copy=each.mirror.copy, replaced=_replaced(each.mirror)
            )
            for each in landing
        }
        self.lake.note(lambda ledger: ledger.with_entries(new))

    def _landed(
        self, landing: Sequence[StagedMirror[P]], reports: Reports, at: Mapping[int, P], *, kept: bool
    ) -> tuple[dict[int, Counts], dict[int, CommitError | TableError]]:
        counts: dict[int, Counts] = {}
        missed: dict[int, CommitError | TableError] = {}
        for each in landing:
            try:
                counts[each.mirror.oid] = self._land(each, reports, at[each.mirror.oid])
                failpoints.hit("iceberg.landed")
            except (CommitConflict, AlreadyDelivered, TableError) as error:
                missed[each.mirror.oid] = error
        if missed and not counts and not kept:
            raise next(iter(missed.values()))
        self.target.discard({to: reports[to] for to in map(rows_of, missed) if to in reports})
        return counts, missed

    def _land(self, staged: StagedMirror[P], reports: Reports, at: P) -> Counts:
        lake, mirror = self.lake, staged.mirror
        mine = reports.get(rows_of(mirror.oid), [])
        bad = counted(reports.get(misfits_of(mirror.oid), ()))
        got = Counts(copied=counted(mine).inserted, quarantined=bad.inserted)
        said, changes, copied = summary(lake.source, at, got), file_changes(mine), {COPY: mirror.copy}
        if staged.new is not None:
            table = staged.new._table
            snapshot = next_snapshot(table, table.schema(), changes, said, lake.manifests)
            owned = SetPropertiesUpdate(updates=remembered(said, table) | copied)
            try:
                lake.catalog.create(staged.new, (*snapshot.updates, owned))
            except (CommitConflict, TableError):
                for path in snapshot.written:
                    table.io.delete(path)
                raise
            return got
        place = mirror.place
        assert place is not None
        schema, updates = schema_updates(place, mirror.columns.schema)
        owned = SetPropertiesUpdate(updates=ownership(lake.source, mirror.oid, mirror.columns.mirrored) | copied)
        updates = (*updates, *_spec_updates(mirror, place), owned)
        changes = replace(changes, new_spec=mirror.spec)
        commit = TableCommit(changes, said, schema, updates, emptied=True)
        lake.land(_where_it_is(lake, place), commit, not_where_planned(lake, place))
        return got

    def _tidy(self, landed: Sequence[StagedMirror[P]]) -> None:
        """What comes after the copy: it has landed, so nothing that fails here may take it back."""
        moved = {each.mirror.oid: each.mirror.name for each in landed if each.name != each.mirror.name}
        self.lake.forget()
        try:
            drop_replaced(self.lake)
            self._drop_unfit_specs({each.mirror.oid for each in landed if each.mirror.place is not None})
        except HeadwaterError as error:
            logger.warning("tables of the lake that were replaced by a copy are dropped later: %s", error)
        rename_later(self.lake, moved)

    def _drop_unfit_specs(self, filled: Set[int]) -> None:
        """Of tables that were filled anew: partition specs that they cannot have."""
        here = self.lake.standings() if filled else {}
        for oid in filled & here.keys():
            drop_unfit_specs(self.lake.catalog, here[oid].table)


def _own_names(landing: Sequence[StagedMirror[P]]) -> dict[int, TableName]:
    """Tables that are filled anew under other names: mirrors that want theirs can have them only then."""
    places = [each.mirror for each in landing if each.mirror.place is not None]
    return {each.oid: each.name for each in places if each.place is not None and each.place.oid == each.oid}


def _making_way(landing: Sequence[StagedMirror[P]], names: Mapping[int, TableName]) -> dict[int, TableName]:
    """Mirrors that go with the copy, but only after it, and have names until then that others are to get with it."""
    return {
        oid: third_name(old.name)
        for each in landing
        for oid, old in each.mirror.replaces.items()
        if old is not each.mirror.place and old.name in names.values()
    }


def _where_it_is(lake: IcebergLake[P], place: IcebergStanding[P]) -> Table:
    """The table to fill anew, which may have got another name since it was planned."""
    now = lake.standings().get(place.oid, place).table
    if now.metadata.last_column_id != place.table.metadata.last_column_id:
        raise CommitConflict(f"another client has altered {place.name} in the lake", hint="plan again")
    return now


def _spec_updates(mirror: NewMirror[P], place: IcebergStanding[P]) -> tuple[TableUpdate, ...]:
    """What makes the mirror's partition spec that of the table whose place it takes."""
    known = mirror.spec.spec_id in place.table.metadata.specs()
    added = () if known else (AddPartitionSpecUpdate(spec=mirror.spec),)
    return (*added, SetDefaultSpecUpdate(spec_id=mirror.spec.spec_id))


def _replaced(mirror: NewMirror[P]) -> tuple[Replaced, ...]:
    """The mirrors that go with it; if it is only copied again, in its own place, there is none."""
    gone = (each for each in mirror.replaces.values() if each is not mirror.place or each.oid != mirror.oid)
    return tuple(Replaced(each.oid, each.name, str(each.table.metadata.table_uuid)) for each in gone)
