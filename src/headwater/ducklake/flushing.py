"""Rows in the catalog itself that are due to move into a file, so that the catalog stays small."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.ducklake import reading
from headwater.ducklake.asking import asking
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.expiring import moment
from headwater.ducklake.inlined import InlinedCounts, InlinedTable, inlined_counts, inlined_tables, read_inlined
from headwater.ducklake.mergeable import writable
from headwater.ducklake.model import Field, LakeTable
from headwater.ducklake.url import LakeUrl
from headwater.ducklake.versions import NEVER, Versions
from headwater.ducklake.writing import ROW_ID, SNAPSHOT_ID
from headwater.errors import CommitConflict
from headwater.lake.maintenance import FlushLimits
from headwater.lake.sqltext import identifier

__all__ = ["InlinedBin", "InlinedState", "Moved", "due_to_flush", "inlined_state", "movable", "read_inlined_versions"]

_LONG, _SHORT = ("varchar", "json", "blob", "list"), 8  # types of long values, and the bytes of others
MOST_LAYERS = 8  # files for older versions of rows, if some row has many of them
WORTH_A_FILE = 100  # such versions, each of another row


Moved = tuple[tuple[int, int], ...]  # versions of rows: the row's id, and the snapshot that made it


class InlinedState(NamedTuple):
    """What one of the catalog's tables holds; whatever happens to its rows makes it another."""

    rows: int
    ended: int
    newest_begin: int
    newest_end: int


@dataclass(frozen=True, slots=True)
class InlinedBin:
    """The rows of one of the catalog's tables, as they were when this was planned.

    Those that ended in the snapshot `oldest` or before are no longer needed.
    """

    url: LakeUrl
    table: InlinedTable
    state: InlinedState
    oldest: int

    @property
    def columns(self) -> tuple[Field, ...]:
        return self.table.columns


def inlined_state(tx: Transaction, name: str) -> InlinedState:
    (found,) = tx.rows(
        "SELECT count(*), count(end_snapshot), coalesce(max(begin_snapshot), 0), coalesce(max(end_snapshot), 0)"
        f" FROM {identifier(name)}"
    )
    return InlinedState(*found)


def due_to_flush(tx: Transaction, url: LakeUrl, table: LakeTable, limits: FlushLimits, oldest: int) -> list[InlinedBin]:
    """What is worth moving: all rows of one of the catalog's tables, if they are many or large, or one is old."""
    counts = inlined_counts(tx, [table.id], reading.newest_snapshot(tx).id).get(table.id, [])
    there = [each for each in counts if each.rows]
    return [
        InlinedBin(url, table, inlined_state(tx, table.name), oldest)
        for each, table in zip(there, inlined_tables(tx, there), strict=True)
        if table.columns and all(map(writable, table.columns)) and _is_due(tx, table, each, limits, oldest)
    ]


def _is_due(tx: Transaction, table: InlinedTable, there: InlinedCounts, limits: FlushLimits, oldest: int) -> bool:
    if not limits.ended_only and _since(tx, table.name) <= datetime.now(UTC) - limits.age:
        return True
    size = _size(tx, table, there.rows)
    if there.rows < limits.rows and size < limits.bytes:
        return False
    moving = movable(tx, table.name, oldest) + (0 if limits.ended_only else there.live)
    return moving >= limits.rows or size * moving >= limits.bytes * there.rows


def movable(tx: Transaction, name: str, oldest: int) -> int:
    """How many of the versions that have ended in one of the catalog's tables would leave it, as `_moving` has it.

    Those of a few rows that change all the time would not, however many they are.
    """
    shown = "end_snapshot > begin_snapshot AND end_snapshot > %s"
    found = tx.rows(
        "SELECT versions, count(*), sum(ended) FROM ("
        f"SELECT count(*) AS ended, count(CASE WHEN {shown} THEN 1 END) AS versions FROM {identifier(name)}"
        " WHERE end_snapshot IS NOT NULL GROUP BY row_id) AS of_row GROUP BY versions",
        oldest,
    )
    if max((versions for versions, _, _ in found), default=0) <= MOST_LAYERS:
        return sum(int(ended) for _, _, ended in found)
    layers = [sum(rows for versions, rows, _ in found if versions >= each) for each in range(1, MOST_LAYERS + 1)]
    return sum(each for each in layers if each >= WORTH_A_FILE)


def _size(tx: Transaction, table: InlinedTable, rows: int) -> int:
    """About how many bytes the rows have: those of texts, documents and lists, and a few for any other value."""
    long = [each for each in table.columns if each.type in _LONG]
    lengths = " + ".join(f"coalesce(length({identifier(each.name).replace('%', '%%')}), 0)" for each in long)
    ((found,),) = tx.rows(f"SELECT coalesce(sum({lengths or 0}), 0) FROM {identifier(table.name)}")
    return int(found) + rows * _SHORT * (len(table.columns) + 3)


def _since(tx: Transaction, name: str) -> datetime:
    """When the oldest row that is alive was made, as far as the lake still knows."""
    ((stored,),) = tx.rows(
        "SELECT min(snapshot_time) FROM ducklake_snapshot WHERE snapshot_id >="
        f" (SELECT min(begin_snapshot) FROM {identifier(name)} WHERE end_snapshot IS NULL)"
    )
    return datetime.max.replace(tzinfo=UTC) if stored is None else moment(stored)


def read_inlined_versions(bin: InlinedBin) -> tuple[Versions, Moved | None]:
    """The rows of a bin that move, and which ones of those that have ended; None: all of them do.

    If some rows have ended very often, each of their versions would need a file of its own. Then most of these stay.
    CommitConflict if the rows are others by now.
    """
    with asking(bin.url) as tx:
        there = tx.existing([bin.table.name])
        if not there or inlined_state(tx, bin.table.name) != bin.state:
            raise CommitConflict(f"rows in {bin.table.name!r} were changed meanwhile", hint="they are moved later")
        found = read_inlined(tx, bin.table, bin.columns, "1 = 1")
    rows = found.columns.append_column(ROW_ID, found.ids).append_column(SNAPSHOT_ID, found.begun)
    ended = pc.fill_null(found.ended, pa.scalar(NEVER, pa.int64())).to_numpy()
    versions = Versions(rows, np.asarray(ended, np.int64))
    return _moving(versions, bin.oldest)


def _moving(versions: Versions, oldest: int) -> tuple[Versions, Moved | None]:
    layers = versions.layers(oldest)
    if len(layers) <= MOST_LAYERS:
        return versions, None
    worth = [each for each in layers[:MOST_LAYERS] if len(each) >= WORTH_A_FILE]
    alive, moved = np.flatnonzero(versions.ended == NEVER), np.concatenate([np.empty(0, np.int64), *worth])
    return versions.take(np.sort(np.concatenate([alive, moved]))), versions.take(moved).known_by()
