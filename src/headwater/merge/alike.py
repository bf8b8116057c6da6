"""Tables that are alike: a pass over the rows of all of them costs little more than one over those of a single one.

A delivery of few changes to many tables is nothing but small arrays, each of which costs Arrow and numpy as much as a
large one. So a task takes tables with the same columns and the same key together. What fails together is done once
more for each table alone, so that only the one at fault fails, and with its own message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator

from headwater.merge.reader import ChangeReader, Read

__all__ = ["FEW_BYTES", "FEW_ROWS", "TABLES_AT_ONCE", "alike"]

FEW_ROWS, FEW_BYTES = 10_000, 1 << 20  # of a table that is done together with others
TABLES_AT_ONCE = 100
WAITING_BYTES = 16 << 20  # of reads that wait for others like them


def alike(reader: ChangeReader, reads: Iterable[Read], can_wait: Callable[[Read], bool]) -> Iterator[tuple[Read, ...]]:
    """Reads of tables that are alike together, unless they are too large to wait for each other."""
    waiting: defaultdict[Hashable, list[Read]] = defaultdict(list)
    held = 0
    for read in reads:
        if not can_wait(read):
            yield (read,)
            continue
        waiting[reader.layout(read.mirror, read.version)].append(read)
        held += read.rows.nbytes
        if held > WAITING_BYTES:
            yield from map(tuple, waiting.values())
            waiting.clear()
            held = 0
    yield from map(tuple, waiting.values())
