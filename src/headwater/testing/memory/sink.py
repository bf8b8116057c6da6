"""The sink of a lake in memory."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from headwater.change import NewestCommit, Position, Relation, TableName
from headwater.errors import AlreadyDelivered, CommitConflict, HeadwaterError
from headwater.lake import quarantine
from headwater.lake.counts import Counts
from headwater.lake.mirrored import MirroredColumns
from headwater.lake.sink import Inline, Keys, Kinds, Landed, MirrorSpec, TableSnapshot, Wanted, one_by_one
from headwater.lake.stream import P, Stream
from headwater.lake.target import SETTLED, Reports, misfits_of, rows_of
from headwater.testing.memory.columns import columns_of, evolved
from headwater.testing.memory.lake import (
    MemoryColumn,
    MemoryContents,
    MemoryLake,
    MemoryNames,
    MemoryStanding,
    MemoryTable,
)
from headwater.testing.memory.reader import MemoryReader
from headwater.testing.memory.target import (
    DeletedRows,
    MemoryLanding,
    MemoryPlace,
    MemoryTarget,
    WrittenRows,
    read_report,
)

__all__ = ["MemorySink"]

_QUARANTINE = tuple(MemoryColumn(at, name, kind.arrow) for at, (name, kind) in enumerate(quarantine.FIELDS.items(), 1))


@dataclass(frozen=True, slots=True)
class _NewMirror(Generic[P]):
    oid: int
    name: TableName
    columns: tuple[MemoryColumn, ...]
    mirrored: MirroredColumns
    replaces: Mapping[int, MemoryStanding[P]]
    copy: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class MemorySink(Generic[P]):
    """Implements `headwater.lake.sink.Sink`."""

    lake: MemoryLake
    source: str
    stream: Stream[P]
    calendar_only: bool = False
    lake_snapshots: bool = True

    def standings(self) -> Mapping[int, MemoryStanding[P]]:
        return self.lake.contents.standing(self.source)

    def lake_id(self) -> str:
        return str(id(self.lake))

    def lost(self, **_: bool) -> Mapping[TableName, str]:
        return {}  # it has no files

    def drop_quarantine(self) -> None:
        if self.stream.misfits:
            self.lake.commit(_without_quarantine)

    def reader(self, snapshot_id: int) -> MemoryReader:
        contents = self.lake.snapshots[snapshot_id]
        return MemoryReader({table.name: table.rows() for table in contents.tables.values()})

    def snapshots_at(self, at: P) -> Mapping[int, TableSnapshot[P]]:
        found = {}
        for contents in self.lake.snapshots:
            for oid, each in contents.standing(self.source).items():
                if each.position <= at:
                    found[oid] = TableSnapshot(each.name, contents.id, each.position, {})
        return {oid: each for oid, each in found.items() if oid in self.standings()}

    shared = None

    def land_together(self, parts: Sequence[tuple[Any, Reports, Mapping[int, P]]]) -> list[Landed | HeadwaterError]:
        return one_by_one(parts)

    def kept_open(self) -> AbstractContextManager[None]:
        return nullcontext()

    def at_once(self) -> AbstractContextManager[None]:
        return nullcontext()

    def plan(self) -> _MemoryPlan[P]:
        if self.stream.misfits and self.lake.contents.named(quarantine.NAME) is None:
            self.lake.commit(_with_quarantine)
        return _MemoryPlan(self, self.lake.contents)

    def new_mirror(self, spec: MirrorSpec) -> _NewMirror[P]:
        """Partitions are a matter of files, of which there are none here."""
        here, oid = self.standings(), spec.relation.oid
        columns, mirrored = columns_of(spec.relation, spec.kinds, with_history=spec.history)
        gone = {each: here[each] for each in (oid, *spec.replaces) if each in here}
        return _NewMirror(oid, spec.name, columns, mirrored, gone)

    def begin_copy(
        self,
        mirrors: Sequence[_NewMirror[P]],
        names: Mapping[int, TableName],
        attempt: str | None = None,  # noqa: ARG002
    ) -> _Copy[P]:
        landings = {each.oid: MemoryLanding(each.columns, ()) for each in mirrors}
        target = MemoryTarget(landings, MemoryLanding(_QUARANTINE, quarantine.KNOWN_BY), self.source)
        return _Copy(self, mirrors, names, target)

    def taken_up(self, mirror: _NewMirror[P], note: bytes, *, misfits: bool) -> _NewMirror[P] | None:  # noqa: ARG002
        kept: _NewMirror[P] = pickle.loads(note)
        same = (kept.name, kept.columns, kept.mirrored) == (mirror.name, mirror.columns, mirror.mirrored)
        return replace(mirror, copy=kept.copy) if same else None

    def has_landed(self, oid: int, note: bytes) -> bool:
        kept: _NewMirror[P] = pickle.loads(note)
        there = self.standings().get(oid)
        return there is not None and there.copy == kept.copy

    def names(self, given_up: Iterable[int]) -> MemoryNames:
        here = self.standings()
        free = {here[oid].name for oid in given_up if oid in here}
        return MemoryNames({table.name for table in self.lake.contents.tables.values()} - free)

    def rename(self, names: Mapping[int, TableName]) -> None:
        self.lake.commit(lambda now: _renamed(now, self.source, names))

    def collect(self, attempts: Collection[str] = ()) -> int:  # noqa: ARG002
        return 0  # what was not committed was never anywhere

    def collect_copies(self, unfinished: Collection[str] = ()) -> int:  # noqa: ARG002
        return 0

    def probe(self) -> None:
        self.standings()

    def maintenance(self) -> None:
        return None

    def look_again(self) -> None:
        """Nothing is remembered."""

    def close(self) -> None:
        """There is nothing to give back."""


@dataclass(frozen=True, slots=True)
class _MemoryPlan(Generic[P]):
    sink: MemorySink[P]
    base: MemoryContents
    evolutions: Mapping[int, tuple[MemoryTable, MirroredColumns]] = field(default_factory=dict)

    @property
    def snapshot_id(self) -> int:
        return self.base.id

    @property
    def standings(self) -> Mapping[int, MemoryStanding[P]]:
        return self.base.standing(self.sink.source)

    def evolved(self, relation: Relation, kinds: Kinds) -> tuple[_MemoryPlan[P], bool]:
        standing = self.standings[relation.oid]
        table, mirrored = evolved(standing.table, standing.mirrored, relation, kinds)
        plan = replace(self, evolutions={**self.evolutions, relation.oid: (table, mirrored)})
        return plan, table.columns != standing.table.columns

    def begin(
        self,
        keys: Keys,
        newest: NewestCommit | None = None,  # noqa: ARG002
        attempt: str | None = None,  # noqa: ARG002
        inline: Inline | None = None,  # noqa: ARG002
    ) -> _Delivery[P]:
        landings = {oid: self._landing(oid, key) for oid, key in keys.items()}
        target = MemoryTarget(landings, MemoryLanding(_QUARANTINE, quarantine.KNOWN_BY), self.sink.source)
        return _Delivery(self, target)

    def _landing(self, oid: int, key: tuple[str, ...]) -> MemoryLanding:
        standing = self.standings[oid]
        table, mirrored = self.evolutions.get(oid, (standing.table, standing.mirrored))
        names = {column.id: column.name for column in table.columns}
        return MemoryLanding(table.columns, key or tuple(names[id_] for _, id_ in sorted(mirrored.fields.items())))


@dataclass(frozen=True, slots=True)
class _Delivery(Generic[P]):
    plan: _MemoryPlan[P]
    target: MemoryTarget

    def places(self, wanted: Wanted) -> list[MemoryPlace]:
        here = self.plan.standings
        return [MemoryPlace(oid, file) for oid in wanted for file in here[oid].table.files.values()]

    def quarantine(self) -> list[MemoryPlace]:
        kept = self.plan.base.named(quarantine.NAME)
        return [MemoryPlace(None, file) for file in kept.files.values()] if kept else []

    def commit(
        self, reports: Reports, truncated: Collection[int], upto: Mapping[int, P], names: Mapping[int, TableName]
    ) -> Landed:
        counts: dict[int, Counts] = {}

        def change(now: MemoryContents) -> MemoryContents:
            for oid in upto:
                now, counts[oid] = self._advanced(now, oid, reports, oid in truncated)
            now = _kept(now, [each for oid in upto for each in reports.get(misfits_of(oid), ())])
            now = _kept(now, reports.get(SETTLED, ()), self.plan.base)
            now = _moved(now, self.plan.sink.source, upto, counts)
            return _renamed(now, self.plan.sink.source, names)

        snapshot = self.plan.sink.lake.commit(change)
        changed = {oid: each for oid, each in counts.items() if each != Counts() or oid in truncated}
        return Landed(snapshot, changed, bytes=_bytes(reports))

    def discard(self, reports: Reports) -> None:
        """Reports are all there is."""

    def _advanced(
        self, now: MemoryContents, oid: int, reports: Reports, truncate: bool
    ) -> tuple[MemoryContents, Counts]:
        """A table with its new columns and rows."""
        source, planned = self.plan.sink.source, self.plan.standings[oid]
        there = now.standing(source).get(oid)
        if there is None:
            raise CommitConflict(f"table {planned.name} was dropped meanwhile")
        if there.position != planned.position:
            raise AlreadyDelivered(f"table {planned.name} is at {there.position}, not at {planned.position}")
        table, went = there.table, 0
        if truncate:
            if table.files.keys() != planned.table.files.keys():
                raise CommitConflict(f"table {table.name} is to be truncated, and has new rows")
            went, table = table.rows().num_rows, replace(table, files={})
        evolution, mirrored = self.plan.evolutions.get(oid, (None, None))
        if evolution is not None:
            table = replace(table, columns=evolution.columns, next_column_id=evolution.next_column_id)
        standing = replace(there, table=table, mirrored=mirrored or there.mirrored)
        standings = {**now.standings, source: {**now.standings[source], oid: standing}}
        notes = reports.get(rows_of(oid), ())
        now = replace(now, tables={**now.tables, table.id: table}, standings=standings)
        bad = _counts(reports.get(misfits_of(oid), ())).inserted
        return _changed(now, table, notes, self.plan.base), replace(_counts(notes, went), quarantined=bad)


@dataclass(frozen=True, slots=True)
class _Copy(Generic[P]):
    sink: MemorySink[P]
    mirrors: Sequence[_NewMirror[P]]
    names: Mapping[int, TableName]
    target: MemoryTarget

    @property
    def name(self) -> str:
        return ""  # there are no files

    def note(self, oid: int) -> bytes:
        mirror = next(each for each in self.mirrors if each.oid == oid)
        return pickle.dumps(replace(mirror, replaces={}))

    def commit(self, at: Mapping[int, P], reports: Reports) -> Landed:
        counts: dict[int, Counts] = {}

        def change(now: MemoryContents) -> MemoryContents:
            now = _with_quarantine(now) if self.sink.stream.misfits else now
            landing = [each for each in self.mirrors if each.oid in at]
            for each in landing:
                now = self._made_way(now, each, at[each.oid])
            now = _renamed(now, self.target.source, self.names)
            for each in landing:
                now, counts[each.oid] = self._created(now, each, reports, at[each.oid])
            return now

        return Landed(self.sink.lake.commit(change), counts, bytes=_bytes(reports))

    def discard(self, reports: Reports) -> None:
        """Reports are all there is."""

    def _made_way(self, now: MemoryContents, mirror: _NewMirror[P], at: P) -> MemoryContents:
        """Without the mirrors that this one replaces; their open values in the quarantine are settled."""
        source = self.target.source
        here = now.standing(source)
        for oid, standing in mirror.replaces.items():
            if oid not in here or here[oid].position != standing.position:
                raise AlreadyDelivered(f"the mirror of {standing.name} has moved meanwhile")
            now = replace(now, tables={id_: each for id_, each in now.tables.items() if id_ != standing.table.id})
        if mirror.oid in here and mirror.oid not in mirror.replaces:
            raise AlreadyDelivered(f"table {mirror.name} is there already")
        left = {oid: each for oid, each in now.standings.get(source, {}).items() if oid not in mirror.replaces}
        now = replace(now, standings={**now.standings, source: left})
        kept = now.named(quarantine.NAME) if self.sink.stream.misfits else None
        for file in kept.files.values() if kept else ():
            place, settled = MemoryPlace(None, file), quarantine.settled_by(at)
            found = {position: settled for position, _ in quarantine.unresolved(self.target, place, mirror.replaces)}
            now = _kept(now, list(quarantine.rewritten(self.target, place, found)))
        return now

    def _created(
        self, now: MemoryContents, mirror: _NewMirror[P], reports: Reports, at: P
    ) -> tuple[MemoryContents, Counts]:
        MemoryNames({table.name for table in now.tables.values()}).take(mirror.name)
        table = MemoryTable(now.next_id, mirror.name, mirror.columns, next_column_id=len(mirror.columns) + 1)
        notes, bad = reports.get(rows_of(mirror.oid), ()), reports.get(misfits_of(mirror.oid), ())
        counts = Counts(copied=_counts(notes).inserted, quarantined=_counts(bad).inserted)
        standing = MemoryStanding(mirror.oid, table, at, mirror.mirrored, counts, mirror.copy)
        source = self.target.source
        now = replace(
            now,
            tables={**now.tables, table.id: table},
            standings={**now.standings, source: {**now.standings[source], mirror.oid: standing}},
            next_id=now.next_id + 1,
        )
        return _kept(_changed(now, table, notes), bad), counts


def _with_quarantine(now: MemoryContents) -> MemoryContents:
    if now.named(quarantine.NAME) is not None:
        return now
    table = MemoryTable(now.next_id, quarantine.NAME, _QUARANTINE, next_column_id=len(_QUARANTINE) + 1)
    return replace(now, tables={**now.tables, table.id: table}, next_id=now.next_id + 1)


def _without_quarantine(now: MemoryContents) -> MemoryContents:
    return replace(now, tables={id_: each for id_, each in now.tables.items() if each.name != quarantine.NAME})


def _kept(now: MemoryContents, reports: Sequence[bytes], base: MemoryContents | None = None) -> MemoryContents:
    """What these reports change in the quarantine; without any there need not be one."""
    if not reports:
        return now
    table = now.named(quarantine.NAME)
    assert table is not None
    return _changed(now, table, reports, base)


def _changed(
    now: MemoryContents, table: MemoryTable, reports: Iterable[bytes], base: MemoryContents | None = None
) -> MemoryContents:
    """The table with what these reports took out and wrote; files must be as they were in `base`."""
    table = now.tables[table.id]
    for report in map(read_report, reports):
        if isinstance(report, WrittenRows):
            table = table.appended(now.next_id, report.rows, report.row_ids)
            now = replace(now, next_id=now.next_id + 1)
            continue
        file = table.files.get(report.file)
        if file is None or (base is not None and file.deleted != base.tables[table.id].files[report.file].deleted):
            raise CommitConflict(f"rows of table {table.name} that we found are not there any more")
        file = replace(file, deleted=file.deleted | report.positions)
        table = replace(table, files={**table.files, file.id: file})
    return replace(now, tables={**now.tables, table.id: table})


def _counts(reports: Iterable[bytes], went: int = 0) -> Counts:
    found = [read_report(report) for report in reports]
    wrote = [each for each in found if isinstance(each, WrittenRows)]
    updated = sum(each.rows.num_rows for each in wrote if each.row_ids is not None)
    inserted = sum(each.rows.num_rows for each in wrote if each.row_ids is None)
    taken = sum(len(each.positions) for each in found if isinstance(each, DeletedRows)) + went
    return Counts(inserted=inserted, updated=updated, deleted=taken - updated)


def _bytes(reports: Reports) -> int:
    found = (read_report(report) for notes in reports.values() for report in notes)
    return sum(each.rows.nbytes for each in found if isinstance(each, WrittenRows))


def _moved(
    now: MemoryContents, source: str, upto: Mapping[int, Position], counts: Mapping[int, Counts]
) -> MemoryContents:
    here = now.standings.get(source, {})
    moved = {oid: replace(here[oid], position=at, counts=here[oid].counts + counts[oid]) for oid, at in upto.items()}
    return replace(now, standings={**now.standings, source: {**here, **moved}})


def _renamed(now: MemoryContents, source: str, names: Mapping[int, TableName]) -> MemoryContents:
    here = now.standing(source)
    tables = {here[oid].table.id: replace(here[oid].table, name=name) for oid, name in names.items() if oid in here}
    taken = MemoryNames({table.name for table in now.tables.values() if table.id not in tables})
    for table in tables.values():
        taken.take(table.name)
    return replace(now, tables={**now.tables, **tables})
