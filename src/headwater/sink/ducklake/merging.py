"""Files of a DuckLake that become fewer: written by Spark's workers, then put in place of the old ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from headwater.ducklake import attempts, reading
from headwater.ducklake.deletes import INLINE_LIMIT
from headwater.ducklake.flushing import InlinedBin
from headwater.ducklake.lake import Lake
from headwater.ducklake.late import with_late_deletes
from headwater.ducklake.mergeable import Bin
from headwater.ducklake.model import LakeTable
from headwater.ducklake.replacing import NothingLeft, Replacement, replace_files
from headwater.ducklake.writing import TableFolder
from headwater.files import inside
from headwater.lake.maintenance import Chores, Ready
from headwater.sink.ducklake.rewriting import DuckLakeMergeWriter, read_merged

__all__ = ["DuckLakeMerging", "chores_of", "late_inline_limit"]


@dataclass(frozen=True, slots=True)
class DuckLakeMerging:
    """Implements `headwater.lake.maintenance.Merging`.

    Up to `inline_limit` row numbers that are deleted from a file meanwhile go into the catalog.
    """

    lake: Lake
    table: LakeTable
    bins: Sequence[Bin | InlinedBin]
    writer: DuckLakeMergeWriter
    inline_limit: int

    def commit(self, reports: Sequence[bytes], ready: Ready = lambda: None) -> Chores:
        written, attempt = [read_merged(each) for each in reports], self.writer.attempt
        planned = self._caught_up(written)
        landed: list[Replacement] = []
        ready()
        with suppress(NothingLeft):
            landed = self.lake.changed_by(
                lambda tx: replace_files(tx, self.lake.data_path, self.table, attempt, planned)
            )
        self._delete(_paths([*written, *planned]) - _paths(landed))
        if not landed:
            self.lake.changed_by(lambda tx: attempts.end(tx, attempt))
        done = chores_of([each.bin for each in landed], sum(len(each.files) for each in landed))
        return replace(done, flushed_rows=done.flushed_rows - sum(each.left_behind for each in landed))

    def _caught_up(self, written: Sequence[Replacement]) -> list[Replacement]:
        """As they have to be by now: deliveries have gone on to delete rows from the old files."""
        with self.lake.reading() as tx:
            newest = reading.newest_snapshot(tx).id
            live = reading.live_files(tx, self.lake.data_path, [self.table.id], newest, {}, [])
        where = TableFolder(self.lake.filesystem, self.table.path, self.writer.attempt)
        return list(with_late_deletes(where, live, written, self.inline_limit))

    def _delete(self, given_up: Collection[str]) -> None:
        for path in given_up:
            self.lake.filesystem.delete_file(inside(self.table.path + path))


def late_inline_limit(lake: Lake, table_id: int) -> int:
    """How many row numbers of a file a merge that is planned from now on may write into the catalog.

    Not any, if the catalog has no table for them yet: DuckDB remembers of each snapshot it reads that there was none.
    """
    with lake.reading() as tx:
        return INLINE_LIMIT if reading.with_inlined_deletes(tx, [table_id]) else 0


def _paths(written: Sequence[Replacement]) -> set[str]:
    files = [file for each in written for file in each.files]
    return {file.data.path for file in files} | {file.deletes.path for file in files if file.deletes}


def chores_of(bins: Sequence[Bin | InlinedBin], written: int) -> Chores:
    """What it means to replace these by so many files."""
    merged = [each for each in bins if isinstance(each, Bin)]
    flushed = sum(each.state.rows for each in bins if isinstance(each, InlinedBin))
    files, size = sum(len(each.files) for each in merged), sum(each.size for each in merged)
    return Chores(files, size, written, flushed)
