"""The log of a lake's snapshots: what each did to a table, and what it cannot have done, though a file says so."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from headwater.ducklake.catalog import Transaction
from headwater.feed.spans import NEVER, Snapshots, Span

__all__ = ["DeleteLog", "delete_log", "rewrites"]

_CHANGE = re.compile(r'(\w+):((?:"(?:[^"]|"")*"\.?)+|[^,"]*)(?:,|$)')
_COMPACTION = {"compacted_table", "merge_adjacent", "rewrite_delete", "inline_flush", "flushed_inlined"}
_DELETES = {"deleted_from_table", "inlined_delete"}
_RETRIES = 1_000  # snapshots: more than others can commit while DuckDB tries ten times


def rewrites(tx: Transaction, table_id: int, snapshots: Collection[int]) -> set[int]:
    """Those of these snapshots that did nothing to the table but rewrite files without their deleted rows."""
    found = tx.rows(
        "SELECT snapshot_id, changes_made FROM ducklake_snapshot_changes WHERE snapshot_id {among}", tx.ids(snapshots)
    )
    kinds = {id_: _kinds(changes, table_id) for id_, changes in found}
    return {id_ for id_, did in kinds.items() if "rewrite_delete" in did and did <= _COMPACTION}


@dataclass(frozen=True, slots=True, eq=False)
class DeleteLog:
    """The snapshots around a span that the log has, in runs from `first` to `last`, and which deleted from a table.

    DuckDB writes the number that it expects for its snapshot into a delete file. If others commit first, it gets
    another one, and the file stays as it is: its newest deletes seem to be older than they are (extension 1.5.5), even
    older than what a client has read meanwhile. A snapshot that did not delete from the table shows that.
    """

    first: Snapshots
    last: Snapshots
    deleting: Snapshots

    def dated(self, snapshots: Snapshots) -> Snapshots:
        """The snapshots that really deleted rows of which a file says that these did; NEVER: one after the span."""
        places = np.searchsorted(self.first, snapshots, side="right") - 1
        logged = (places >= 0) & (snapshots <= np.append(self.last, -1)[places])
        wrong = logged & ~np.isin(snapshots, self.deleting)
        following = np.searchsorted(self.deleting, snapshots, side="right")
        return np.where(wrong, np.append(self.deleting, NEVER)[following], snapshots)


def delete_log(tx: Transaction, table_id: int, span: Span) -> DeleteLog:
    """What the log has from shortly before the span to its end."""
    found = tx.rows(
        "SELECT snapshot_id, changes_made FROM ducklake_snapshot_changes WHERE snapshot_id > %s AND snapshot_id <= %s"
        " ORDER BY snapshot_id",
        span.after - _RETRIES,
        span.upto,
    )
    logged = np.array([id_ for id_, _ in found], np.int64)
    deleting = [id_ for id_, changes in found if _kinds(changes, table_id) & _DELETES]
    gaps = np.flatnonzero(np.diff(logged) > 1)
    first, last = logged[np.append(0, gaps + 1)[: len(logged)]], logged[np.append(gaps, len(logged) - 1)[: len(logged)]]
    return DeleteLog(first, last, np.array(deleting, np.int64))


def _kinds(changes: str | None, table_id: int) -> set[str]:
    return {kind for kind, what in _CHANGE.findall(changes or "") if what == str(table_id)}
