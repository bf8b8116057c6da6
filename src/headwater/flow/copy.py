"""Source → lake: the first copy of a table, as it was at one position."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from headwater import failpoints
from headwater.change import Lsn
from headwater.copy.snapshot import Exported, exported_snapshot
from headwater.errors import AlreadyDelivered, CommitConflict, HeadwaterError, TableError, Unreachable
from headwater.flow.copyplan import CopyPlan, PlannedTable, planned
from headwater.flow.copyrange import CopyRanges
from headwater.flow.forks import outdated, settle_fork
from headwater.flow.mirroring import Mirroring, check_lake, fail
from headwater.flow.progress import progress_logged
from headwater.lake.sink import Copy, Landed, Standing
from headwater.lake.target import Destination, Reports
from headwater.merge.outcome import Written, failures, reports_of
from headwater.source.server import pass_wal
from headwater.spark import Survived, deal, run_tasks, surviving
from headwater.state import TableRow
from headwater.state.copies import KeptCopy
from headwater.state.transitions import Copied
from headwater.words import counted

__all__ = ["Pace", "collect_copies", "copy"]

logger = logging.getLogger(__name__)

Alone = Callable[[], AbstractContextManager[None]]

_WAITING = ("PENDING", "SNAPSHOT")
TASKS_PER_CORE = 16  # enough that none waits long at the end; each one gets the columns of all tables


@dataclass(frozen=True, slots=True)
class Pace:
    """What a copy may use: so many tasks at a time (None: all cores), so many bytes a second."""

    tasks: int | None = None
    rate: int | None = None


def copy(m: Mirroring, alone: Alone = nullcontext, pace: Callable[[], Pace] = Pace) -> dict[int, int]:
    """Source → lake, once per table: all tables that wait for it, as they were at one position, in one snapshot.

    Deliveries to other tables may go on beside it, but not inside `alone`. `pace` is asked when there is one to copy.
    """
    check_lake(m)
    if not any(row.state in _WAITING for row in m.state.tables(m.group)):
        return {}
    with alone():  # a delivery that was under way may have moved them; later ones leave them out
        m.sink.look_again()
        settle_fork(m)
        rows = {row.oid: row for row in _waiting(m)}
        ahead = [each.position for oid, each in m.sink.standings().items() if oid in rows]
    if not rows:
        return {}
    collect_copies(m)
    if ahead:
        pass_wal(m.source_url, max(ahead))  # no table goes back in the lake
    with exported_snapshot(m.source_url) as exported:
        plan = planned(m, list(rows.values()), exported)
        if not plan.tables:
            return {}
        survived = _written(m, plan, exported, pace())
    for oid, error in survived.failed.items():
        fail(m, rows[oid], error, "resource")
    if survived.done is None:
        return {}
    attempt, failed = survived.done
    kept = m.state.kept_copies(m.group)
    for oid, error in failed.items():
        attempt.discard(_reports({oid: kept[oid]} if oid in kept else {}))
        m.state.forget_copies(m.group, [oid])
        fail(m, rows[oid], error)
    failpoints.hit("copy.written")
    copied = [rows[oid] for oid in survived.tables - failed.keys() if _is_whole(plan.tables[oid], kept.get(oid))]
    if not copied:
        return {}
    with alone():
        m.sink.look_again()
        settle_fork(m)
        if outdated(m, exported.timeline):
            return {}  # the tables wait for another copy, which begins without what was forgotten just now
        landed = _landed(m, attempt, exported.lsn, {row.oid: kept[row.oid] for row in copied}, copied)
        if landed is None:
            return {}
        m.state.forget_copies(m.group, landed.missed)  # what was written for them is deleted
        there = [row for row in copied if row.oid not in landed.missed]
        return _recorded(m, plan, landed, there, kept)


def _written(
    m: Mirroring, plan: CopyPlan, exported: Exported, pace: Pace
) -> Survived[tuple[Copy[Lsn], dict[int, str]]]:
    """Copy as many of the tables as Spark survives; what fails of them, with the reason."""
    cores = m.spark.sparkContext.defaultParallelism
    at_once = min(pace.tasks or cores, cores)
    hands = pace.tasks or TASKS_PER_CORE * cores
    all_ranges = [each for table in plan.tables.values() for each in table.ranges]
    tables, ranges = counted(len(plan.tables), "table"), counted(len(all_ranges), "range")
    logger.info("copying %s at %s in %s", tables, exported.lsn, ranges)

    def job(oids: Collection[int]) -> tuple[Copy[Lsn], dict[int, str]]:
        if outdated(m, exported.timeline):
            raise Unreachable("the source was promoted while tables were being copied", hint="they are copied again")
        kept = m.state.kept_copies(m.group)
        attempt = m.sink.begin_copy([_mirror(m, plan.tables[oid], kept.get(oid)) for oid in oids], plan.names)
        notes = {oid: (plan.tables[oid].definition, attempt.note(oid)) for oid in oids}
        m.state.begin_copy(m.group, attempt.name, notes)
        work = CopyRanges(
            *(m.source_url, exported, m.state.url, m.group, attempt.target, attempt.name),
            rate=pace.rate and pace.rate / at_once,
        )
        done = {(oid, each.oid, each.first_page) for oid in oids if oid in kept for each in kept[oid].ranges}
        mine = [
            (each, each.range.weight)
            for oid in oids
            for each in plan.tables[oid].ranges
            if (oid, each.range.oid, each.range.first_page) not in done
        ]
        said = run_tasks(m.spark, deal(mine, hands), work)
        attempt.discard(reports_of(said))
        return attempt, {oid: failure.error for oid, failure in failures(said).items()}

    with progress_logged(m, plan.tables):
        return surviving(m.spark, plan.tables.keys(), job)


def _mirror(m: Mirroring, table: PlannedTable, kept: KeptCopy | None) -> Any:
    """Where the table is written: if the job died with others, where it has written already."""
    if kept is None:
        return table.mirror
    misfits = any(part == "quarantine" for each in kept.ranges for part, _ in each.reports)
    return m.sink.taken_up(table.mirror, kept.note, misfits=misfits) or table.mirror


def _is_whole(table: PlannedTable, kept: KeptCopy | None) -> bool:
    """Whether all ranges are there; they are not if the copy has to start over, as was found meanwhile."""
    done = {(each.oid, each.first_page) for each in kept.ranges} if kept else set()
    return kept is not None and all((each.range.oid, each.range.first_page) in done for each in table.ranges)


def collect_copies(m: Mirroring) -> None:
    """Delete what copies have written with which no copy will go on. None may be under way.

    Tasks of one may be: they outlive a driver that died, or has lost its lock. What they write, no copy takes up.
    """
    m.state.end_attempts(m.group)
    kept = m.state.kept_copies(m.group).values()
    m.sink.collect_copies({each.attempt for copy in kept for each in copy.ranges})


def _reports(copies: Mapping[int, KeptCopy]) -> Reports:
    return reports_of(
        Written(Destination(oid, part), report)
        for oid, kept in copies.items()
        for done in kept.ranges
        for part, report in done.reports
    )


def _landed(
    m: Mirroring, attempt: Copy[Lsn], at: Lsn, copies: Mapping[int, KeptCopy], rows: Sequence[TableRow]
) -> Landed | None:
    """Commit the copy; None if it did not land, and the tables wait for another one.

    A table without a range, of which no rows are wanted or whose root has no partition, is empty `at` the snapshot.
    """
    reports = _reports(copies)
    begun = {oid: min((each.lsn for each in kept.ranges), default=at) for oid, kept in copies.items()}
    try:
        return attempt.commit(begun, reports)
    except (CommitConflict, AlreadyDelivered, TableError) as error:
        attempt.discard(reports)
        m.state.forget_copies(m.group, copies.keys())
        _not_landed(m, rows, error)
        return None


def _recorded(
    m: Mirroring, plan: CopyPlan, landed: Landed, rows: Sequence[TableRow], kept: Mapping[int, KeptCopy]
) -> dict[int, int]:
    failpoints.hit("copy.committed")
    standings = m.sink.standings()
    # The lake as a whole is where the hindmost of its tables is.
    others = [row.position for row in m.state.tables(m.group) if row.state in ("CATCHUP", "STREAMING") and row.position]
    hindmost = min([*others, *(standings[row.oid].position for row in rows)])
    m.state.record_delivery(m.group, hindmost, landed.snapshot_id, {}, {})
    for oid, name in plan.names.items():
        m.state.rename_table(m.group, oid, source=name, lake=name)
    for row in rows:
        _copied(m, row, standings[row.oid], kept.get(row.oid))
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
    group, standings, kept = m.state.group(m.group), m.sink.standings(), m.state.kept_copies(m.group)
    begin = (group and group.trimmed_lsn) or Lsn(0)
    waiting = []
    for row in m.state.tables(m.group):
        if row.state not in _WAITING:
            continue
        there, copy = standings.get(row.oid), kept.get(row.oid)
        landed = copy is not None and m.sink.has_landed(row.oid, copy.note)
        if there is not None and (landed or row.resync is None) and there.position >= begin:
            _copied(m, row, there, copy if landed else None)  # we died before we could note it
            continue
        if landed:  # and the log does not reach it any more
            m.state.forget_copies(m.group, [row.oid])
        waiting.append(row)  # also if the state was lost: what came before the new slot is in no log
    return waiting


def _copied(m: Mirroring, row: TableRow, there: Standing[Lsn], kept: KeptCopy | None) -> None:
    newest = max((each.lsn for each in kept.ranges), default=None) if kept else None
    m.state.note_counts(m.group, {row.oid: there.counts})
    m.state.record(m.group, row.oid, Copied(there.position, newest))
    m.state.rename_table(m.group, row.oid, lake=there.name)
