"""Changes to a DuckLake's tables: planned on a snapshot, written by workers, landed in the next one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic

import pyarrow as pa

from headwater.change import NewestCommit, Relation, TableName
from headwater.ducklake.deletes import end_file
from headwater.ducklake.evolution import check_names
from headwater.ducklake.flushing import movable
from headwater.ducklake.inlined import InlinedCounts
from headwater.ducklake.inlinedvalues import can_be_inlined
from headwater.ducklake.lake import Lake
from headwater.ducklake.mergeable import oldest_snapshot
from headwater.ducklake.model import (
    Advance,
    Alteration,
    Field,
    InlinedEnds,
    LakeTable,
    LiveFile,
    PlannedCommit,
    SeenTable,
    Snapshot,
    TableChange,
)
from headwater.ducklake.partitions import check_kept
from headwater.ducklake.stats import column_stats, overlaps
from headwater.ducklake.writing import TableFolder, arrow_type
from headwater.files import filesystem
from headwater.lake import quarantine
from headwater.lake.counts import Counts
from headwater.lake.mirrored import MirroredColumns
from headwater.lake.sink import Inline, Keys, Kinds, Landed, Volume, Wanted
from headwater.lake.stream import P
from headwater.lake.target import SETTLED, PartitionSet, Reports, misfits_of, rows_of
from headwater.sink.ducklake.columns import evolved, follows
from headwater.sink.ducklake.landing import signed
from headwater.sink.ducklake.places import DuckLakePlace, FilePlace, InlinedPlace
from headwater.sink.ducklake.quarantine import quarantine_places
from headwater.sink.ducklake.reports import TakenOut, data_bytes, delete_files, rows_written, table_change
from headwater.sink.ducklake.standing import DuckLakeStanding
from headwater.sink.ducklake.target import DuckLakeTarget, Landing, landing

__all__ = ["DuckLakeDelivery", "DuckLakePlan"]

INLINED_ROWS, INLINED_BYTES = 1_000, 1 << 20  # of a table's share of a delivery; more is quicker in a file
STUCK_TIMES, STUCK_BYTES = 10, 64 << 20  # how much more may be there that no flush can move, and its size
INLINED_WIDTH = 8 << 10  # bytes of a row, on average: rows of this size still fit into a catalog by the thousand


@dataclass(frozen=True, slots=True)
class _Evolution:
    """A mirror's columns as the next commit is to have them."""

    fields: tuple[Field, ...]
    mirrored: MirroredColumns


