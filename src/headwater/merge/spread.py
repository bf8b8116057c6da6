"""Spread the tables of a batch over Spark's tasks, so that one plan serves any number of tables."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

__all__ = ["slots_for", "spread"]

ROWS_PER_SLOT = 250_000  # what a worker folds in memory at once
BYTES_PER_SLOT = 128 << 20
TABLES_PER_SLOT = 8  # of a small batch: a table costs some milliseconds, another task some tens of them
SPLIT_FROM = 20_000  # a smaller table is not worth two files


def slots_for(rows: int, size: int, tables: int, cores: int) -> int:
    """How many tasks a batch is folded in: all cores if it is worth it, more if memory asks for it."""
    if rows < SPLIT_FROM and size < BYTES_PER_SLOT:
        return min(cores, -(-tables // TABLES_PER_SLOT))
    rounds = max(-(-rows // (ROWS_PER_SLOT * cores)), -(-size // (BYTES_PER_SLOT * cores)), 1)
    return cores * rounds


def spread(rows: Mapping[int, int], size: int, slots: int) -> dict[int, tuple[int, ...]]:
    """Give each table one slot, or several if it is large: the key's bucket then chooses among them.

    Largest first onto the least loaded slot; a table's slots are always different ones. `size` is that of all rows,
    in bytes.
    """
    load = [(0, slot) for slot in range(slots)]
    total = max(sum(rows.values()), 1)
    share = max(total / slots, 1)
    placed: dict[int, tuple[int, ...]] = {}
    for table, count in sorted(rows.items(), key=lambda item: (-item[1], item[0])):
        small = count < SPLIT_FROM and count * size < BYTES_PER_SLOT * total
        pieces = 1 if small else min(slots, max(1, round(count / share)))
        taken = [heapq.heappop(load) for _ in range(pieces)]
        for weight, slot in taken:
            heapq.heappush(load, (weight + count // pieces, slot))
        placed[table] = tuple(slot for _, slot in taken)
    return placed
