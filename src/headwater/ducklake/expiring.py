"""Snapshots that are no longer needed, and what only they showed: in the catalog, and on disk."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import duckdb

from headwater.ducklake import reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.lake import Lake
from headwater.errors import CommitConflict, Unreachable
from headwater.files import inside
from headwater.lake.sqltext import identifier, literal

__all__ = ["Scheduled", "delete_scheduled", "expire", "expired", "moment", "purge_inlined", "scheduled_before"]

_AT_ONCE = 1_000  # snapshots

_NEVER_SHOWN = (
    "end_snapshot IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ducklake_snapshot s"
    " WHERE s.snapshot_id >= begin_snapshot AND s.snapshot_id < end_snapshot)"
)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A file that the catalog no longer needs. `stored` is its path as the catalog has it."""

    id: int
    stored: str
    path: str


def expired(tx: Transaction, before: datetime, keep: Collection[int], newest: int = 1) -> list[int]:
    """The snapshots that a newer one replaced before this time, without so many of the newest, and those to keep."""
    found = tx.rows("SELECT snapshot_id, snapshot_time FROM ducklake_snapshot ORDER BY snapshot_id")
    old = [id_ for (id_, _), (_, until) in pairwise(found) if moment(until) < before]
    stay = {id_ for id_, _ in found[-newest:]} | set(keep)
    return [id_ for id_ in old if id_ not in stay]


def expire(lake: Lake, snapshots: Sequence[int]) -> None:
    """Remove snapshots, and what only they had of tables and columns; files that only they showed are scheduled.

    DuckLake's own function is right for our files, too: it goes by the snapshots that each is part of.
    """
    with lake.attached() as (con, alias):
        for first in range(0, len(snapshots), _AT_ONCE):
            listed = ", ".join(f"{each:d}" for each in snapshots[first : first + _AT_ONCE])
            try:
                con.execute(f"CALL ducklake_expire_snapshots({literal(alias)}, versions => [{listed}])")
            except duckdb.TransactionException as error:
                raise CommitConflict("others changed the lake while snapshots expired", hint="try again") from error
            except duckdb.Error as error:
                what = " ".join(str(error).split())
                raise Unreachable(f"DuckDB cannot expire snapshots of {lake.url}: {what}") from error


def purge_inlined(tx: Transaction) -> None:
    """Delete rows and deletes in the catalog itself that no snapshot shows any more; DuckLake never does."""
    for (name,) in tx.rows("SELECT table_name FROM ducklake_inlined_data_tables"):
        tx.execute(f"DELETE FROM {identifier(name)} WHERE {_NEVER_SHOWN}")
    tables = [table_id for (table_id,) in tx.rows("SELECT DISTINCT table_id FROM ducklake_table")]
    for name in tx.existing([f"ducklake_inlined_delete_{table_id:d}" for table_id in tables]):
        tx.execute(f"DELETE FROM {name} WHERE file_id NOT IN (SELECT data_file_id FROM ducklake_data_file)")


def scheduled_before(tx: Transaction, data_path: str, before: datetime) -> list[Scheduled]:
    """The files that have not been part of the lake since this time."""
    found = tx.rows(
        "SELECT data_file_id, path, path_is_relative, schedule_start FROM ducklake_files_scheduled_for_deletion"
    )
    return [
        Scheduled(id_, path, reading.resolved(data_path, path, relative))
        for id_, path, relative, since in found
        if moment(since) < before
    ]


def delete_scheduled(lake: Lake, files: Sequence[Scheduled]) -> None:
    """Delete them: first from the disk, so that none is forgotten if this process is killed."""
    for each in files:
        with suppress(FileNotFoundError):
            lake.filesystem.delete_file(inside(each.path))
    done = [(each.id, each.stored) for each in files]
    lake.changed_by(
        lambda tx: tx.execute_many(
            "DELETE FROM ducklake_files_scheduled_for_deletion WHERE data_file_id = %s AND path = %s", done
        )
    )


def moment(stored: Any) -> datetime:
    """A time as a catalog gives it: SQLite has texts."""
    return datetime.fromisoformat(stored) if isinstance(stored, str) else stored
