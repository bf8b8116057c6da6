"""After a delivery: the state gets to know what the lake already knows. Its copy is for people to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.change import Lsn, TableName
from headwater.flow.mirroring import Mirroring, fail, give_up
from headwater.flow.tables import DeliveryTables
from headwater.lake.counts import Counts
from headwater.merge import Failures
from headwater.state import TableRow, Work
from headwater.state.succession import dropped_error, leave
from headwater.state.transitions import CaughtUp, Stopped

__all__ = ["Delivered", "record"]

_NOWHERE = Lsn(0)


@dataclass(frozen=True, slots=True)
class Delivered:
    """The lake now shows the source at `position`; 0/0 if nothing could be delivered. No snapshot without changes."""

    position: Lsn = _NOWHERE
    snapshot_id: int = 0
    landed: Mapping[int, Counts] = field(default_factory=dict)
    bytes: int = 0  # of the data files
    upto: Mapping[int, Lsn] = field(default_factory=dict)  # new positions, by table
    failed: Failures = field(default_factory=dict)
    sources: Mapping[int, TableName] = field(default_factory=dict)  # tables' names in the source, if they are new
    mirrors: Mapping[int, TableName] = field(default_factory=dict)  # and in the lake
    work: Work | None = None  # None: no table was changed


def record(m: Mirroring, tables: DeliveryTables, done: Delivered) -> Delivered:
    """Note the delivery, and what becomes of each table."""
    failed = {**tables.failed, **done.failed}
    if done.upto:
        counts = {oid: tables.taking_part[oid].counts + each for oid, each in done.landed.items()}
        m.state.record_delivery(m.group, done.position, done.snapshot_id, done.upto, counts, work=done.work)
        for oid in done.sources.keys() | done.mirrors.keys():
            m.state.rename_table(m.group, oid, source=done.sources.get(oid), lake=done.mirrors.get(oid))
    for oid, failure in failed.items():
        if failure.needs_recopy:
            give_up(m, tables.rows[oid], failure.error)
        else:
            fail(m, tables.rows[oid], failure.error, failure.kind)
    if done.position > Lsn(0):
        _move_on(m, tables, done, failed)
        foremost = max([*done.upto.values(), *(each.position for each in tables.everywhere.values())])
        m.state.reach_fences(m.group, done.position, done.snapshot_id, foremost)
    return done


def _move_on(m: Mirroring, tables: DeliveryTables, done: Delivered, failed: Failures) -> None:
    """A table that is past its copy, and where the others are, is STREAMING."""
    end = m.log.end()
    for row in tables.rows.values():
        if row.oid in failed:
            continue
        if row.dropped_lsn is not None and row.dropped_lsn <= done.position:
            _end(m, row, row.dropped_lsn)
            continue
        if row.oid in tables.left:
            continue
        level = not tables.behind or row.oid not in tables.taking_part or done.upto.get(row.oid) == tables.upto
        reached = min(end, max(done.position, done.upto.get(row.oid, done.position)))
        if row.state == "CATCHUP" and level and (row.copy_lsn or reached) <= reached:
            m.state.record(m.group, row.oid, CaughtUp())


def _end(m: Mirroring, row: TableRow, lsn: Lsn) -> None:
    """Everything of a table that was dropped is delivered."""
    if row.options.pattern is not None:
        leave(m.state, row, lsn)
    else:
        m.state.record(m.group, row.oid, Stopped(str(dropped_error(row, lsn))))