@dataclass(frozen=True, slots=True)
class DuckLakePlan(Generic[P]):
    """Implements `headwater.lake.sink.Plan`."""

    lake: Lake
    source: str
    base: Snapshot
    standings: Mapping[int, DuckLakeStanding[P]]
    quarantine: LakeTable | None  # None: the stream has no misfits
    evolutions: Mapping[int, _Evolution] = field(default_factory=dict)

    @property
    def snapshot_id(self) -> int:
        return self.base.id

    def evolved(self, relation: Relation, kinds: Kinds) -> tuple[DuckLakePlan[P], bool]:
        standing = self.standings[relation.oid]
        columns, wanted = standing.table.columns, tuple(kinds[each.name] for each in relation.columns)
        if relation.oid not in self.evolutions and follows(columns, standing.mirrored, relation.columns, wanted):
            return self, False  # as a rule, and a plan of many tables asks for each of them
        added = any(column.attnum not in standing.mirrored.fields for column in relation.columns)
        next_id = self.lake.next_column_id(standing.table.id) if added else 0
        fields, mirrored = evolved(standing.table, standing.mirrored, relation, dict(kinds), next_id)
        check_names(str(relation.table), fields)
        check_kept(str(relation.table), standing.table.partition_keys, standing.table.columns, fields)
        evolutions = {**self.evolutions, relation.oid: _Evolution(fields, mirrored)}
        return replace(self, evolutions=evolutions), fields != standing.table.columns

    def begin(
        self,
        keys: Keys,
        newest: NewestCommit | None = None,
        attempt: str | None = None,
        inline: Inline | None = None,
    ) -> DuckLakeDelivery[P]:
        tables = {oid: self.standings[oid].table.id for oid in keys}
        inlined, open_ = self._held(tables.values()) if tables else ({}, [])
        small = self._small(tables, inlined, inline) if inline else frozenset()
        landings = {oid: self._landing(oid, key, inlined=oid in small) for oid, key in keys.items()}
        kept = landing(self.quarantine, quarantine.KNOWN_BY) if self.quarantine else None
        name = attempt or (self.lake.begin(self.source) if keys else "")  # nothing is written without a table
        target = DuckLakeTarget(landings, kept, self.base.id + 1, self.source, name)
        return DuckLakeDelivery(self, keys, target, newest, attempt is None, inlined, open_)

    def _held(self, tables: Collection[int]) -> tuple[Mapping[int, Sequence[InlinedCounts]], Sequence[FilePlace]]:
        """The rows of these tables in the catalog, and the files of the quarantine."""
        with self.lake.at_once():
            files = quarantine_places(self.lake, self.quarantine, self.base) if self.quarantine else []
            return self.lake.inlined_counts(tables, self.base), files

    def fields(self, oid: int) -> tuple[Field, ...]:
        return self.evolutions[oid].fields if oid in self.evolutions else self.standings[oid].table.columns

    def _landing(self, oid: int, key: tuple[str, ...], *, inlined: bool) -> Landing:
        """Without a key, a table's rows are known by all of its columns that we mirror."""
        table = replace(self.standings[oid].table, columns=self.fields(oid))
        return landing(table, key or self._mirrored(oid), self.lake.catalog.dialect if inlined else None)

    def _small(
        self, tables: Mapping[int, int], inlined: Mapping[int, Sequence[InlinedCounts]], inline: Inline
    ) -> frozenset[int]:
        """The tables whose rows go into the catalog: few, of types that it can hold, and not too many with the others.

        Rows that have ended are counted, too: every reader of the table gets them. Of a few rows that change all the
        time, each version would need a file of its own: more of these may be there, since a flush leaves them behind.
        """

        def fits(oid: int) -> bool:
            rows, size = inline.volumes.get(oid, Volume(INLINED_ROWS + 1, 0))
            return (
                rows <= INLINED_ROWS
                and size <= min(INLINED_BYTES, rows * INLINED_WIDTH)
                and self._has_room(inlined.get(tables[oid], ()), rows, size, inline.most)
                and not self.standings[oid].table.partition_keys
                and not self.standings[oid].table.is_sorted  # which rows in the catalog do not survive
                and all(map(can_be_inlined, self.fields(oid)))
            )

        return frozenset(oid for oid in tables if fits(oid))

    def _has_room(self, held: Sequence[InlinedCounts], rows: int, size: int, most: int) -> bool:
        """Whether so many rows more, of this size, may go into the catalog beside those that it holds of the table."""
        there = sum(each.rows for each in held)
        if there + rows <= most:
            return True
        with self.lake.reading() as tx:
            oldest = oldest_snapshot(tx)
            stuck = sum(each.rows - each.live - movable(tx, each.name, oldest) for each in held if each.rows)
        few = stuck <= STUCK_TIMES * most and stuck * size <= STUCK_BYTES * max(rows, 1)
        return few and there - stuck + rows <= most

    def _mirrored(self, oid: int) -> tuple[str, ...]:
        mirrored = self.evolutions[oid].mirrored if oid in self.evolutions else self.standings[oid].mirrored
        by_id = {each.id: each.name for each in self.fields(oid)}
        return tuple(by_id[id_] for _, id_ in sorted(mirrored.fields.items()))


