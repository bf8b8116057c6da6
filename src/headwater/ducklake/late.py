"""Rows that were deleted while their files were being merged: what is deleted from the old files is from the new ones.

Else no file of a table that is updated all over, and all the time, could ever be merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from headwater.ducklake.attempts import attempt_of
from headwater.ducklake.deletes import delete_history, write_delete_file
from headwater.ducklake.mergeable import Bin, MergeableFile
from headwater.ducklake.model import LiveFile, RowNumbers
from headwater.ducklake.replacing import Replacement
from headwater.ducklake.versions import Origins, VersionsFile
from headwater.ducklake.writing import TableFolder

__all__ = ["with_late_deletes"]


def with_late_deletes(
    where: TableFolder, live: Sequence[LiveFile], planned: Sequence[Replacement], inline_limit: int
) -> Iterator[Replacement]:
    """The replacements as they have to be for these live files of the table; not those that cannot be any more.

    Up to so many row numbers of a file go into the catalog, more into a delete file.
    """
    times = Counter(each.id for each in live)
    now = {each.id: each for each in live if times[each.id] == 1}
    for each in planned:
        if not isinstance(each.bin, Bin) or each.bin.ended:
            yield each  # nothing more is deleted there
        elif (found := _brought_up(where, now, each, each.bin, inline_limit)) is not None:
            yield found


def _brought_up(
    where: TableFolder, now: dict[int, LiveFile], planned: Replacement, bin: Bin, inline_limit: int
) -> Replacement | None:
    if not all(file.live.id in now and _readable(now[file.live.id]) for file in bin.files):
        return None
    files = [_at(file, now[file.live.id]) for file in bin.files]
    changed = [number for number, file in enumerate(files) if _deletes(file.live) != _deletes(bin.files[number].live)]
    if not changed:
        return planned
    gone = {number: delete_history(where.files, files[number].live) for number in changed}
    done = replace(planned, bin=replace(bin, files=tuple(files)))
    for number, file in enumerate(planned.files):
        if file.origins is not None:
            late = _late(file.origins, gone)
            if len(late[0]) == file.data.rows:
                return None  # nothing of it is left
            if len(late[0]):
                done = _deleted(where, done, number, late, inline_limit)
    return done


def _deleted(
    where: TableFolder, planned: Replacement, number: int, late: tuple[RowNumbers, RowNumbers], inline_limit: int
) -> Replacement:
    if len(late[0]) <= inline_limit:
        return replace(planned, late={**planned.late, number: late})
    files = list(planned.files)
    file: VersionsFile = files[number]
    written = write_delete_file(where, where.new_name("-delete"), where.path + file.data.path, late)
    files[number] = replace(file, deletes=written)
    return replace(planned, files=tuple(files))


def _late(origins: Origins, gone: dict[int, tuple[RowNumbers, RowNumbers]]) -> tuple[RowNumbers, RowNumbers]:
    """The numbers of rows that are deleted by now, in order, and the snapshot that deleted each."""
    rows, snapshots = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for number, (positions, since) in gone.items():
        of_file = np.flatnonzero(origins[:, 0] == number)
        _, here, there = np.intersect1d(origins[of_file, 1], positions, assume_unique=True, return_indices=True)
        rows.append(of_file[here])
        snapshots.append(since[there])
    found, since = np.concatenate(rows), np.concatenate(snapshots)
    order = np.argsort(found)
    return found[order], since[order]


def _readable(file: LiveFile) -> bool:
    """Another client's delete file may say a wrong snapshot."""
    return file.delete_file is None or bool(attempt_of(file.delete_file.path))


def _at(file: MergeableFile, now: LiveFile) -> MergeableFile:
    live = replace(
        file.live,
        delete_file=now.delete_file,
        inlined_positions=now.inlined_positions,
        inlined_snapshots=now.inlined_snapshots,
    )
    return replace(file, live=live)


def _deletes(file: LiveFile) -> tuple[int | None, int]:
    return (file.delete_file.id if file.delete_file else None), len(file.inlined_positions)
