"""Spread the tables of a batch over Spark's tasks, so that one plan serves any number of tables."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import NamedTuple

__all__ = ["Size", "buckets_for", "spread"]

ROWS_PER_BUCKET = 250_000  # what a worker folds in memory at once
BYTES_PER_BUCKET = 128 << 20
TABLES_PER_BUCKET = 8  # of a small batch: a table costs some milliseconds, another task some tens of them
SPLIT_FROM = 20_000  # changes: a table with fewer is not worth two files


class Size(NamedTuple):
    """How much is staged for a table: changes, and bytes of their messages."""

    rows: int
    bytes: int

    def small(self, split_from: int) -> bool:
        return self.rows < split_from and self.bytes < BYTES_PER_BUCKET

    @property
    def weight(self) -> int:
        """What it takes of a bucket, in rows or in bytes, whichever is more; whole numbers add up in any order."""
        return max(self.rows * BYTES_PER_BUCKET, self.bytes * ROWS_PER_BUCKET)


def buckets_for(sizes: Collection[Size], cores: int, split_from: int = SPLIT_FROM) -> int:
    """How many tasks a batch is folded in: all cores if it is worth it, more if memory asks for it."""
    total = Size(sum(each.rows for each in sizes), sum(each.bytes for each in sizes))
    if total.small(split_from):
        return min(cores, -(-len(sizes) // TABLES_PER_BUCKET))
    rounds = max(-(-total.rows // (ROWS_PER_BUCKET * cores)), -(-total.bytes // (BYTES_PER_BUCKET * cores)), 1)
    return cores * rounds


def spread(sizes: Mapping[int, Size], buckets: int, split_from: int = SPLIT_FROM) -> dict[int, tuple[int, ...]]:
    """Give each table one bucket, or several if it is large: the key's bucket then chooses among them.

    Largest first onto the least loaded bucket; a table's buckets are always different ones.
    """
    load = [(0, bucket) for bucket in range(buckets)]
    share = max(sum(each.weight for each in sizes.values()) // buckets, 1)
    placed: dict[int, tuple[int, ...]] = {}
    for table, size in sorted(sizes.items(), key=lambda item: (-item[1].weight, item[0])):
        pieces = 1 if size.small(split_from) else min(buckets, max(1, round(size.weight / share)))
        taken = [heapq.heappop(load) for _ in range(pieces)]
        for weight, bucket in taken:
            heapq.heappush(load, (weight + size.weight // pieces, bucket))
        placed[table] = tuple(bucket for _, bucket in taken)
    return placed
