"""Snapshots that are no longer needed, and what only they showed: in the catalog, and on disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any

import duckdb

from headwater.ducklake import reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.lake import Lake
from headwater.errors import CommitConflict, Unreachable
from headwater.files import inside
from headwater.lake.sqltext import identifier, literal

__all__ = [
    "AT_ONCE",
    "Scheduled",
    "delete_scheduled",
    "expire",
    "expired",
    "moment",
    "purge_inlined",
    "scheduled_before",
]

AT_ONCE = 500  # snapshots; most of the time is for the attachment, however few they are

_NEVER_SHOWN = (
    "end_snapshot IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ducklake_snapshot s"
    " WHERE s.snapshot_id >= begin_snapshot AND s.snapshot_id < end_snapshot)"
)
_OF_NO_FILE = "file_id NOT IN (SELECT data_file_id FROM ducklake_data_file)"


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A file that the catalog no longer needs. `stored` is its path as the catalog has it."""

    id: int
    stored: str
    path: str


def expired(
    tx: Transaction, before: datetime, keep: Collection[int], newest: int = 1, most: int | None = None
) -> list[int]:
    """The snapshots that a newer one replaced before this time, without so many of the newest, and those to keep.

    The oldest of them, if they are more than `most`.
    """
    latest = tx.rows(f"SELECT snapshot_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT {newest:d}")
    stay = {id_ for (id_,) in latest} | set(keep)
    limit = "" if most is None else f" LIMIT {most + len(stay) + 1:d}"
    found = tx.rows(f"SELECT snapshot_id, snapshot_time FROM ducklake_snapshot ORDER BY snapshot_id{limit}")
    old = [id_ for (id_, _), (_, until) in pairwise(found) if id_ not in stay and moment(until) < before]
    return old[:most]


def expire(lake: Lake, snapshots: Sequence[int]) -> None:
    """Remove snapshots, and what only they had of tables and columns; files that only they showed are scheduled.

    DuckLake's own function is right for our files, too: it goes by the snapshots that each is part of. Deliveries to
    a catalog in SQLite wait for each call.
    """
    for first in range(0, len(snapshots), AT_ONCE):
        listed = ", ".join(f"{each:d}" for each in snapshots[first : first + AT_ONCE])
        with lake.attached() as (con, alias):
            try:
                con.execute(f"CALL ducklake_expire_snapshots({literal(alias)}, versions => [{listed}])")
            except duckdb.TransactionException as error:
                raise CommitConflict("others changed the lake while snapshots expired", hint="try again") from error
            except duckdb.Error as error:
                what = " ".join(str(error).split())
                raise Unreachable(f"DuckDB cannot expire snapshots of {lake.url}: {what}") from error


def purge_inlined(lake: Lake) -> None:
    """Delete rows and deletes in the catalog itself that no snapshot shows any more; DuckLake never does.

    One of its tables after the other, and only those that have some: writers wait for each.
    """
    for work in _purges(lake):
        lake.changed_by(work)


def _purges(lake: Lake) -> list[Callable[[Transaction], None]]:
    with lake.reading() as tx:
        named = [name for (name,) in tx.rows("SELECT table_name FROM ducklake_inlined_data_tables")]
        ids = [table_id for (table_id,) in tx.rows("SELECT DISTINCT table_id FROM ducklake_table")]
        marked = tx.existing([f"ducklake_inlined_delete_{table_id:d}" for table_id in ids])
        unneeded = {**dict.fromkeys(tx.existing(named), _NEVER_SHOWN), **dict.fromkeys(sorted(marked), _OF_NO_FILE)}
        found = {
            name: condition
            for name, condition in unneeded.items()
            if tx.rows(f"SELECT 1 FROM {identifier(name)} WHERE {condition} LIMIT 1")
        }
    return [partial(_delete, name=name, condition=condition) for name, condition in found.items()]


def _delete(tx: Transaction, name: str, condition: str) -> None:
    if tx.existing([name]):
        tx.execute(f"DELETE FROM {identifier(name)} WHERE {condition}")


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
