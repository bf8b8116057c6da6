"""Source → lake: the first copy of a table, as it was at one position."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from headwater import failpoints
from headwater.change import Lsn
from headwater.copy.snapshot import Exported, exported_snapshot
from headwater.errors import AlreadyDelivered, CommitConflict, HeadwaterError, TableError
from headwater.flow.copyplan import CopyPlan, planned
from headwater.flow.copyrange import CopyOutcome, CopyRanges, gathered
from headwater.flow.mirroring import Mirroring, check_lake, fail
from headwater.flow.progress import progress_logged
from headwater.lake.sink import Copy, Landed, Standing
from headwater.lake.target import misfits_of, rows_of
from headwater.spark import Survived, deal, run_tasks, surviving
from headwater.state import TableRow
from headwater.state.transitions import Copied
from headwater.words import counted

__all__ = ["ALL_OUT", "Pace", "copy"]

logger = logging.getLogger(__name__)

Alone = Callable[[], AbstractContextManager[None]]

_WAITING = ("PENDING", "SNAPSHOT")
TASKS_PER_CORE = 16  # enough that none waits long at the end; each one gets the columns of all tables


@dataclass(frozen=True, slots=True)
class Pace:
    """What a copy may use: so many tasks at a time (None: all cores), so many bytes a second."""

    tasks: int | None = None
    rate: int | None = None


ALL_OUT = Pace()


def copy(m: Mirroring, alone: Alone = nullcontext, pace: Pace = ALL_OUT) -> dict[int, int]:
    """Source → lake, once per table: all tables that wait for it, as they were at one position, in one snapshot.

    Deliveries to other tables may go on beside it, but not inside `alone`.
    """
    check_lake(m)
    if not any(row.state in _WAITING for row in m.state.tables(m.group)):
        return {}
    with alone():  # a delivery that was under way may have moved them; later ones leave them out
        m.sink.look_again()
        rows = {row.oid: row for row in _waiting(m)}
    if not rows:
        return {}
    with exported_snapshot(m.source_url) as exported:
        plan = planned(m, list(rows.values()), exported)
        if not plan.mirrors:
            return {}
        survived = _written(m, plan, exported, pace)
    for oid, error in survived.failed.items():
        fail(m, rows[oid], error)
    if survived.done is None:
        return {}
    attempt, done = survived.done
    for oid, error in done.failed.items():
        attempt.discard({to: done.reports.get(to, []) for to in (rows_of(oid), misfits_of(oid))})
        fail(m, rows[oid], error)
    failpoints.hit("copy.written")
    copied = [rows[oid] for oid in survived.tables - done.failed.keys()]
    if not copied:
        return {}
    with alone():
        m.sink.look_again()
        landed = _landed(m, attempt, done, copied, exported.lsn)
        if landed is None:
            return {}
        return _recorded(m, plan, landed, [row for row in copied if row.oid not in landed.missed], exported.lsn)


def _written(m: Mirroring, plan: CopyPlan, exported: Exported, pace: Pace) -> Survived[tuple[Copy[Lsn], CopyOutcome]]:
    """Copy as many of the tables as Spark survives."""
    cores = m.spark.sparkContext.defaultParallelism
    at_once = min(pace.tasks or cores, cores)
    hands = pace.tasks or TASKS_PER_CORE * cores
    tables, ranges = counted(len(plan.mirrors), "table"), counted(len(plan.ranges), "range")
    logger.info("copying %s at %s in %s", tables, exported.lsn, ranges)

    def job(oids: Collection[int]) -> tuple[Copy[Lsn], CopyOutcome]:
        attempt = m.sink.begin_copy([plan.mirrors[oid] for oid in oids], plan.names)
        rate = pace.rate and pace.rate / at_once
        work = CopyRanges(m.source_url, exported, m.state.url, m.group, attempt.target, rate)
        mine = [(each, each.range.weight) for each in plan.ranges if each.relation.oid in oids]
        units = deal(mine, hands)
        return attempt, gathered(run_tasks(m.spark, units, work))

    with progress_logged(m, plan.mirrors):
        return surviving(m.spark, plan.mirrors.keys(), job)


def _landed(m: Mirroring, attempt: Copy[Lsn], done: CopyOutcome, rows: Sequence[TableRow], at: Lsn) -> Landed | None:
    """Commit the copy; None if it did not land, and the tables wait for another one."""
    tables = {row.oid for row in rows}
    reports = {to: each for to, each in done.reports.items() if to.oid in tables}
    try:
        return attempt.commit(tables, reports, at)
    except (CommitConflict, AlreadyDelivered, TableError) as error:
        attempt.discard(reports)
        _not_landed(m, rows, error)
        return None


def _recorded(m: Mirroring, plan: CopyPlan, landed: Landed, rows: Sequence[TableRow], at: Lsn) -> dict[int, int]:
    failpoints.hit("copy.committed")
    # The lake as a whole is where the hindmost of its tables is.
    others = [row.position for row in m.state.tables(m.group) if row.state in ("CATCHUP", "STREAMING") and row.position]
    m.state.record_delivery(m.group, min([at, *others]), landed.snapshot_id, {}, {})
    for oid, name in plan.names.items():
        m.state.rename_table(m.group, oid, source=name, lake=name)
    standings = m.sink.standings()
    for row in rows:
        _copied(m, row, standings[row.oid])
    logger.info("copied %s", counted(sum(each.copied for each in landed.counts.values()), "row"))
    return {oid: each.copied for oid, each in landed.counts.items()}


def _not_landed(m: Mirroring, rows: Sequence[TableRow], error: HeadwaterError) -> None:
    """What others did to the lake meanwhile is no table's fault: they are copied again in the next round."""
    if not isinstance(error, TableError):
        logger.warning("copying again: %s", error)
        return
    for row in rows:
        fail(m, row, str(error))


def _waiting(m: Mirroring) -> list[TableRow]:
    """The tables to copy. One that the lake has, though the state does not know, goes on from there if the log does."""
    group, standings = m.state.group(m.group), m.sink.standings()
    begin = (group and group.trimmed_lsn) or Lsn(0)
    waiting = []
    for row in m.state.tables(m.group):
        if row.state in _WAITING:
            there = standings.get(row.oid)
            if there is not None and row.resync is None and there.position >= begin:
                _copied(m, row, there)  # we died before we could note it
            else:  # also if the state was lost: what came between the lake's position and the new slot is in no log
                waiting.append(row)
    return waiting


def _copied(m: Mirroring, row: TableRow, there: Standing[Lsn]) -> None:
    m.state.note_counts(m.group, {row.oid: there.counts})
    m.state.record(m.group, row.oid, Copied(there.position))
    m.state.rename_table(m.group, row.oid, lake=there.name)
