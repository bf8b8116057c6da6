"""A DuckLake as the end of the pipeline: tables, files, deletes and positions land in one snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.change import Lsn, Relation, TableName
from headwater.ducklake.deletes import end_file
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import Advance, Commit, Field, FileDeletes, NewTable, Snapshot, Table, TableChange
from headwater.ducklake.stats import column_stats, overlaps
from headwater.ducklake.writing import arrow_type
from headwater.errors import OperatorMustAct
from headwater.files import filesystem, inside
from headwater.sink.target import DuckLakePlace, DuckLakeTarget, Landing, TakenOut, Wrote, read_report
from headwater.types import lake_type

__all__ = ["DuckLakeSink", "Landed", "NewMirror", "Plan", "Standing"]

AUTHOR = "headwater"


@dataclass(frozen=True, slots=True)
class Standing:
    """A mirrored table as the lake has it now."""

    oid: int
    table: Table
    position: Lsn


@dataclass(frozen=True, slots=True)
class Plan:
    """One delivery: the snapshot it is planned on, and the tables it advances."""

    base: Snapshot
    standings: Mapping[int, Standing]

    def target(self, keys: Mapping[int, tuple[str, ...]]) -> DuckLakeTarget:
        landings = {oid: _landing(self.standings[oid].table, key) for oid, key in keys.items()}
        return DuckLakeTarget(landings, self.base.id + 1)


@dataclass(frozen=True, slots=True)
class NewMirror:
    """A table the lake does not have yet; its folder is known, so files can be written before it exists."""

    oid: int
    table: NewTable


@dataclass(frozen=True, slots=True)
class Landed:
    """What a commit did to one table."""

    inserted: int
    updated: int
    deleted: int


class DuckLakeSink:
    """Exactly once: a commit names the position it starts from, and lands only if the lake stands there."""

    def __init__(self, lake: Lake, source: str) -> None:
        self._lake = lake
        self._source = source  # whose OIDs the positions are under

    def standings(self) -> dict[int, Standing]:
        """Every table of ours in the lake, with its position. The lake's word is the truth."""
        positions = self._lake.positions(self._source)
        tables = {table.id: table for table in self._lake.tables().values()}
        return {
            oid: Standing(oid, tables[each.table_id], each.lsn)
            for oid, each in positions.items()
            if each.table_id in tables
        }

    def plan(self) -> Plan:
        """Plan on the newest snapshot. It is read first, so what others change after it is noticed at the commit."""
        base = self._lake.snapshot()
        standings = self.standings()
        # Another client may have put rows into the catalog itself, where no file holds them: have them moved.
        for table_id in self._lake.inlined_rows([each.table.id for each in standings.values()]):
            self._lake.flush_inlined(next(each.table for each in standings.values() if each.table.id == table_id))
            base = self._lake.snapshot()
        return Plan(base, standings)

    def places(
        self, plan: Plan, keys: Mapping[int, tuple[str, ...]], wanted: Mapping[int, tuple[int, int] | None]
    ) -> list[DuckLakePlace]:
        """The live files of the wanted tables that may hold a key whose first column lies within the bounds."""
        tables = {plan.standings[oid].table.id: oid for oid in wanted}
        if not tables:
            return []
        leading = {oid: _column(plan.standings[oid].table, keys[oid][0]) for oid in wanted}
        sought = {oid: _texts(leading[oid], bounds) for oid, bounds in wanted.items()}
        found = []
        bounds_of = {table_id: [leading[oid].id] for table_id, oid in tables.items()}
        for file in self._lake.files(list(tables), plan.base, bounds_of):
            oid = tables[file.table_id]
            column = leading[oid]
            if overlaps(file.bounds.get(column.id, (None, None)), column.type, sought[oid]):
                found.append(DuckLakePlace(oid, file))
        return found

    def commit(
        self, plan: Plan, reports: Mapping[int, list[bytes]], truncated: set[int], upto: Mapping[int, Lsn]
    ) -> tuple[int, dict[int, Landed]]:
        """Land files and positions of the tables in `upto`: the snapshot's id, and what each table got."""
        changes, landed = [], {}
        for oid in upto:
            if oid in reports or oid in truncated:
                ended = self._ended(plan, oid) if oid in truncated else []
                change, landed[oid] = _change(plan.standings[oid].table.id, reports.get(oid, []), ended)
                changes.append(replace(change, truncate=oid in truncated))
        advances = {
            oid: Advance(plan.standings[oid].table.id, plan.standings[oid].position, lsn) for oid, lsn in upto.items()
        }
        return self._land(Commit(plan.base, self._source, advances, changes=tuple(changes))), landed

    def new_mirror(self, relation: Relation, name: TableName) -> NewMirror:
        """Prepare a table for `create`."""
        if self._lake.table(name) is not None:
            raise OperatorMustAct(
                f"the lake has a table {str(name)!r} already that is not a mirror of {str(relation.table)!r}",
                hint="drop or rename it in the lake, or let the mirror land elsewhere with `as:`",
            )
        fields = [
            Field(0, column.name, lake_type(column.type_oid, column.typmod).ducklake) for column in relation.columns
        ]
        return NewMirror(relation.oid, self._lake.new_table(name, fields))

    def copy_target(self, mirrors: Iterable[NewMirror]) -> DuckLakeTarget:
        """Where the files of tables to come are written."""
        landings = {each.oid: Landing(each.table.path, each.table.columns, ()) for each in mirrors}
        return DuckLakeTarget(landings, self._lake.snapshot().id + 1)

    def create(
        self, mirrors: Iterable[NewMirror], reports: Mapping[int, list[bytes]], at: Lsn
    ) -> tuple[int, dict[int, int]]:
        """Create tables with all their rows in one snapshot: the snapshot's id, and the rows of each."""
        changes, rows, advances, tables = [], {}, {}, []
        for mirror in mirrors:
            change, landed = _change(mirror.table.name, reports.get(mirror.oid, []), [])
            changes.append(change)
            rows[mirror.oid] = landed.inserted
            advances[mirror.oid] = Advance(mirror.table.name, None, at)
            tables.append(mirror.table)
        commit = Commit(self._lake.snapshot(), self._source, advances, tuple(tables), tuple(changes))
        return self._land(commit), rows

    def discard(self, plan: Plan, reports: Mapping[int, list[bytes]]) -> None:
        """Delete the files of reports that did not land."""
        for oid, notes in reports.items():
            path = plan.standings[oid].table.path
            for report in map(read_report, notes):
                written = report.file if isinstance(report, Wrote) else report.deletes.delete_file
                if written is not None:
                    filesystem(path).delete_file(inside(path) + written.path)

    def _land(self, commit: Commit) -> int:
        position = max(advance.new for advance in commit.positions.values())
        group = self._source.rsplit("/", 1)[-1]
        extra = json.dumps({"lsn": str(position), "source": self._source})
        return self._lake.commit(replace(commit, author=AUTHOR, message=f"{group} up to {position}", extra_info=extra))

    def _ended(self, plan: Plan, oid: int) -> list[TakenOut]:
        table = plan.standings[oid].table
        return [
            TakenOut(end_file(filesystem(table.path), table.path, file), file.record_count - file.deleted_count)
            for file in self._lake.files([table.id], plan.base)
        ]