@dataclass(frozen=True, slots=True)
class DuckLakeDelivery(Generic[P]):
    """Implements `headwater.lake.sink.Delivery`."""

    plan: DuckLakePlan[P]
    keys: Keys
    target: DuckLakeTarget
    newest: NewestCommit | None
    noted: bool  # the attempt, in the lake
    inlined: Mapping[int, Sequence[InlinedCounts]]  # rows in the catalog, by table
    in_quarantine: Sequence[FilePlace]

    def places(self, wanted: Wanted) -> list[DuckLakePlace]:
        with self.plan.lake.at_once():
            return self._places(wanted)

    def _places(self, wanted: Wanted) -> list[DuckLakePlace]:
        plan = self.plan
        tables = {plan.standings[oid].table.id: oid for oid in wanted}
        if not tables:
            return []
        leading = {oid: self._leading(oid) for oid in wanted}
        sought = {oid: _texts(leading[oid], each.bounds) for oid, each in wanted.items()}
        bounds_of = {table_id: [leading[oid].id] for table_id, oid in tables.items()}
        divided = [table_id for table_id, oid in tables.items() if wanted[oid].partitions is not None]
        found: list[DuckLakePlace] = [*self._in_catalog(tables)]
        folders = {plan.standings[oid].table.id: plan.standings[oid].table.path for oid in wanted}
        for file in plan.lake.files(folders, plan.base, bounds_of, divided):
            oid = tables[file.table_id]
            column = leading[oid]
            if overlaps(file.bounds.get(column.id, (None, None)), column.type, sought[oid]) and self._in_reach(
                oid, file, wanted[oid].partitions
            ):
                found.append(FilePlace(oid, file))
        return found

    def _in_catalog(self, tables: Mapping[int, int]) -> list[InlinedPlace]:
        """The places there of the lake's tables with these ids, which mirror those OIDs."""
        lake, base = self.plan.lake, self.plan.base.id
        counts = [each for table_id in tables for each in self.inlined.get(table_id, ()) if each.live]
        now = {table_id: self.plan.standings[oid].table for table_id, oid in tables.items()}
        found = lake.inlined_tables(counts, now) if counts else []
        return [
            InlinedPlace(tables[each.table_id], lake.url, table, base, each.live)
            for each, table in zip(counts, found, strict=True)
        ]

    def quarantine(self) -> Sequence[FilePlace]:
        return self.in_quarantine

    def commit(
        self, reports: Reports, truncated: Collection[int], upto: Mapping[int, P], names: Mapping[int, TableName]
    ) -> Landed:
        commit, counts = self.planned(reports, truncated, upto, names)
        return Landed(self.plan.lake.commit(commit), counts, bytes=data_bytes(commit.changes))

    def planned(
        self, reports: Reports, truncated: Collection[int], upto: Mapping[int, P], names: Mapping[int, TableName]
    ) -> tuple[PlannedCommit, dict[int, Counts]]:
        """What `commit` commits, and what it counts."""
        plan, changes, counts, advances = self.plan, [], {}, {}
        for oid, position in upto.items():
            standing = plan.standings[oid]
            if rows_of(oid) in reports or oid in truncated:
                ended = self._ended(oid) if oid in truncated else []
                change, counts[oid] = table_change(standing.table.id, reports.get(rows_of(oid), ()), ended)
                changes.append(replace(change, truncate=oid in truncated))
                counts[oid] = replace(counts[oid], quarantined=rows_written(reports.get(misfits_of(oid), ())))
            next_ = plan.evolutions[oid].mirrored if oid in plan.evolutions else standing.mirrored
            mirrored = None if next_ == standing.mirrored else str(next_)
            advances[oid] = Advance(standing.table.id, standing.position, position, mirrored, counts.get(oid, Counts()))
        kept = [note for to in (SETTLED, *map(misfits_of, upto)) for note in reports.get(to, ())]
        if kept:
            assert plan.quarantine is not None
            changes.append(table_change(plan.quarantine.id, kept)[0])
        commit = PlannedCommit(
            plan.base,
            plan.source,
            advances,
            changes=tuple(changes),
            alterations=self._alterations(upto, names),
            attempt=(self.target.attempt or None) if self.noted or any(map(_has_files, changes)) else None,
            noted=self.noted,
            seen={plan.standings[oid].table.id: self._seen(oid) for oid in upto if oid in self.keys},
        )
        return signed(commit, self.newest), counts

    def _seen(self, oid: int) -> SeenTable:
        table = self.plan.standings[oid].table
        newest = [each.name for each in self.inlined.get(table.id, ()) if each.is_newest]
        return SeenTable(table, newest[-1] if newest else None)

    def discard(self, reports: Reports) -> None:
        for to, notes in reports.items():
            delete_files(self.target.landing(to).path, notes)

    def _alterations(self, upto: Collection[int], names: Mapping[int, TableName]) -> tuple[Alteration, ...]:
        """Columns change with a table's own changes only; names also of tables that do not move."""
        found = []
        for oid in dict.fromkeys((*names, *upto)):
            table = self.plan.standings[oid].table
            fields = self.plan.fields(oid) if oid in upto else table.columns
            if fields != table.columns or oid in names:
                found.append(Alteration(table.id, fields, names.get(oid)))
        return tuple(found)

    def _ended(self, oid: int) -> list[TakenOut]:
        table = self.plan.standings[oid].table
        where = TableFolder(filesystem(table.path), table.path, self.target.attempt)
        files = [
            TakenOut(end_file(where, file), file.record_count - file.deleted_count)
            for file in self.plan.lake.files([table.id], self.plan.base)
        ]
        inlined = [each for each in self.inlined.get(table.id, ()) if each.live]
        return [*files, *(TakenOut(InlinedEnds(each.name, each.live), each.live) for each in inlined)]

    def _in_reach(self, oid: int, file: LiveFile, partitions: PartitionSet | None) -> bool:
        """Whether the file is in one of the partitions, or older than the way in which they are made now."""
        now = self.plan.standings[oid].table.partitioning
        if partitions is None or now is None or file.partition_id != now.id or len(file.partition) != len(now.keys):
            return True
        return partitions.has(file.partition)

    def _leading(self, oid: int) -> Field:
        fields = self.plan.fields(oid)
        name = (self.keys[oid] or (fields[0].name,))[0]
        return next(field for field in fields if field.name == name)


def _has_files(change: TableChange) -> bool:
    """Whether the attempt that wrote them must be able to land: without files, nothing is lost if it was given up."""
    return bool(change.data_files) or any(each.delete_file is not None for each in change.deletes)


def _texts(column: Field, bounds: tuple[int, int] | None) -> tuple[str | None, str | None]:
    """Bounds as the catalog's statistics spell them."""
    if bounds is None:
        return None, None
    kind = arrow_type(column)
    if pa.types.is_integer(kind):
        return str(bounds[0]), str(bounds[1])
    numbers = pa.array(bounds, pa.int32() if pa.types.is_date32(kind) else pa.int64())
    values = numbers.view(kind) if pa.types.is_temporal(kind) else numbers.cast(kind)
    (stats,) = column_stats(pa.table({column.name: values}), [column])
    return stats.min, stats.max
