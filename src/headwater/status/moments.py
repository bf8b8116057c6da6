"""Which snapshot of the lakes shows each table as it was at a position of the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from headwater.change import Lsn
from headwater.config import Config
from headwater.errors import CheckFailed, ConfigError
from headwater.lake.sink import TableSnapshot
from headwater.lake.stream import WAL
from headwater.sink.addresses import group_lake
from headwater.state import State, TableRow
from headwater.supervise.lakes import source_name

__all__ = ["Moment", "TableMoment", "moment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMoment:
    """A table at an LSN: the snapshot that shows it, the position of that snapshot, and what to type to read it."""

    group: str
    table: str
    lake: str
    lake_table: str
    snapshot_id: int | None = None
    position: str | None = None
    read_by: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None  # why there is none


@dataclass(frozen=True, slots=True)
class Moment:
    lsn: str
    tables: tuple[TableMoment, ...]

    def check(self) -> None:
        """CheckFailed if a table has no snapshot that shows it."""
        if found := [f"table {each.table}: {each.error}" for each in self.tables if each.error]:
            raise CheckFailed(f"not every table can be read as it was at {self.lsn}:\n" + "\n".join(found))


def moment(config: Config, env: Mapping[str, str], at: Lsn) -> Moment:
    """Ask every group's lake."""
    with closing(State.connect(config.state_url)) as state:
        if not state.knows("groups"):
            raise ConfigError("nothing has run with this config yet", hint="start it with `headwater run`")
        found = tuple(each for group in config.groups for each in _group(config, env, state, group, at))
    return Moment(str(at), found)


def _group(config: Config, env: Mapping[str, str], state: State, group: str, at: Lsn) -> Iterator[TableMoment]:
    row, rows = state.group(group), [each for each in state.tables(group) if each.state != "REMOVED"]
    sink = group_lake(config, env, group).find(source_name(row.source_id, group), WAL) if row else None
    if sink is None:
        for each in rows:
            yield _missing(each, config.groups[group].lake, "it is not copied yet")
        return
    with closing(sink):
        found = sink.snapshots_at(at)
        reached = {oid: each.position for oid, each in sink.standings().items()}
    for each in rows:
        yield _table(each, config.groups[group].lake, reached.get(each.oid), found.get(each.oid), at)


def _table(row: TableRow, lake: str, reached: Lsn | None, found: TableSnapshot[Lsn] | None, at: Lsn) -> TableMoment:
    if reached is None:
        return _missing(row, lake, "it is not copied yet")
    if reached < at:
        return _missing(row, lake, f"the lake has not reached {at} yet, it is at {reached}")
    if found is None:
        return _missing(row, lake, "no snapshot is as old: they are expired, or the table was copied later")
    return TableMoment(
        group=row.group,
        table=str(row.source),
        lake=lake,
        lake_table=str(found.name),
        snapshot_id=found.snapshot_id,
        position=str(found.position),
        read_by=found.read_by,
    )


def _missing(row: TableRow, lake: str, error: str) -> TableMoment:
    return TableMoment(group=row.group, table=str(row.source), lake=lake, lake_table=str(row.lake), error=error)