def _change(table: int | TableName, reports: list[bytes], ended: list[TakenOut]) -> tuple[TableChange, Landed]:
    found = [read_report(report) for report in reports]
    wrote = [each for each in found if isinstance(each, Wrote)]
    taken = [*(each for each in found if isinstance(each, TakenOut)), *ended]
    updated = sum(each.file.rows for each in wrote if each.replacing)
    inserted = sum(each.file.rows for each in wrote if not each.replacing)
    deletes: tuple[FileDeletes, ...] = tuple(each.deletes for each in taken)
    change = TableChange(table, tuple(each.file for each in wrote), deletes)
    return change, Landed(inserted, updated, sum(each.rows for each in taken) - updated)


def _landing(table: Table, key: tuple[str, ...]) -> Landing:
    by_name = {field.name: field for field in table.columns}
    return Landing(table.path, table.columns, tuple(by_name[name] for name in key if name in by_name))


def _column(table: Table, name: str) -> Field:
    return next(field for field in table.columns if field.name == name)


def _texts(column: Field, bounds: tuple[int, int] | None) -> tuple[str | None, str | None]:
    """Bounds as the catalog's statistics spell them."""
    if bounds is None:
        return None, None
    kind = arrow_type(column)
    numbers = pa.array(bounds, pa.int32() if pa.types.is_date32(kind) else pa.int64())
    values = numbers.view(kind) if pa.types.is_temporal(kind) else numbers.cast(kind)
    (stats,) = column_stats(pa.table({column.name: values}), [column])
    return stats.min, stats.max
