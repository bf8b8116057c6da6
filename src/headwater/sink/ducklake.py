"""A DuckLake as the end of the pipeline: tables, files, deletes and positions land in one snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headwater.change import Lsn, Relation, TableName
from headwater.ducklake.deletes import end_file
from headwater.ducklake.evolution import check_names
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import (
    Advance,
    Alteration,
    Field,
    FileDeletes,
    LakeTable,
    NewTable,
    PlannedCommit,
    Snapshot,
    TableChange,
)
from headwater.ducklake.names import Names
from headwater.ducklake.stats import column_stats, overlaps
from headwater.ducklake.writing import TableFolder, arrow_type
from headwater.errors import AlreadyDelivered, CommitConflict, OperatorMustAct, TableError
from headwater.files import filesystem, inside
from headwater.lake import quarantine
from headwater.lake.counts import Counts
from headwater.sink.shape import Shape, fields_of, followed
from headwater.sink.target import DuckLakePlace, DuckLakeTarget, Landing, TakenOut, Wrote, read_report
from headwater.values.types import LakeType

__all__ = ["DuckLakeSink", "Followed", "NewMirror", "Plan", "Standing"]

AUTHOR = "headwater"


@dataclass(frozen=True, slots=True)
class Standing:
    """A mirrored table as the lake has it now."""

    oid: int
    table: LakeTable
    position: Lsn
    shape: Shape
    counts: Counts

    @property
    def name(self) -> TableName:
        return TableName(self.table.schema, self.table.name)


@dataclass(frozen=True, slots=True)
class Followed:
    """A table's columns as the next commit is to have them; `alteration` if they are not so yet."""

    fields: tuple[Field, ...]
    shape: Shape
    alteration: Alteration | None


@dataclass(frozen=True, slots=True)
class Plan:
    """One delivery: the snapshot it is planned on, and the tables it advances."""

    source: str
    base: Snapshot
    standings: Mapping[int, Standing]
    quarantine: LakeTable
    followed: dict[int, Followed] = field(default_factory=dict)
    moved: dict[int, TableName] = field(default_factory=dict)  # by name alone, before the table's changes tell of it
    attempts: list[str] = field(default_factory=list)  # to write its files; the last one may land

    def target(self, keys: Mapping[int, tuple[str, ...]]) -> DuckLakeTarget:
        """What the workers need. Without a key, a table's rows are told apart by all of its columns we mirror."""
        landings = {0: _landing(self.quarantine.path, self.quarantine.columns, quarantine.KNOWN_BY)}
        for oid, key in keys.items():
            landings[oid] = _landing(self.standings[oid].table.path, self.fields(oid), key or self._mirrored(oid))
        return DuckLakeTarget(landings, self.base.id + 1, self.source, self.attempt or "")

    @property
    def attempt(self) -> str | None:
        return self.attempts[-1] if self.attempts else None

    def fields(self, oid: int) -> tuple[Field, ...]:
        return self.followed[oid].fields if oid in self.followed else self.standings[oid].table.columns

    def _mirrored(self, oid: int) -> tuple[str, ...]:
        shape = self.followed[oid].shape if oid in self.followed else self.standings[oid].shape
        by_id = {each.id: each.name for each in self.fields(oid)}
        return tuple(by_id[id_] for _, id_ in sorted(shape.fields.items()))


@dataclass(frozen=True, slots=True)
class NewMirror:
    """A table the lake does not have yet; its folder is known, so files can be written before it exists.

    `replaces` are the mirrors that go in the same snapshot: its own, if the table is copied again, and those of the
    tables whose place it takes.
    """

    oid: int
    table: NewTable
    shape: Shape
    replaces: Mapping[int, Standing]


