"""What the workers report to a DuckLake's commit, and what these reports amount to."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.ducklake.model import DataFile, FileDeletes, TableChange, TableRef
from headwater.files import filesystem, inside
from headwater.lake.counts import Counts

__all__ = ["TakenOut", "Wrote", "delete_files", "read_report", "rows_written", "table_change"]


@dataclass(frozen=True, slots=True)
class TakenOut:
    """Rows deleted from a live file."""

    deletes: FileDeletes
    rows: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """A new data file."""

    file: DataFile


def read_report(report: bytes) -> TakenOut | Wrote:
    found = pickle.loads(report)
    assert isinstance(found, TakenOut | Wrote)
    return found


def table_change(
    table: TableRef, reports: Iterable[bytes], ended: Sequence[TakenOut] = ()
) -> tuple[TableChange, Counts]:
    """What these reports, and files that `ended` with a TRUNCATE, change in a table."""
    found = [read_report(report) for report in reports]
    wrote = [each for each in found if isinstance(each, Wrote)]
    taken = [*(each for each in found if isinstance(each, TakenOut)), *ended]
    updated = sum(each.file.rows for each in wrote if each.file.has_row_ids)
    inserted = sum(each.file.rows for each in wrote if not each.file.has_row_ids)
    change = TableChange(table, tuple(each.file for each in wrote), tuple(each.deletes for each in taken))
    return change, Counts(inserted=inserted, updated=updated, deleted=sum(each.rows for each in taken) - updated)


def rows_written(reports: Iterable[bytes]) -> int:
    return sum(each.file.rows for each in map(read_report, reports) if isinstance(each, Wrote))


def delete_files(folder: str, reports: Iterable[bytes]) -> None:
    """Delete the files of reports that do not land."""
    for report in map(read_report, reports):
        written = report.file if isinstance(report, Wrote) else report.deletes.delete_file
        if written is not None:
            filesystem(folder).delete_file(inside(folder) + written.path)
