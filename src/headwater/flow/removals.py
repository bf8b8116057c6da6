"""The rows of partitions that were detached, dropped or truncated: they go by the partition's bounds, without a copy.

The stream does not have such an event, so no delivery brings it. But once a partition is gone, or empty, there is a
position at which the source has no row within its bounds at all. There the mirror must have none either. So the source
is asked at an exported snapshot, deliveries stop at exactly that position, and whatever the mirror has within the
bounds goes, in one commit. A removal that is repeated finds nothing more to remove.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import psycopg
from psycopg import sql

from headwater import failpoints
from headwater.change import Lsn, Relation
from headwater.copy.reading import showing
from headwater.copy.snapshot import exported_snapshot
from headwater.errors import AlreadyDelivered, CommitConflict, CommitUnknown, HeadwaterError, TableError
from headwater.flow.forks import outdated
from headwater.flow.mirroring import Mirroring
from headwater.flow.recording import Delivered, record
from headwater.flow.spans import asked_in_sql, spans_of
from headwater.flow.tables import DeliveryTables
from headwater.lake.sink import Delivery, Plan
from headwater.merge import Failure
from headwater.merge.outcome import Failed, Written, failures, reports_of
from headwater.merge.remove import RemovedRows, remove_rows
from headwater.postgres.connect import Connection, connect, translated
from headwater.source.relations import described
from headwater.source.server import advance_wal
from headwater.spark import surviving
from headwater.state import Removal, TableRow
from headwater.values.types import LakeType, lake_types
from headwater.words import counted

__all__ = ["place_removals", "remove"]

logger = logging.getLogger(__name__)

PATIENCE = 30.0  # how long the log is hurried along to the position
UNLIKE = "its bounds are of a column that is not mirrored, or that the lake may compare otherwise"


def place_removals(m: Mirroring) -> bool:
    """Find a position at which the source has none of the rows; whether there was one to find.

    What cannot be removed so is copied again.
    """
    unplaced = [each for each in m.state.removals(m.group) if each.lsn is None]
    if not unplaced:
        return False
    rows = {row.oid: row for row in m.state.tables(m.group) if row.state == "STREAMING"}
    waiting = [each for each in unplaced if each.oid in rows]
    if not waiting:
        return False
    with exported_snapshot(m.source_url) as exported:
        if outdated(m, exported.timeline):
            return False
        with showing(m.source_url, exported.snapshot_name) as connection:
            problems = {each.id: _problem(m, connection, rows[each.oid], each) for each in waiting}
        again = {each.oid for each in waiting if problems[each.id]}
        for each in waiting:
            if why := problems[each.id]:
                _copy_again(m, rows[each.oid], each, why)
        m.state.place_removals([each for each in waiting if each.oid not in again], exported.lsn)
    m.state.add_fence(m.group, exported.lsn, PATIENCE)
    with closing(connect(m.source_url, application_name="headwater removal")) as source, translated(m.source_url):
        advance_wal(source)
    return True


def remove(m: Mirroring, tables: DeliveryTables, done: Delivered, there: Collection[int]) -> Delivered:
    """After a delivery: remove what is due where it stopped, from those tables that are `there`."""
    due = [each for each in tables.removals if each.lsn == tables.upto and each.oid in there]
    if not due or tables.upto is None:
        return done
    plan, at = m.sink.plan(), tables.upto
    standings = {oid: each for oid, each in plan.standings.items() if oid in there}
    here = replace(tables, everywhere={**tables.everywhere, **standings}, taking_part=standings, failed={})
    try:
        wanted, failed = _wanted(m, here, at, due)
        removed, through = _removed(m, plan, wanted, dict.fromkeys(standings, at))
    except (CommitConflict, CommitUnknown, AlreadyDelivered) as error:
        logger.warning("removing the rows of partitions later: %s", error)
        return done  # the next delivery finds the lake at this position, and has another one looked for
    failpoints.hit("remove.committed")
    hindmost = min([removed.position, *(each.position for each in tables.left.values())])
    over = record(m, here, replace(removed, position=hindmost, failed={**failed, **removed.failed}))
    ended = [each for each in due if each.oid in through - over.failed.keys()]
    if ended:
        m.state.end_removals(ended, at)
    return replace(done, snapshot_id=over.snapshot_id or done.snapshot_id, upto={**done.upto, **over.upto})


def _removed(
    m: Mirroring, plan: Plan[Lsn], wanted: Mapping[int, RemovedRows], upto: Mapping[int, Lsn]
) -> tuple[Delivered, frozenset[int]]:
    """What landed, and the tables that were looked through."""

    def job(oids: Collection[int]) -> tuple[Delivery[Lsn], list[Written | Failed]]:
        mine = {oid: wanted[oid] for oid in oids}
        attempt = plan.begin({oid: each.columns for oid, each in mine.items()})
        return attempt, remove_rows(m.spark, attempt, mine)

    survived = surviving(m.spark, wanted.keys(), job)
    attempt, said = survived.done or (None, [])
    failed = {**failures(said), **{oid: Failure(error, kind="resource") for oid, error in survived.failed.items()}}
    reports = reports_of(said)
    failpoints.hit("remove.written")
    if attempt is None:
        return Delivered(failed=failed), frozenset()
    attempt.discard({to: each for to, each in reports.items() if to.oid in failed})
    reports = {to: each for to, each in reports.items() if to.oid not in failed}
    if not reports:
        return Delivered(failed=failed), survived.tables
    try:
        landed = attempt.commit(reports, (), upto, {})
    except (CommitConflict, AlreadyDelivered):
        attempt.discard(reports)
        raise
    gone, at = sum(each.deleted for each in landed.counts.values()), max(upto.values())
    logger.info("group %s: %s of partitions that are gone removed at %s", m.group, counted(gone, "row"), at)
    missed = {oid: Failure("another client has changed it meanwhile") for oid in landed.missed & wanted.keys()}
    moved = {oid: each for oid, each in upto.items() if oid not in landed.missed}
    return Delivered(at, landed.snapshot_id, landed.counts, landed.bytes, moved, {**failed, **missed}), survived.tables


def _wanted(
    m: Mirroring, tables: DeliveryTables, at: Lsn, due: Sequence[Removal]
) -> tuple[dict[int, RemovedRows], dict[int, Failure]]:
    """What goes from each table, and those that cannot go on; one from which it cannot go is copied again."""
    wanted, failed = {}, {}
    for oid, each in groupby(sorted(due, key=attrgetter("oid")), attrgetter("oid")):
        row, standing, removals = tables.rows[oid], tables.taking_part.get(oid), list(each)
        relation = m.log.relation_at(oid, at)
        if standing is None or relation is None:
            continue
        kinds = _kinds(m, row, relation)
        spans = [spans_of(removal.conditions, relation, kinds) for removal in removals]
        known = [each for each in spans if each is not None]
        try:
            standing.check_writable()
        except TableError as error:
            failed[oid] = Failure.of(error)
            continue
        if standing.counts.quarantined:
            _copy_again(m, row, removals[0], "some of its values in quarantine may be of such rows")
        elif len(known) < len(spans):
            _copy_again(m, row, removals[0], UNLIKE)
        else:
            wanted[oid] = RemovedRows(kinds, known)
    return wanted, failed


def _problem(m: Mirroring, connection: Connection, row: TableRow, removal: Removal) -> str | None:
    """Why the rows cannot be removed by the bounds."""
    if row.options.mode == "history":
        return "a history cannot tell which events of its rows there were"
    group = m.state.group(m.group)
    try:
        relation = described(connection, row.oid, group.publication if group else None)
    except HeadwaterError as error:
        return error.message
    if spans_of(removal.conditions, relation, _kinds(m, row, relation)) is None:
        return UNLIKE
    by_number = {column.attnum: column.name for column in relation.columns}
    meets = sql.SQL(" AND ").join(asked_in_sql(each, by_number[each.attnum]) for each in removal.conditions)
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {})").format(sql.Identifier(*relation.table), meets)
    try:
        with connection.transaction():
            found = connection.execute(query).fetchone()
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedObject) as error:
        return str(error)
    return "the source has rows within its bounds again" if found is not None and found[0] else None


def _copy_again(m: Mirroring, row: TableRow, removal: Removal, why: str) -> None:
    logger.warning("table %s will be copied again: %s, and %s", row.source, removal.reason, why)
    m.state.request_resync(m.group, row.oid, removal.reason)
    m.state.forget_removals(m.group, row.oid)


def _kinds(m: Mirroring, row: TableRow, relation: Relation) -> dict[str, LakeType]:
    return lake_types(relation.columns, row.options.types, calendar_only=m.sink.calendar_only)
