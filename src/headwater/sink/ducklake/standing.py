"""A mirrored table as a DuckLake has it now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from headwater.change import Relation, TableName
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import LakeTable, Snapshot
from headwater.ducklake.partitions import not_computable
from headwater.errors import TableError
from headwater.lake.counts import Counts
from headwater.lake.mirrored import MirroredColumns
from headwater.lake.stream import P

__all__ = ["DuckLakeStanding", "standings", "standings_now"]


@dataclass(frozen=True, slots=True)
class DuckLakeStanding(Generic[P]):
    """Implements `headwater.lake.sink.Standing`."""

    oid: int
    table: LakeTable
    position: P
    mirrored: MirroredColumns
    counts: Counts

    @property
    def name(self) -> TableName:
        return TableName(self.table.schema, self.table.name)

    def check_writable(self) -> None:
        if (key := not_computable(self.table.partition_keys, self.table.columns)) is not None:
            raise TableError(
                f"another client has partitioned {self.name} by {key}, which Headwater does not write",
                hint=f"run `ALTER TABLE {self.name} RESET PARTITIONED BY` in the lake",
            )

    def same_key(self, relation: Relation) -> bool:
        return self.mirrored.same_key(relation)


def standings(lake: Lake, source: str, kind: type[P]) -> Mapping[int, DuckLakeStanding[P]]:
    """The source's tables, by their OIDs; `kind` is that of its positions."""
    return standings_now(lake, source, kind)[1]


def standings_now(lake: Lake, source: str, kind: type[P]) -> tuple[Snapshot, Mapping[int, DuckLakeStanding[P]]]:
    """The same, with the snapshot that has them."""
    newest, positions, tables = lake.mirrors(source, kind)
    return newest, {
        oid: DuckLakeStanding(
            oid,
            tables[each.table_id],
            each.position,
            MirroredColumns.parse(each.mirrored) if each.mirrored else MirroredColumns({}),
            each.counts,
        )
        for oid, each in positions.items()
        if each.table_id in tables
    }
