"""What the workers report to an Iceberg commit, and what these reports amount to."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass

from headwater.files import S3, filesystem, inside
from headwater.iceberg.model import NewFile
from headwater.iceberg.snapshots import FileChanges
from headwater.lake.counts import Counts

__all__ = ["TakenOut", "Wrote", "counted", "data_bytes", "delete_files", "file_changes", "read_report", "touched"]


@dataclass(frozen=True, slots=True)
class TakenOut:
    """Rows deleted from a live file: by a delete file, or with the file itself; `removed` are files that go for it."""

    of: str
    rows: int
    deletes: NewFile | None
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wrote:
    """A new data file, and how many of its rows replace older ones."""

    file: NewFile
    replacing: int


def read_report(report: bytes) -> TakenOut | Wrote:
    found = pickle.loads(report)
    assert isinstance(found, TakenOut | Wrote)
    return found


def file_changes(reports: Iterable[bytes]) -> FileChanges:
    found = list(map(read_report, reports))
    added = [each.file if isinstance(each, Wrote) else each.deletes for each in found]
    removed = [path for each in found if isinstance(each, TakenOut) for path in each.removed]
    return FileChanges([each for each in added if each is not None], removed)


def counted(reports: Iterable[bytes]) -> Counts:
    found = list(map(read_report, reports))
    written = sum(each.file.rows for each in found if isinstance(each, Wrote))
    updated = sum(each.replacing for each in found if isinstance(each, Wrote))
    taken = sum(each.rows for each in found if isinstance(each, TakenOut))
    return Counts(inserted=written - updated, updated=updated, deleted=taken - updated)


def data_bytes(reports: Iterable[bytes]) -> int:
    """The size of the data files among what was written."""
    return sum(each.file.size for each in map(read_report, reports) if isinstance(each, Wrote))


def touched(reports: Iterable[bytes]) -> set[str]:
    """The data files that rows were deleted from: they must still be there at the commit."""
    return {each.of for each in map(read_report, reports) if isinstance(each, TakenOut)}


def delete_files(reports: Iterable[bytes], s3: S3 | None) -> None:
    """Delete the files of reports that do not land."""
    for report in map(read_report, reports):
        written = report.file if isinstance(report, Wrote) else report.deletes
        if written is not None:
            filesystem(written.path, s3).delete_file(inside(written.path))
