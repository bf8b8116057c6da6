"""Before Spark: which columns and names the mirrors get, and what there is to merge into them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from headwater.change import Column, Lsn, TableName
from headwater.errors import CannotFollow, TableError
from headwater.flow.mirroring import Mirroring
from headwater.flow.tables import DeliveryTables, StagedBatch
from headwater.flow.versions import TableChanges, key_names
from headwater.lake.sink import Plan, Standing
from headwater.merge import Failure, Failures, Mirror, MirrorColumn
from headwater.state import TableRow
from headwater.values.types import LakeType, lake_types

__all__ = ["Prepared", "prepared"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A delivery that is ready for Spark: the plan with the mirrors' newest columns, and what is merged into them."""

    plan: Plan[Lsn]
    mirrors: Mapping[int, Mirror]  # those with rows
    failed: Failures
    names: Mapping[int, TableName]  # that mirrors want, because their tables were renamed
    sources: Mapping[int, TableName]  # that tables have now, unlike in the state


def prepared(m: Mirroring, plan: Plan[Lsn], tables: DeliveryTables, batch: StagedBatch) -> Prepared:
    generations = _generations(m, tables, batch)
    mirrors, names, sources = {}, {}, {}
    failed = dict(tables.failed)
    for oid, changes in batch.changes.items():
        row, standing, newest = tables.rows[oid], tables.taking_part[oid], changes.newest
        renamed = _is_renamed(row, standing, changes)
        try:
            if newest.generation != generations.get(oid, 0):
                raise CannotFollow(f"{newest.table}: {newest.reason}")
            asked = tuple(row.options.types.items())
            columns = _mirror_columns(newest.columns, asked, calendar_only=m.sink.calendar_only)
            evolved = _evolved(plan, row, standing, changes, {each.name: each.kind for each in columns})
            if changes.rows:
                mirrors[oid] = _mirror(row, standing, changes, columns)
        except TableError as error:
            failed[oid] = Failure.of(error)
            continue
        plan = evolved
        if renamed:
            names[oid] = newest.table
        if renamed or newest.table != row.source:
            sources[oid] = newest.table
    return Prepared(plan, mirrors, failed, names, sources)


def _generations(m: Mirroring, tables: DeliveryTables, batch: StagedBatch) -> Mapping[int, int]:
    """The generations that the mirrors were copied in; only where it can be another one than 0."""
    positions = {oid: tables.taking_part[oid].position for oid, each in batch.changes.items() if each.newest.generation}
    return m.log.generations(positions) if positions else {}


def _is_renamed(row: TableRow, standing: Standing[Lsn], changes: TableChanges) -> bool:
    return row.options.followed_name and changes.newest.table != standing.name


def _evolved(
    plan: Plan[Lsn], row: TableRow, standing: Standing[Lsn], changes: TableChanges, kinds: Mapping[str, LakeType]
) -> Plan[Lsn]:
    """The plan in which the mirror has the newest columns."""
    standing.check_writable()
    newest = changes.newest
    evolved, changed = plan.evolved(newest, kinds)
    if row.options.schema_changes == "stop" and (changed or _is_renamed(row, standing, changes)):
        raise TableError(
            f"table {row.source} has other columns or another name than its mirror {row.lake}, and `schema_changes` is"
            " `stop`",
            hint="undo the change in the source, or set `schema_changes: follow`",
        )
    # The values of a history are never settled, so nothing looks for them by key.
    quarantined = standing.counts.quarantined and row.options.mode == "mirror"
    if quarantined and not standing.same_key(newest):
        raise CannotFollow(f"table {row.source} has another key now, and values in quarantine are under the old one")
    return evolved


@lru_cache(maxsize=4096)  # tables that are alike share theirs, which are made once and sent to Spark once
def _mirror_columns(
    columns: tuple[Column, ...], asked: tuple[tuple[str, str], ...], *, calendar_only: bool
) -> tuple[MirrorColumn, ...]:
    """The columns of a mirror; `asked` are the types that the config wants."""
    kinds = lake_types(columns, dict(asked), calendar_only=calendar_only)
    return tuple(MirrorColumn(each.name, kinds[each.name], each.attnum, each.missing) for each in columns)


def _mirror(row: TableRow, standing: Standing[Lsn], changes: TableChanges, columns: tuple[MirrorColumn, ...]) -> Mirror:
    overlaps = row.copy_lsn is not None and standing.position < row.copy_lsn
    return Mirror(
        oid=row.oid,
        name=str(changes.newest.table),
        start=standing.position,
        columns=columns,
        key=key_names(changes),
        rows=changes.rows,
        bytes=changes.bytes,
        inserts_only=changes.ops == {"I"} and not overlaps,
        history=row.options.mode == "history",
        overlaps=overlaps,
    )
