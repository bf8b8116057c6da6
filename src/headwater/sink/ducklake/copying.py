"""New tables of a DuckLake, with all their rows, in one snapshot."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from headwater.change import Position, TableName
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import Advance, Alteration, NewTable, PlannedCommit
from headwater.errors import AlreadyDelivered, CommitConflict, TableError
from headwater.lake.counts import Counts
from headwater.lake.mirrored import MirroredColumns
from headwater.lake.sink import Landed
from headwater.lake.stream import P
from headwater.lake.target import Reports, misfits_of, rows_of
from headwater.sink.ducklake.landing import land
from headwater.sink.ducklake.quarantine import quarantine_table, settle_all
from headwater.sink.ducklake.reports import data_bytes, delete_files, rows_written, table_change
from headwater.sink.ducklake.standing import DuckLakeStanding, standings
from headwater.sink.ducklake.target import DuckLakeTarget

__all__ = ["CopyNote", "DuckLakeCopy", "NewMirror", "renamed"]


@dataclass(frozen=True, slots=True)
class NewMirror(Generic[P]):
    """A table the lake does not have yet; its folder is known, so files can be written before it exists.

    `replaces` are the mirrors that go in the same snapshot: its own, if the table is copied again, and those of the
    tables whose place it takes.
    """

    oid: int
    table: NewTable
    mirrored: MirroredColumns
    replaces: Mapping[int, DuckLakeStanding[P]]


@dataclass(frozen=True, slots=True)
class CopyNote:
    """Where a copy's files are: in the folder of a new table, and of the quarantine if the lake had one."""

    table: NewTable
    quarantine: str | None

    @classmethod
    def read(cls, note: bytes) -> CopyNote | None:
        """None for a note of another version of the program."""
        try:
            found = pickle.loads(note)
        except (AttributeError, ImportError, TypeError, pickle.UnpicklingError):
            return None
        return found if isinstance(found, cls) else None


@dataclass(frozen=True, slots=True)
class DuckLakeCopy(Generic[P]):
    """Implements `headwater.lake.sink.Copy`."""

    lake: Lake
    mirrors: Sequence[NewMirror[P]]
    names: Mapping[int, TableName]  # that other mirrors get with it
    target: DuckLakeTarget
    noted: bool  # the attempt, in the lake
    new_quarantine: NewTable | None  # if the lake has none and the stream may need it

    @property
    def name(self) -> str:
        return self.target.attempt

    def note(self, oid: int) -> bytes:
        table = next(each.table for each in self.mirrors if each.oid == oid)
        kept = self.target.quarantine
        return pickle.dumps(CopyNote(table, kept.path if kept and not self.new_quarantine else None))

    def commit(self, at: Mapping[int, P], reports: Reports) -> Landed:
        base, source = self.lake.snapshot(), self.target.source
        landing = [each for each in self.mirrors if each.oid in at]
        newest = max(at.values())
        counts = {each.oid: _counts(each, reports) for each in landing}
        replaced = {oid: standing for each in landing for oid, standing in each.replaces.items()}
        settled = settle_all(self.lake, self.target, replaced, base, newest)
        kept = [*(note for each in landing for note in reports.get(misfits_of(each.oid), ())), *settled]
        changes = [table_change(each.table.name, reports.get(rows_of(each.oid), ()))[0] for each in landing]
        if kept:
            quarantine = self.new_quarantine.name if self.new_quarantine else quarantine_table(self.lake, source).id
            changes.append(table_change(quarantine, kept)[0])
        commit = PlannedCommit(
            base,
            source,
            {each.oid: _advance(each, at[each.oid], counts[each.oid]) for each in landing},
            (*(each.table for each in landing), *((self.new_quarantine,) if self.new_quarantine else ())),
            tuple(changes),
            alterations=renamed(self.lake, source, type(newest), self.names),
            dropped=tuple(each.table.id for each in replaced.values()),
            forgotten=tuple(replaced.keys() - {each.oid for each in landing}),
            attempt=self.target.attempt,
            noted=self.noted,
        )
        try:
            return Landed(land(self.lake, commit), counts, bytes=data_bytes(changes))
        except (CommitConflict, AlreadyDelivered, TableError):
            if settled:
                delete_files(quarantine_table(self.lake, source).path, settled)
            raise

    def discard(self, reports: Reports) -> None:
        for to, notes in reports.items():
            delete_files(self.target.landing(to).path, notes)


def renamed(lake: Lake, source: str, kind: type[Position], names: Mapping[int, TableName]) -> tuple[Alteration, ...]:
    """Mirrors with other names and the columns they have."""
    if not names:
        return ()
    tables = {oid: each.table for oid, each in standings(lake, source, kind).items() if oid in names}
    return tuple(Alteration(table.id, table.columns, names[oid]) for oid, table in tables.items())


def _counts(mirror: NewMirror[P], reports: Reports) -> Counts:
    bad = reports.get(misfits_of(mirror.oid), ())
    return Counts(copied=rows_written(reports.get(rows_of(mirror.oid), ())), quarantined=rows_written(bad))


def _advance(mirror: NewMirror[P], at: P, counts: Counts) -> Advance:
    expected = mirror.replaces[mirror.oid].position if mirror.oid in mirror.replaces else None
    return Advance(mirror.table.name, expected, at, str(mirror.mirrored), counts)
