"""Files of a DuckLake that become fewer: written by Spark's workers, then put in place of the old ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from headwater.ducklake import attempts
from headwater.ducklake.flushing import InlinedBin
from headwater.ducklake.lake import Lake
from headwater.ducklake.mergeable import Bin
from headwater.ducklake.model import LakeTable
from headwater.ducklake.replacing import NothingLeft, Replacement, replace_files
from headwater.files import inside
from headwater.lake.maintenance import Chores
from headwater.sink.ducklake.rewriting import DuckLakeMergeWriter, read_merged

__all__ = ["DuckLakeMerging", "chores_of"]


@dataclass(frozen=True, slots=True)
class DuckLakeMerging:
    """Implements `headwater.lake.maintenance.Merging`."""

    lake: Lake
    table: LakeTable
    bins: Sequence[Bin | InlinedBin]
    writer: DuckLakeMergeWriter

    def commit(self, reports: Sequence[bytes]) -> Chores:
        planned, attempt = [read_merged(each) for each in reports], self.writer.attempt
        landed: list[Replacement] = []
        with suppress(NothingLeft):
            landed = self.lake.changed_by(
                lambda tx: replace_files(tx, self.lake.data_path, self.table, attempt, planned)
            )
        self._delete(each for each in planned if each not in landed)
        if not landed:
            self.lake.changed_by(lambda tx: attempts.end(tx, attempt))
        return chores_of([each.bin for each in landed], sum(len(each.files) for each in landed))

    def _delete(self, given_up: Iterable[Replacement]) -> None:
        for file in (file for each in given_up for file in each.files):
            for path in (file.data.path, *([file.deletes.path] if file.deletes else [])):
                self.lake.filesystem.delete_file(inside(self.table.path + path))


def chores_of(bins: Sequence[Bin | InlinedBin], written: int) -> Chores:
    """What it means to replace these by so many files."""
    merged = [each for each in bins if isinstance(each, Bin)]
    flushed = sum(each.state.rows for each in bins if isinstance(each, InlinedBin))
    files, size = sum(len(each.files) for each in merged), sum(each.size for each in merged)
    return Chores(files, size, written, flushed)
