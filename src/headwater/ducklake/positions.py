"""How far each source table has come in a lake, in a table of the catalog: moved by the commit that brings the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headwater.change import TableName
from headwater.ducklake import reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.model import Advance, LakeTable, PlannedCommit, Snapshot, TablePosition
from headwater.errors import AlreadyDelivered, OperatorMustAct
from headwater.lake.counts import Counts
from headwater.lake.stream import P

__all__ = ["POSITION_TABLE", "advance", "mirrored", "mirrors", "positions", "reached"]

POSITION_TABLE = (
    "CREATE TABLE IF NOT EXISTS headwater_position (source text NOT NULL, source_oid bigint NOT NULL,"
    " table_id bigint NOT NULL, position bigint NOT NULL, snapshot_id bigint NOT NULL, mirrored text,"
    " copied bigint NOT NULL, inserted bigint NOT NULL, updated bigint NOT NULL, deleted bigint NOT NULL,"
    " quarantined bigint NOT NULL, PRIMARY KEY (source, source_oid))"
)


_POSITIONS = (
    "SELECT source_oid, table_id, position, mirrored, copied, inserted, updated, deleted, quarantined"
    " FROM headwater_position WHERE source = %s"
)


def positions(tx: Transaction, source: str, kind: type[P]) -> dict[int, TablePosition[P]]:
    """How far each table of a source has come, by the source's OID."""
    return _positions(tx.rows(_POSITIONS, source), kind)


def mirrors(
    tx: Transaction, data_path: str, source: str, kind: type[P]
) -> tuple[Snapshot, dict[int, TablePosition[P]], dict[int, LakeTable]]:
    """The newest snapshot, the positions of a source's tables, and by their ids those tables that exist: at once."""
    of = "table_id IN (SELECT table_id FROM headwater_position WHERE source = %s)"
    (newest,), found, tables, columns = tx.answers(
        (reading.NEWEST_SNAPSHOT, ()),
        (_POSITIONS, (source,)),
        (f"{reading.LIVE_TABLES} AND t.{of}", (source,)),
        (f"{reading.COLUMNS_EVER} {of} {reading.COLUMN_ORDER}", (source,)),
    )
    live = reading.found_tables(tx, data_path, tables, columns)
    return Snapshot(*newest), _positions(found, kind), {each.id: each for each in live.values()}


def _positions(found: Sequence[Sequence[Any]], kind: type[P]) -> dict[int, TablePosition[P]]:
    return {
        oid: TablePosition(table_id, kind(value), mirrored, Counts(*counts))
        for oid, table_id, value, mirrored, *counts in found
    }


def reached(tx: Transaction, source: str, kind: type[P]) -> tuple[int, P] | None:
    """The newest snapshot that brought a source's tables on, or that they were found unchanged in, and how far."""
    ((snapshot, value),) = tx.rows(
        "SELECT max(snapshot_id), max(position) FROM headwater_position WHERE source = %s", source
    )
    return None if snapshot is None else (snapshot, kind(value))


def mirrored(tx: Transaction, table_id: int) -> str | None:
    """Which columns of a source a table mirrors, as its sink has noted it; None if it is not a mirror of ours."""
    if not tx.existing(["headwater_position"]):
        return None
    found = tx.rows("SELECT mirrored FROM headwater_position WHERE table_id = %s AND mirrored IS NOT NULL", table_id)
    return str(found[0][0]) if found else None


def advance(tx: Transaction, commit: PlannedCommit, snapshot: int, created: Mapping[TableName, int]) -> None:
    """Compare and set: a position that is not the expected one means that the batch was delivered before."""
    first, next_ = [], []
    idle: dict[tuple[int, int], list[int]] = defaultdict(list)  # by where they are, and where they go
    for oid, step in commit.positions.items():
        _check_forward(commit.source, oid, step)
        if step.expected is not None and step.is_idle:
            idle[step.expected.value, step.new.value].append(oid)
            continue
        table_id = created[step.table] if isinstance(step.table, TableName) else step.table
        if step.expected is None:
            first.append(
                (commit.source, oid, table_id, step.new.value, snapshot, step.mirrored, *_numbers(step.counts))
            )
        else:
            *rows, quarantined = _numbers(step.counts)
            keep = int(table_id == step.table)  # a table that is copied again starts counting again
            counted = *(each for count in rows for each in (keep, count)), quarantined
            next_.append(
                (table_id, step.new.value, snapshot, step.mirrored, *counted, commit.source, oid, step.expected.value)
            )
    _forget(tx, commit, [row[1] for row in first])
    if _insert(tx, first) + _update(tx, next_) + _move_on(tx, commit.source, snapshot, idle) != len(commit.positions):
        now = dict(tx.rows("SELECT source_oid, position FROM headwater_position WHERE source = %s", commit.source))
        steps = commit.positions.items()
        there = [f"{oid}: {step.new.at(now[oid]) if oid in now else 'new'}" for oid, step in steps]
        raise AlreadyDelivered(
            f"the lake is not where the batch of {commit.source!r} starts ({', '.join(there[:5])})",
            hint="read the positions again and go on from there",
        )


def _numbers(counts: Counts) -> tuple[int, int, int, int, int]:
    return counts.copied, counts.inserted, counts.updated, counts.deleted, counts.quarantined


def _check_forward(source: str, oid: int, step: Advance) -> None:
    if isinstance(step.table, int) and step.expected is not None and step.new < step.expected:
        raise OperatorMustAct(  # its changes from there on would come a second time
            f"table {oid} of {source!r} is at {step.expected} in the lake and would go back to {step.new}",
            hint="this is a bug in Headwater: please report it with the log; nothing was written",
        )


def _forget(tx: Transaction, commit: PlannedCommit, first: Sequence[int]) -> None:
    """Remove the positions of tables that leave, and those of mirrors that another client dropped from the lake."""
    tx.execute_many(
        "DELETE FROM headwater_position WHERE source = %s AND source_oid = %s"
        " AND table_id NOT IN (SELECT table_id FROM ducklake_table WHERE end_snapshot IS NULL)",
        [(commit.source, oid) for oid in first],
    )
    tx.execute_many(
        "DELETE FROM headwater_position WHERE source = %s AND source_oid = %s",
        [(commit.source, oid) for oid in commit.forgotten],
    )


def _insert(tx: Transaction, rows: Sequence[tuple[object, ...]]) -> int:
    return tx.execute_many(
        "INSERT INTO headwater_position(source, source_oid, table_id, position, snapshot_id, mirrored, copied,"
        " inserted, updated, deleted, quarantined) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (source, source_oid) DO NOTHING",
        rows,
    )


def _move_on(tx: Transaction, source: str, snapshot: int, idle: Mapping[tuple[int, int], Collection[int]]) -> int:
    """Tables that nothing has happened to: one statement for all that are at the same position, as most are."""
    return sum(
        tx.execute(
            "UPDATE headwater_position SET position = %s, snapshot_id = %s"
            " WHERE source = %s AND position = %s AND source_oid {among}",
            *(new, snapshot, source, now, tx.ids(oids)),
        )
        for (now, new), oids in idle.items()
    )


def _update(tx: Transaction, rows: Sequence[tuple[object, ...]]) -> int:
    return tx.execute_many(
        "UPDATE headwater_position SET table_id = %s, position = %s, snapshot_id = %s,"
        " mirrored = COALESCE(%s, mirrored), copied = copied * %s + %s, inserted = inserted * %s + %s,"
        " updated = updated * %s + %s, deleted = deleted * %s + %s, quarantined = quarantined + %s"
        " WHERE source = %s AND source_oid = %s AND position = %s",
        rows,
    )
