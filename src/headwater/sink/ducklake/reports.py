"""What the workers report to a DuckLake's commit, and what these reports amount to."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.ducklake.model import (
    DataFile,
    DeleteFile,
    FileDeletes,
    InlinedEnds,
    InlinedRows,
    TableChange,
    TableRef,
)
from headwater.files import filesystem, inside
from headwater.lake.counts import Counts
from headwater.pickling import pickled_by_fields

__all__ = ["TakenOut", "Wrote", "data_bytes", "delete_files", "read_report", "rows_written", "table_change"]


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class TakenOut:
    """Rows deleted from a live file, or from the catalog."""

    deletes: FileDeletes | InlinedEnds
    rows: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """A new data file, or rows for the catalog."""

    rows: DataFile | InlinedRows

    @property
    def updated(self) -> int:
        """How many of its rows replace others."""
        if isinstance(self.rows, InlinedRows):
            return sum(each is not None for each in self.rows.row_ids)
        return self.rows.rows if self.rows.has_row_ids else 0

    @property
    def count(self) -> int:
        return len(self.rows.row_ids) if isinstance(self.rows, InlinedRows) else self.rows.rows


def read_report(report: bytes) -> TakenOut | Wrote:
    found = pickle.loads(report)
    assert isinstance(found, TakenOut | Wrote)
    return found


def table_change(
    table: TableRef, reports: Iterable[bytes], ended: Sequence[TakenOut] = ()
) -> tuple[TableChange, Counts]:
    """What these reports, and what `ended` with a TRUNCATE, change in a table."""
    found = [read_report(report) for report in reports]
    wrote = [each for each in found if isinstance(each, Wrote)]
    taken = [*(each for each in found if isinstance(each, TakenOut)), *ended]
    updated = sum(each.updated for each in wrote)
    change = TableChange(
        table,
        tuple(each.rows for each in wrote if isinstance(each.rows, DataFile)),
        tuple(each.deletes for each in taken if isinstance(each.deletes, FileDeletes)),
        inlined=tuple(each.rows for each in wrote if isinstance(each.rows, InlinedRows)),
        inlined_ends=tuple(each.deletes for each in taken if isinstance(each.deletes, InlinedEnds)),
    )
    inserted = sum(each.count for each in wrote) - updated
    return change, Counts(inserted=inserted, updated=updated, deleted=sum(each.rows for each in taken) - updated)


def rows_written(reports: Iterable[bytes]) -> int:
    return sum(each.count for each in map(read_report, reports) if isinstance(each, Wrote))


def data_bytes(changes: Iterable[TableChange]) -> int:
    """The size of the data files that come with these changes."""
    return sum(file.size for change in changes for file in change.data_files)


def delete_files(folder: str, reports: Iterable[bytes]) -> None:
    """Delete the files of reports that do not land."""
    for report in map(read_report, reports):
        found = report.rows if isinstance(report, Wrote) else report.deletes
        written = found.delete_file if isinstance(found, FileDeletes) else found
        if isinstance(written, DataFile | DeleteFile):
            filesystem(folder).delete_file(inside(folder) + written.path)
