"""What other clients did to the lake since a commit was planned, and whether it would still mean the same.

DuckDB decides by the change log, which is coarse (any insert stops any delete) and which is deleted with expired
snapshots. We look at the state instead: a commit's deletes are row numbers in certain files, so it is valid if the
tables still have their columns and those files still have exactly the deletes it was planned on. Rows that others
inserted elsewhere, and merged files that the commit does not touch, do not matter.
"""

from __future__ import annotations

from headwater.change import TableName
from headwater.ducklake import reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.inlined import inlined_counts
from headwater.ducklake.model import FileDeletes, InlinedEnds, PlannedCommit, Snapshot
from headwater.errors import CommitConflict
from headwater.lake.sqltext import identifier

__all__ = ["check"]


def check(tx: Transaction, commit: PlannedCommit, newest: Snapshot) -> None:
    """Raise CommitConflict if the commit, planned on its base, cannot go on top of the newest snapshot."""
    tables = {change.table for change in commit.changes if not isinstance(change.table, TableName)}
    tables |= {step.table for step in commit.positions.values() if not isinstance(step.table, TableName)}
    tables |= {each.table for each in commit.alterations}
    if not tables and not commit.dropped:
        return
    if newest.id != commit.base.id:
        _check_alive(tx, tables | set(commit.dropped))  # what others did to a table that is dropped does not matter
        _check_unaltered(tx, tables, commit.base.id)
        _check_files(tx, tables, [each for change in commit.changes for each in change.deletes])
        _check_inlined(tx, [each for change in commit.changes for each in change.inlined_ends], commit.base.id)
    _check_truncated(tx, commit, newest.id)


def _check_alive(tx: Transaction, tables: set[int]) -> None:
    live = {
        table_id
        for (table_id,) in tx.rows(
            "SELECT table_id FROM ducklake_table WHERE table_id {among} AND end_snapshot IS NULL", tx.ids(tables)
        )
    }
    if live != tables:
        raise CommitConflict(f"another client dropped table {min(tables - live)} of the lake", hint="plan again")


def _check_unaltered(tx: Transaction, tables: set[int], base: int) -> None:
    ids = tx.ids(tables)
    changed = tx.rows(
        "SELECT table_id FROM ducklake_table WHERE table_id {among} AND begin_snapshot > %s"
        " UNION ALL SELECT table_id FROM ducklake_column WHERE table_id {among}"
        " AND (begin_snapshot > %s OR end_snapshot > %s)"
        " UNION ALL SELECT table_id FROM ducklake_partition_info WHERE table_id {among}"
        " AND (begin_snapshot > %s OR end_snapshot > %s)"
        " UNION ALL SELECT table_id FROM ducklake_sort_info WHERE table_id {among}"
        " AND (begin_snapshot > %s OR end_snapshot > %s)",
        ids,
        base,
        *(ids, base, base) * 3,
    )
    if changed:
        raise CommitConflict(f"another client altered table {changed[0][0]} of the lake", hint="plan again")


def _check_files(tx: Transaction, tables: set[int], planned: list[FileDeletes]) -> None:
    if not planned:
        return
    found = dict(
        tx.rows(
            "SELECT f.data_file_id, d.delete_file_id FROM ducklake_data_file f LEFT JOIN ducklake_delete_file d"
            " ON d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL"
            " WHERE f.data_file_id {among} AND f.end_snapshot IS NULL",
            tx.ids(each.data_file_id for each in planned),
        )
    )
    inlined = reading.inlined_delete_counts(tx, tables)
    for each in planned:
        if each.data_file_id not in found:
            raise CommitConflict(f"another client replaced data file {each.data_file_id}", hint="plan again")
        seen = (each.seen_delete_file.id if each.seen_delete_file else None, each.seen_inlined)
        if (found[each.data_file_id], inlined.get(each.data_file_id, 0)) != seen:
            raise CommitConflict(f"another client deleted from data file {each.data_file_id}", hint="plan again")


def _check_inlined(tx: Transaction, planned: list[InlinedEnds], base: int) -> None:
    """A newer version of a row has the same id: it is another one all the same."""
    existing = tx.existing({each.name for each in planned}) if planned else set()
    for each in planned:
        there = 0
        if each.name in existing:
            among, given = ("", ()) if each.row_ids is None else (" AND row_id {among}", (tx.ids(each.row_ids),))
            alive = f"SELECT count(*) FROM {identifier(each.name)} WHERE end_snapshot IS NULL AND begin_snapshot <= %s"
            ((there,),) = tx.rows(f"{alive}{among}", base, *given)
        if there != each.rows:
            raise CommitConflict(f"another client changed rows in {each.name!r}", hint="plan again")


def _check_truncated(tx: Transaction, commit: PlannedCommit, newest: int) -> None:
    truncated = {change.table: change for change in commit.changes if change.truncate and isinstance(change.table, int)}
    if not truncated:
        return
    live = {
        file_id
        for (file_id,) in tx.rows(
            "SELECT data_file_id FROM ducklake_data_file WHERE table_id {among} AND end_snapshot IS NULL",
            tx.ids(truncated),
        )
    }
    ended = {each.data_file_id for change in truncated.values() for each in change.deletes if each.ended}
    there = inlined_counts(tx, truncated, newest)
    inlined = {each.name: each.live for found in there.values() for each in found if each.live}
    if live != ended or inlined != {
        each.name: each.rows for change in truncated.values() for each in change.inlined_ends
    }:
        raise CommitConflict("another client added to a table that is to be truncated", hint="plan again")
