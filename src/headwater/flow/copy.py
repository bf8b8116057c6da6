"""Source → lake: the first copy of a table, as it was at one position."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from headwater import failpoints
from headwater.change import Lsn, TableName
from headwater.copy.reading import balanced, showing
from headwater.copy.snapshot import exported_snapshot
from headwater.errors import (
    AlreadyDelivered,
    CommitConflict,
    ConfigError,
    HeadwaterError,
    OperatorMustAct,
    TableError,
    Unreachable,
)
from headwater.flow.copyrange import COPIED, CopyOutcome, CopyRange, RangeOfTable, gathered
from headwater.flow.mirroring import Mirroring, check_lake, fail
from headwater.flow.names import free_names, settle_names
from headwater.lake.sink import Copy, Landed, Standing
from headwater.lake.target import misfits_of, rows_of
from headwater.source.naming import object_name
from headwater.source.relations import described, row_filter
from headwater.source.replaced import table_names
from headwater.spark import collected, on_tasks, surviving
from headwater.state import TableRow
from headwater.state.transitions import Copied, CopyBegun
from headwater.values.types import lake_type

__all__ = ["copy"]

logger = logging.getLogger(__name__)

TELL_EVERY = 5.0  # seconds


def copy(m: Mirroring) -> dict[int, int]:
    """Source → lake, once per table: all tables that wait for it, as they were at one position, in one snapshot."""
    check_lake(m)
    rows = {row.oid: row for row in _waiting(m)}
    if not rows:
        settle_names(m)
        return {}
    with exported_snapshot(m.source_url) as exported:
        plan = _plan(m, list(rows.values()), exported.snapshot_name)
        if not plan.mirrors:
            return {}
        logger.info("copying %d tables at %s in %d ranges", len(plan.mirrors), exported.lsn, len(plan.ranges))

        def job(oids: Collection[int]) -> tuple[Copy, CopyOutcome]:
            attempt = m.sink.begin_copy([plan.mirrors[oid] for oid in oids], plan.names)
            work = CopyRange(m.source_url, exported, m.state.url, m.group, attempt.target)
            mine = [each for each in plan.ranges if each.relation.oid in oids]
            return attempt, gathered(collected(on_tasks(m.spark, mine, work, COPIED)))

        with _progress_logged(m, plan.mirrors):
            survived = surviving(m.spark, plan.mirrors.keys(), job)
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
    landed = _landed(m, attempt, done, copied, exported.lsn) if copied else None
    return _recorded(m, plan, landed, copied, exported.lsn) if landed else {}


def _landed(m: Mirroring, attempt: Copy, done: CopyOutcome, rows: Sequence[TableRow], at: Lsn) -> Landed | None:
    """Commit the copy; None if it did not land, and the tables wait for another one."""
    tables = {row.oid for row in rows}
    reports = {to: each for to, each in done.reports.items() if to.oid in tables}
    try:
        return attempt.commit(tables, reports, at)
    except (CommitConflict, AlreadyDelivered, TableError) as error:
        attempt.discard(reports)
        _not_landed(m, rows, error)
        return None


def _recorded(m: Mirroring, plan: _Plan, landed: Landed, rows: Sequence[TableRow], at: Lsn) -> dict[int, int]:
    failpoints.hit("copy.committed")
    # The lake as a whole is where the hindmost of its tables is.
    others = [row.position for row in m.state.tables(m.group) if row.state in ("CATCHUP", "STREAMING") and row.position]
    m.state.record_delivery(m.group, min([at, *others]), landed.snapshot_id, {}, {})
    for oid, name in plan.names.items():
        m.state.rename_table(m.group, oid, source=name, lake=name)
    standings = m.sink.standings()
    for row in rows:
        _copied(m, row, standings[row.oid])
    logger.info("copied %d rows", sum(each.copied for each in landed.counts.values()))
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
        if row.state in ("PENDING", "SNAPSHOT"):
            there = standings.get(row.oid)
            if there is not None and row.resync is None and there.position >= begin:
                _copied(m, row, there)  # we died before we could note it
            else:  # also if the state was lost: what came between the lake's position and the new slot is in no log
                waiting.append(row)
    return waiting


def _copied(m: Mirroring, row: TableRow, there: Standing) -> None:
    m.state.note_counts(m.group, {row.oid: there.counts})
    m.state.record(m.group, row.oid, Copied(there.position))
    m.state.rename_table(m.group, row.oid, lake=there.name)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The new mirrors by table, the ranges to read, and mirrors that give up their names for other ones."""

    mirrors: dict[int, Any]
    ranges: list[RangeOfTable]
    names: dict[int, TableName]


def _plan(m: Mirroring, waiting: Sequence[TableRow], snapshot: str) -> _Plan:
    """What is to be copied, as the snapshot has it."""
    mirrors, ranges = {}, []
    with showing(m.source_url, snapshot) as connection:
        called = table_names(connection, [row.oid for row in waiting], [])
        lands = {row.oid: called.get(row.oid, row.lake) if row.options.followed_name else row.lake for row in waiting}
        names, moved = free_names(m, waiting, lands.values())
        for row in waiting:
            try:
                relation = described(connection, row.oid, object_name(m.group))
                kinds = {each.name: lake_type(each, row.options.types.get(each.name)) for each in relation.columns}
                history = row.options.mode == "history"
                mirror = m.sink.new_mirror(relation, kinds, lands[row.oid], history=history, replaces=row.replaces)
                names.take(lands[row.oid])
                parts = balanced(connection, row.oid, m.spark.sparkContext.defaultParallelism)
                where = row_filter(connection, object_name(m.group), row.oid)
            except (TableError, ConfigError, OperatorMustAct) as error:
                fail(m, row, str(error))
                continue
            mirrors[row.oid] = mirror
            ranges += [RangeOfTable(relation, part, tuple(kinds.values()), where, history) for part in parts]
            known = [part.rows for part in parts if part.rows is not None]
            m.state.record(m.group, row.oid, CopyBegun())
            m.state.record_progress(m.group, row.oid, 0, sum(known) if known else None)
    return _Plan(mirrors, ranges, moved)


@contextmanager
def _progress_logged(m: Mirroring, oids: Container[int]) -> Iterator[None]:
    """Say every few seconds how far a long copy is; the tasks count their rows in the state."""
    done = threading.Event()

    def log() -> None:
        while not done.wait(TELL_EVERY):
            with suppress(Unreachable):
                rows = [row for row in m.state.tables(m.group) if row.oid in oids]
                total = sum(max(row.copy_total or 0, row.copied_rows) for row in rows)
                logger.info("copied %d of about %d rows so far", sum(row.copied_rows for row in rows), total)

    thread = threading.Thread(target=log, name="copy-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
