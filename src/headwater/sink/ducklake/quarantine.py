"""The quarantine in a DuckLake: a table of its own, made when it is first needed."""

from __future__ import annotations

from collections.abc import Collection

from headwater.change import Position
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import Field, LakeTable, NewTable, PlannedCommit, Snapshot
from headwater.ducklake.partitions import not_computable
from headwater.ducklake.types import ducklake_type
from headwater.errors import OperatorMustAct
from headwater.lake import quarantine
from headwater.sink.ducklake.places import FilePlace
from headwater.sink.ducklake.target import DuckLakeTarget, landing

__all__ = ["AUTHOR", "found_quarantine", "new_quarantine", "quarantine_places", "quarantine_table", "settle_all"]

AUTHOR = "headwater"


def new_quarantine(lake: Lake) -> NewTable | None:
    """The quarantine for a commit to create; None if the lake has it."""
    if lake.table(quarantine.NAME) is not None:
        return None
    return lake.new_table(
        quarantine.NAME, [Field(0, name, ducklake_type(kind)) for name, kind in quarantine.FIELDS.items()]
    )


def quarantine_table(lake: Lake, source: str) -> LakeTable:
    """The quarantine; created again if another client dropped it."""
    table = found_quarantine(lake)
    if table is None:
        new = new_quarantine(lake)
        assert new is not None
        lake.commit(PlannedCommit(lake.snapshot(), source, new_tables=(new,), author=AUTHOR))
        return quarantine_table(lake, source)
    return table


def found_quarantine(lake: Lake) -> LakeTable | None:
    """The quarantine, if the lake has it; OperatorMustAct if that is not a table that we write."""
    table = lake.table(quarantine.NAME)
    if table is None:
        return None
    if [each.name for each in table.columns] != list(quarantine.FIELDS):
        raise OperatorMustAct(
            f"the lake has a table {str(quarantine.NAME)!r} that is not ours", hint="rename it in the lake"
        )
    if not_computable(table.partition_keys, table.columns) is not None:
        raise OperatorMustAct(
            f"another client has partitioned {str(quarantine.NAME)!r} in a way that Headwater does not write",
            hint=f"run `ALTER TABLE {quarantine.NAME} RESET PARTITIONED BY` in the lake",
        )
    return table


def quarantine_places(lake: Lake, table: LakeTable, base: Snapshot) -> list[FilePlace]:
    return [FilePlace(None, file) for file in lake.files([table.id], base)]


def settle_all(
    lake: Lake, target: DuckLakeTarget, tables: Collection[int], base: Snapshot, at: Position
) -> list[bytes]:
    """Mark every open value of these tables as settled: what is still bad comes again with their new copies."""
    if not tables or target.quarantine is None:
        return []
    table = quarantine_table(lake, target.source)
    own = DuckLakeTarget({}, landing(table, quarantine.KNOWN_BY), base.id + 1, target.source, target.attempt)
    settled = quarantine.settled_by(at)
    reports: list[bytes] = []
    for place in quarantine_places(lake, table, base):
        found = {position: settled for position, _ in quarantine.unresolved(own, place, tables)}
        reports += quarantine.rewritten(own, place, found)
    return reports
