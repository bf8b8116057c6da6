"""Before a copy: the mirrors that it makes, under which names, and the ranges that are read for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwater.change import TableName
from headwater.copy.reading import balanced, showing
from headwater.copy.snapshot import Exported
from headwater.errors import ConfigError, OperatorMustAct, TableError
from headwater.flow.copyrange import RangeOfTable
from headwater.flow.mirroring import Mirroring, fail
from headwater.flow.names import free_names
from headwater.lake.partitioning import PartitionBy
from headwater.lake.sink import MirrorSpec
from headwater.source.naming import object_name
from headwater.source.relations import described, row_filter
from headwater.source.replaced import table_names
from headwater.state import TableRow
from headwater.state.transitions import CopyBegun
from headwater.values.types import lake_types

__all__ = ["CopyPlan", "planned"]


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The new mirrors by table, the ranges to read, and mirrors that give up their names for other ones."""

    mirrors: dict[int, Any]
    ranges: list[RangeOfTable]
    names: dict[int, TableName]


def planned(m: Mirroring, waiting: Sequence[TableRow], exported: Exported) -> CopyPlan:
    """What is to be copied, as the snapshot has it."""
    mirrors, ranges = {}, []
    with showing(m.source_url, exported.snapshot_name) as connection:
        called = table_names(connection, [row.oid for row in waiting], [])
        lands = {row.oid: called.get(row.oid, row.lake) if row.options.followed_name else row.lake for row in waiting}
        names, moved = free_names(m, waiting, lands.values())
        for row in waiting:
            try:
                relation = described(connection, row.oid, object_name(m.group))
                kinds = lake_types(relation.columns, row.options.types, calendar_only=m.sink.calendar_only)
                history = row.options.mode == "history"
                by = tuple(map(PartitionBy.parse, row.options.partition_by))
                spec = MirrorSpec(relation, kinds, lands[row.oid], history, row.replaces, by)
                mirror = m.sink.new_mirror(spec)
                names.take(lands[row.oid])
                parts = balanced(connection, row.oid, m.spark.sparkContext.defaultParallelism)
                where = row_filter(connection, object_name(m.group), row.oid)
            except (TableError, ConfigError, OperatorMustAct) as error:
                fail(m, row, str(error))
                continue
            mirrors[row.oid] = mirror
            ranges += [RangeOfTable(relation, part, tuple(kinds.values()), where, history) for part in parts]
            known = [part.rows for part in parts if part.rows is not None]
            m.state.record(m.group, row.oid, CopyBegun(exported.lsn))
            m.state.record_progress(m.group, row.oid, 0, sum(known) if known else None)
    return CopyPlan(mirrors, ranges, moved)
