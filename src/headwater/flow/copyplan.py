"""Before a copy: the mirrors that it makes, under which names, and the ranges that are read for them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater import __version__
from headwater.change import Lsn, Relation, TableName
from headwater.copy.reading import balanced, files_of, showing
from headwater.copy.snapshot import Exported
from headwater.errors import ConfigError, OperatorMustAct, TableError
from headwater.flow.copyrange import RangeOfTable
from headwater.flow.mirroring import Mirroring, fail
from headwater.flow.names import free_names
from headwater.lake.partitioning import PartitionBy
from headwater.lake.sink import MirrorSpec
from headwater.postgres.connect import Connection
from headwater.source.naming import object_name
from headwater.source.relations import described, row_filter
from headwater.source.replaced import table_names
from headwater.state import TableRow
from headwater.state.copies import KeptCopy, KeptRange
from headwater.state.transitions import CopyBegun
from headwater.values.types import lake_types
from headwater.words import counted

__all__ = ["CopyPlan", "PlannedTable", "planned"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table to copy: its new mirror, what identifies this copy of it, and the ranges that are left to read."""

    mirror: Any
    definition: str
    ranges: tuple[RangeOfTable, ...]


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The tables to copy, and mirrors that give up their names for other ones."""

    tables: dict[int, PlannedTable]
    names: dict[int, TableName]


def planned(m: Mirroring, waiting: Sequence[TableRow], exported: Exported) -> CopyPlan:
    """What is to be copied, as the snapshot has it. A copy that was broken off goes on where it was, if it can."""
    tables, kept = {}, m.state.kept_copies(m.group)
    with showing(m.source_url, exported.snapshot_name) as connection:
        called = table_names(connection, [row.oid for row in waiting], [])
        lands = {row.oid: called.get(row.oid, row.lake) if row.options.followed_name else row.lake for row in waiting}
        names, moved = free_names(m, waiting, lands.values())
        for row in waiting:
            try:
                one = _Table.of(m, connection, row, lands[row.oid])
                mirror = m.sink.new_mirror(one.spec)
                names.take(lands[row.oid])
                done, mirror = _taken_up(m, row, one, mirror, kept.get(row.oid))
                pages = {
                    part: [(each.first_page, each.end_page) for each in done if each.oid == part] for part in one.files
                }
                cores = m.spark.sparkContext.defaultParallelism
                parts = balanced(connection, row.oid, cores, pages, m.range_pages) if _is_read(row) else []
            except (TableError, ConfigError, OperatorMustAct) as error:
                fail(m, row, str(error))
                continue
            ranges = tuple(
                RangeOfTable(one.relation, part, tuple(one.spec.kinds.values()), one.where, one.spec.history)
                for part in parts
            )
            tables[row.oid] = PlannedTable(mirror, one.definition, ranges)
            known, before = [part.rows for part in parts if part.rows is not None], sum(each.rows for each in done)
            m.state.record(m.group, row.oid, CopyBegun(min([exported.lsn, *(each.lsn for each in done)])))
            m.state.record_progress(m.group, row.oid, before, before + sum(known) if known else None)
    return CopyPlan(tables, moved)


def _is_read(row: TableRow) -> bool:
    """Whether a copy has the table's rows. If the config does not want them, only one that was asked for since has."""
    return row.options.copied or row.resync is not None


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as the source has it, and as the lake is to have it."""

    relation: Relation
    spec: MirrorSpec
    where: str | None
    files: Mapping[int, int]

    @classmethod
    def of(cls, m: Mirroring, connection: Connection, row: TableRow, lands: TableName) -> _Table:
        relation = described(connection, row.oid, object_name(m.group))
        kinds = lake_types(relation.columns, row.options.types, calendar_only=m.sink.calendar_only)
        by = tuple(map(PartitionBy.parse, row.options.partition_by))
        spec = MirrorSpec(relation, kinds, lands, row.options.mode == "history", row.replaces, by)
        return cls(relation, spec, row_filter(connection, object_name(m.group), row.oid), files_of(connection, row.oid))

    @property
    def definition(self) -> str:
        """What must be the same for a copy to go on: else rows are elsewhere, or would be written otherwise."""
        spec = self.spec
        columns = [(each, spec.kinds[each.name]) for each in self.relation.columns]
        said = repr(
            (
                __version__,
                columns,
                str(spec.name),
                spec.history,
                spec.partition_by,
                self.where,
                sorted(self.files.items()),
            )
        )
        return hashlib.sha256(said.encode()).hexdigest()

    def can_go_on(self, row: TableRow) -> bool:
        """Whether the log makes up for ranges of different positions: by its key, each row is found and replaced."""
        return bool(self.relation.key) and not self.spec.history and not row.options.append_only


def _taken_up(
    m: Mirroring, row: TableRow, table: _Table, mirror: Any, kept: KeptCopy | None
) -> tuple[Sequence[KeptRange], Any]:
    """The ranges that are done already, and the mirror with them; none, if the copy has to start from nothing."""
    if kept is None:
        return (), mirror
    begun = min((each.lsn for each in kept.ranges), default=Lsn(0))
    right = kept.definition == table.definition and table.can_go_on(row)
    if kept.ranges and right and begun >= row.resync_lsn and m.log.reaches(begun):
        misfits = any(part == "quarantine" for each in kept.ranges for part, _ in each.reports)
        taken = m.sink.taken_up(mirror, kept.note, misfits=misfits)
        if taken is not None:
            said = counted(len(kept.ranges), "range")
            logger.info("the copy of table %s goes on: %s are done since %s", row.source, said, begun)
            return kept.ranges, taken
    m.state.forget_copies(m.group, [row.oid])
    return (), mirror
