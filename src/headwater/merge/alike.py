"""Tables that are alike: a pass over the rows of all of them costs little more than one over those of a single one.

A delivery of few changes to many tables is nothing but small arrays, each of which costs Arrow and numpy as much as a
large one. So a task takes tables with the same columns and the same key together. What fails together is done once
more for each table alone, so that only the one at fault fails, and with its own message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np

from headwater.merge.mirror import Mirror
from headwater.merge.reader import ChangeReader, Reads

__all__ = ["FEW_BYTES", "FEW_ROWS", "TABLES_AT_ONCE", "alike"]

FEW_ROWS, FEW_BYTES = 10_000, 1 << 20  # of a table that is done together with others
TABLES_AT_ONCE = 100
WAITING_BYTES = 16 << 20  # of reads that wait for others like them


def alike(reader: ChangeReader, reads: Iterable[Reads], can_wait: Callable[[Mirror], bool]) -> Iterator[Reads]:
    """Reads of tables that are alike together, unless they are too large to wait for each other."""
    waiting: list[Reads] = []
    held = 0
    for read in reads:
        large = _large(read, can_wait)
        yield from (read.only([number]) for number in large)
        if len(large) == len(read.tables):
            continue
        waiting.append(read.only([number for number in range(len(read.tables)) if number not in large]))
        held += waiting[-1].rows.nbytes
        if held > WAITING_BYTES:
            yield from _by_layout(reader, waiting)
            waiting, held = [], 0
    if waiting:
        yield from _by_layout(reader, waiting)


def _large(reads: Reads, can_wait: Callable[[Mirror], bool]) -> Sequence[int]:
    """The tables that are not done together with others."""
    rows, size = np.bincount(reads.of, minlength=len(reads.tables)), reads.rows.nbytes
    few = rows <= FEW_ROWS
    if size > FEW_BYTES:  # of a table's rows, no more is known than their number
        few &= rows * (size / len(reads.of)) <= FEW_BYTES
    return [
        number
        for number, (mirror, _) in enumerate(reads.tables)
        if rows[number] and not (few[number] and can_wait(mirror))
    ]


def _by_layout(reader: ChangeReader, waiting: Sequence[Reads]) -> Iterator[Reads]:
    whole = Reads.joined(waiting)
    layouts: dict[int, Hashable] = {}
    tables: defaultdict[Hashable, list[int]] = defaultdict(list)
    for number in np.unique(whole.of).tolist():
        mirror, version = whole.tables[number]
        if version not in layouts:  # a table has one in every segment
            layouts[version] = reader.layout(mirror, version)
        tables[layouts[version]].append(number)
    yield from map(whole.only, tables.values())