class DuckLakeSink:
    """Exactly once: a commit names the position it starts from, and lands only if the lake stands there."""

    def __init__(self, lake: Lake, source: str) -> None:
        self._lake = lake
        self.source = source  # whose OIDs the positions are under

    def standings(self) -> dict[int, Standing]:
        """Every table of ours in the lake, with its position. The lake's word is the truth."""
        positions = self._lake.positions(self.source)
        tables = {table.id: table for table in self._lake.tables().values()}
        return {
            oid: Standing(
                oid,
                tables[each.table_id],
                each.lsn,
                Shape.parse(each.shape) if each.shape else Shape({}),
                each.counts,
            )
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
        return Plan(self.source, base, standings, self._quarantine())

    def begin(self, plan: Plan) -> None:
        """Begin to write, or begin anew: what an earlier attempt of this plan has written will not land."""
        plan.attempts.append(self._lake.begin(self.source))

    def collect(self) -> int:
        """Delete what attempts have written that failed or were killed; how many files. None may be under way."""
        return self._lake.collect(self.source)

    def follow(self, plan: Plan, relation: Relation, kinds: Mapping[str, LakeType], rename: TableName | None) -> None:
        """Let the plan's table have the relation's columns, and another name if it gets one; or TableError."""
        standing = plan.standings[relation.oid]
        added = any(column.attnum not in standing.shape.fields for column in relation.columns)
        next_id = self._lake.next_column_id(standing.table.id) if added else 0
        fields, shape = followed(standing.table, standing.shape, relation, dict(kinds), next_id)
        check_names(str(relation.table), fields)
        changed = fields != standing.table.columns or rename is not None
        alteration = Alteration(standing.table.id, fields, rename) if changed else None
        plan.followed[relation.oid] = Followed(fields, shape, alteration)

    def clashes(self, plan: Plan, oids: Iterable[int]) -> dict[int, str]:
        """Of these tables, which land together, those that cannot have their new names, and why."""
        altered = {oid: plan.followed[oid].alteration for oid in sorted(oids) if oid in plan.followed}
        named = {oid: each.name for oid, each in altered.items() if each is not None and each.name is not None}
        failed: dict[int, str] = {}
        while wanted := plan.moved | named:
            names = self._lake.names([plan.standings[oid].table.id for oid in wanted])
            refused = next(filter(None, (_refused(names, oid, name) for oid, name in wanted.items())), None)
            if refused is None:
                break
            oid, error = refused  # it keeps the name it has, so another may not get that one
            plan.moved.pop(oid, None)
            if named.pop(oid, None):
                failed[oid] = error
        return failed

    def places(
        self, plan: Plan, keys: Mapping[int, tuple[str, ...]], wanted: Mapping[int, tuple[int, int] | None]
    ) -> list[DuckLakePlace]:
        """The live files of the wanted tables that may hold a key whose first column lies within the bounds."""
        tables = {plan.standings[oid].table.id: oid for oid in wanted}
        if not tables:
            return []
        leading = {oid: _column(plan.fields(oid), (keys[oid] or (plan.fields(oid)[0].name,))[0]) for oid in wanted}
        sought = {oid: _texts(leading[oid], bounds) for oid, bounds in wanted.items()}
        found = []
        bounds_of = {table_id: [leading[oid].id] for table_id, oid in tables.items()}
        for file in self._lake.files(list(tables), plan.base, bounds_of):
            oid = tables[file.table_id]
            column = leading[oid]
            if overlaps(file.bounds.get(column.id, (None, None)), column.type, sought[oid]):
                found.append(DuckLakePlace(oid, file))
        return found

    def quarantine_places(self, plan: Plan) -> list[DuckLakePlace]:
        """The files of values that found no place; none, as a rule."""
        return [DuckLakePlace(0, file) for file in self._lake.files([plan.quarantine.id], plan.base)]

    def commit(
        self, plan: Plan, reports: Mapping[int, list[bytes]], truncated: set[int], upto: Mapping[int, Lsn]
    ) -> tuple[int, dict[int, Counts]]:
        """Land files, columns and positions of the tables in `upto`: the snapshot's id, and what each table got."""
        changes, landed, advances = [], {}, {}
        tables = {oid: plan.standings[oid].table for oid in plan.moved}
        alterations = {oid: Alteration(table.id, table.columns, plan.moved[oid]) for oid, table in tables.items()}
        for oid, lsn in upto.items():
            standing, shape = plan.standings[oid], None
            if oid in plan.followed:
                shape = str(plan.followed[oid].shape)
                if (alteration := plan.followed[oid].alteration) is not None:
                    alterations[oid] = replace(alteration, name=plan.moved.get(oid, alteration.name))
            if oid in reports or oid in truncated:
                ended = self._ended(plan, oid) if oid in truncated else []
                change, landed[oid] = _change(standing.table.id, reports.get(oid, []), ended)
                changes.append(replace(change, truncate=oid in truncated))
                landed[oid] = replace(landed[oid], quarantined=_rows(reports.get(-oid, [])))
            advances[oid] = Advance(standing.table.id, standing.position, lsn, shape, landed.get(oid, Counts()))
        settled = [*reports.get(0, []), *(note for oid in upto for note in reports.get(-oid, []))]
        if settled:
            changes.append(_change(plan.quarantine.id, settled, [])[0])
        commit = PlannedCommit(
            plan.base,
            self.source,
            advances,
            changes=tuple(changes),
            alterations=tuple(alterations.values()),
            attempt=plan.attempt,
        )
        return self._land(commit), landed

    def names(self, oids: Iterable[int]) -> Names:
        """The names that are taken in the lake, once the mirrors of these tables have given up theirs."""
        standings = self.standings()
        return self._lake.names([standings[oid].table.id for oid in oids if oid in standings])

    def new_mirror(
        self,
        relation: Relation,
        kinds: Mapping[str, LakeType],
        name: TableName,
        names: Names,
        *,
        history: bool,
        replaces: Iterable[int] = (),
    ) -> NewMirror:
        """Prepare a table for `create`, under a free name; its own mirror, and those of `replaces`, make way for it."""
        standings = self.standings()
        gone = {oid: standings[oid] for oid in (relation.oid, *replaces) if oid in standings}
        fields, shape = fields_of(relation, dict(kinds), with_history=history)
        new = NewMirror(relation.oid, self._lake.new_table(name, fields), shape, gone)
        names.take(name)
        return new

    def new_quarantine(self) -> NewTable | None:
        """The table of values that found no place, for `create`; None if the lake has it."""
        if self._lake.table(quarantine.NAME) is not None:
            return None
        return self._lake.new_table(quarantine.NAME, [Field(0, name, kind) for name, _, kind in quarantine.FIELDS])

    def copy_target(self, mirrors: Iterable[NewMirror], new: NewTable | None) -> DuckLakeTarget:
        """Where the files of tables to come are written; `new` is the quarantine if it is one of them."""
        landings = {each.oid: Landing(each.table.path, each.table.columns, ()) for each in mirrors}
        kept = new or self._quarantine()
        landings[0] = Landing(kept.path, kept.columns, ())
        return DuckLakeTarget(landings, self._lake.snapshot().id + 1, self.source, self._lake.begin(self.source))

    def create(
        self,
        mirrors: Sequence[NewMirror],
        new: NewTable | None,
        reports: Mapping[int, list[bytes]],
        at: Lsn,
        moved: Mapping[int, TableName],
        attempt: str,
    ) -> tuple[int, dict[int, Counts]]:
        """Create tables with all their rows in one snapshot: the snapshot's id, and what each got.

        `moved` are other mirrors, whose names are needed, and the names that they get; `attempt` is that of the
        `copy_target` through which the rows were written.
        """
        base = self._lake.snapshot()
        changes, landed, advances = [], {}, {}
        for mirror in mirrors:
            mine, bad = (reports.get(oid, []) for oid in (mirror.oid, -mirror.oid))
            changes.append(_change(mirror.table.name, mine, [])[0])
            landed[mirror.oid] = Counts(copied=_rows(mine), quarantined=_rows(bad))
            expected = mirror.replaces[mirror.oid].position if mirror.oid in mirror.replaces else None
            advances[mirror.oid] = Advance(mirror.table.name, expected, at, str(mirror.shape), landed[mirror.oid])
        bad = [note for mirror in mirrors for note in reports.get(-mirror.oid, [])]
        replaced = {oid: standing for each in mirrors for oid, standing in each.replaces.items()}
        settled = self._settled(set(replaced), base, at, attempt)
        if bad or settled:
            changes.append(_change(new.name if new else self._quarantine().id, [*bad, *settled], [])[0])
        commit = PlannedCommit(
            base,
            self.source,
            advances,
            (*(each.table for each in mirrors), *((new,) if new else ())),
            tuple(changes),
            alterations=self._renamed(moved),
            dropped=tuple(each.table.id for each in replaced.values()),
            forgotten=tuple(replaced.keys() - {each.oid for each in mirrors}),
            attempt=attempt,
        )
        try:
            return self._land(commit), landed
        except (CommitConflict, AlreadyDelivered, TableError):
            if settled:
                _delete(self._quarantine().path, settled)
            raise

    def rename(self, moved: Mapping[int, TableName]) -> None:
        """Give mirrors other names, in a snapshot of its own."""
        base = self._lake.snapshot()
        self._lake.commit(PlannedCommit(base, self.source, alterations=self._renamed(moved), author=AUTHOR))

    def _renamed(self, moved: Mapping[int, TableName]) -> tuple[Alteration, ...]:
        tables = {oid: each.table for oid, each in self.standings().items() if oid in moved}
        return tuple(Alteration(table.id, table.columns, moved[oid]) for oid, table in tables.items())

    def _settled(self, replaced: set[int], base: Snapshot, at: Lsn, attempt: str) -> list[bytes]:
        """The quarantine without the open values of tables that are copied anew: what is still bad comes again."""
        if not replaced:
            return []
        table = self._quarantine()
        landing = _landing(table.path, table.columns, quarantine.KNOWN_BY)
        target = DuckLakeTarget({0: landing}, base.id + 1, self.source, attempt)
        reports: list[bytes] = []
        settled = quarantine.settled_by(at)
        for place in (DuckLakePlace(0, file) for file in self._lake.files([table.id], base)):
            found = {position: settled for position, _ in quarantine.unresolved(target, place, replaced)}
            reports += quarantine.rewritten(target, place, found)
        return reports

    def discard(self, plan: Plan, reports: Mapping[int, list[bytes]]) -> None:
        """Delete the files of a delivery's reports that did not land."""
        for oid, notes in reports.items():
            _delete(plan.standings[oid].table.path if oid > 0 else plan.quarantine.path, notes)

    def discard_copy(self, target: DuckLakeTarget, reports: Mapping[int, list[bytes]]) -> None:
        """Delete the files of a copy's reports that did not land."""
        for oid, notes in reports.items():
            _delete(target.landings[max(oid, 0)].path, notes)

    def close(self) -> None:
        self._lake.close()

    def _quarantine(self) -> LakeTable:
        """The table of values that found no place; made anew if somebody dropped it."""
        table = self._lake.table(quarantine.NAME)
        if table is None:
            new = self.new_quarantine()
            assert new is not None
            self._lake.commit(PlannedCommit(self._lake.snapshot(), self.source, new_tables=(new,), author=AUTHOR))
            return self._quarantine()
        if [each.name for each in table.columns] != [name for name, _, _ in quarantine.FIELDS]:
            raise OperatorMustAct(
                f"the lake has a table {str(quarantine.NAME)!r} that is not ours", hint="rename it in the lake"
            )
        return table

    def _land(self, commit: PlannedCommit) -> int:
        position = max(advance.new for advance in commit.positions.values())
        group = self.source.rsplit("/", 1)[-1]
        extra = json.dumps({"lsn": str(position), "source": self.source})
        return self._lake.commit(replace(commit, author=AUTHOR, message=f"{group} up to {position}", extra_info=extra))

    def _ended(self, plan: Plan, oid: int) -> list[TakenOut]:
        table = plan.standings[oid].table
        return [
            TakenOut(
                end_file(TableFolder(filesystem(table.path), table.path, plan.attempt or ""), file),
                file.record_count - file.deleted_count,
            )
            for file in self._lake.files([table.id], plan.base)
        ]


def _delete(path: str, reports: Iterable[bytes]) -> None:
    for report in map(read_report, reports):
        written = report.file if isinstance(report, Wrote) else report.deletes.delete_file
        if written is not None:
            filesystem(path).delete_file(inside(path) + written.path)


def _refused(names: Names, oid: int, name: TableName) -> tuple[int, str] | None:
    try:
        names.take(name)
    except TableError as error:
        return oid, str(error)
    return None


def _change(table: int | TableName, reports: list[bytes], ended: list[TakenOut]) -> tuple[TableChange, Counts]:
    found = [read_report(report) for report in reports]
    wrote = [each for each in found if isinstance(each, Wrote)]
    taken = [*(each for each in found if isinstance(each, TakenOut)), *ended]
    updated = sum(each.file.rows for each in wrote if each.file.has_row_ids)
    inserted = sum(each.file.rows for each in wrote if not each.file.has_row_ids)
    deletes: tuple[FileDeletes, ...] = tuple(each.deletes for each in taken)
    change = TableChange(table, tuple(each.file for each in wrote), deletes)
    counts = Counts(inserted=inserted, updated=updated, deleted=sum(each.rows for each in taken) - updated)
    return change, counts


def _rows(reports: Iterable[bytes]) -> int:
    return sum(each.file.rows for each in map(read_report, reports) if isinstance(each, Wrote))


def _landing(path: str, fields: tuple[Field, ...], key: Sequence[str]) -> Landing:
    by_name = {field.name: field for field in fields}
    return Landing(path, fields, tuple(by_name[name] for name in key if name in by_name))


def _column(fields: tuple[Field, ...], name: str) -> Field:
    return next(field for field in fields if field.name == name)


def _texts(column: Field, bounds: tuple[int, int] | None) -> tuple[str | None, str | None]:
    """Bounds as the catalog's statistics spell them."""
    if bounds is None:
        return None, None
    kind = arrow_type(column)
    numbers = pa.array(bounds, pa.int32() if pa.types.is_date32(kind) else pa.int64())
    values = numbers.view(kind) if pa.types.is_temporal(kind) else numbers.cast(kind)
    (stats,) = column_stats(pa.table({column.name: values}), [column])
    return stats.min, stats.max
