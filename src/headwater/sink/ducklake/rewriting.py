"""What Spark's workers do to merge files of a DuckLake: read all versions of rows in them, sort them, write them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from headwater import failpoints
from headwater.ducklake.flushing import InlinedBin, read_inlined_versions
from headwater.ducklake.mergeable import Bin
from headwater.ducklake.replacing import Replacement
from headwater.ducklake.versions import Layout, Versions, VersionsFile, read_versions, write_versions
from headwater.ducklake.writing import TableFolder
from headwater.errors import CommitConflict
from headwater.files import S3, filesystem
from headwater.lake.packing import FULL, MERGED_BYTES

__all__ = ["DuckLakeMergeWriter", "read_merged"]


def read_merged(report: bytes) -> Replacement:
    found = pickle.loads(report)
    assert isinstance(found, Replacement)
    return found


@dataclass(frozen=True, slots=True)
class DuckLakeMergeWriter:
    """Implements `headwater.lake.maintenance.MergeWriter`. `key` are the ids of the columns to sort by."""

    path: str  # of the table's folder
    key: Sequence[int]
    attempt: str
    s3: S3 | None = None

    def write(self, bin: Bin | InlinedBin) -> bytes:
        return pickle.dumps(self._flushed(bin) if isinstance(bin, InlinedBin) else self._merged(bin))

    def _flushed(self, bin: InlinedBin) -> Replacement:
        try:
            versions, moved = read_inlined_versions(bin)
        except CommitConflict:
            return Replacement(bin, ())  # it does not land, and no task fails for that
        failpoints.hit("maintain.read")
        return Replacement(bin, tuple(self._write(bin, [versions])), moved)

    def _merged(self, bin: Bin) -> Replacement:
        files = filesystem(self.path, self.s3)
        held: list[Versions] = []
        written: list[VersionsFile] = []
        for number, each in enumerate(bin.files):
            if each.rows:
                held.append(read_versions(files, each, bin.columns, number))
            if sum(versions.rows.nbytes for versions in held) > MERGED_BYTES:
                written += self._write(bin, held, FULL)
                held = []
        failpoints.hit("maintain.read")
        if held:
            written += self._write(bin, held)
        return Replacement(bin, tuple(written))

    def _write(self, bin: Bin | InlinedBin, held: Sequence[Versions], kind: str = "") -> list[VersionsFile]:
        names = {each.id: each.name for each in bin.columns}
        key = [names[id_] for id_ in self.key if id_ in names]
        below = bin.below if isinstance(bin, Bin) else ""
        where = TableFolder(filesystem(self.path, self.s3), self.path, self.attempt, below)
        ended = len(bin.files) if isinstance(bin, Bin) and bin.ended else None
        return list(write_versions(where, Versions.joined(held), Layout(bin.columns, bin.oldest, key, kind, ended)))
