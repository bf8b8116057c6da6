"""Rows on their way from one job's tasks to the buckets of the next: Arrow files in the scratch folder.

Not Spark's shuffle: it takes rows through the JVM one by one, into its own format and back, which took as long as all
the rest of a large batch. A task that Spark runs again writes other files, and only what it reports is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headwater.merge.scratch import Scratch, one_batch

__all__ = ["Outgoing", "Piece", "by_bucket", "incoming"]

HELD_BYTES = 64 << 20  # that a task holds before it writes a file, unless one batch is larger


class Piece(NamedTuple):
    """Rows of one bucket: the record batch with this number in a file."""

    bucket: int
    name: str
    number: int


class Outgoing:
    """What a task has for the buckets, which a column `bucket` names; held until it is worth a file."""

    def __init__(self, room: Scratch, hold: int = HELD_BYTES) -> None:
        self._room = room
        self._hold = hold
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        if self._bytes + batch.nbytes > self._hold:
            yield from self.flush()
        self._held.append(batch)
        self._bytes += batch.nbytes

    def flush(self) -> Iterator[Piece]:
        """Write what is held; to be called at the end, too."""
        parts = dict(_parts(pa.Table.from_batches(self._held))) if self._held else {}
        self._held, self._bytes = [], 0
        if parts:
            name = self._room.keep_parts(list(parts.values()))
            yield from (Piece(bucket, name, number) for number, bucket in enumerate(parts))


def incoming(room: Scratch, pieces: Iterable[Piece], schema: pa.Schema) -> pa.Table:
    """What all tasks had for a bucket."""
    return pa.Table.from_batches([room.part(piece.name, piece.number) for piece in pieces], schema)


def by_bucket(pieces: Iterable[Piece]) -> Mapping[int, tuple[Piece, ...]]:
    found: defaultdict[int, tuple[Piece, ...]] = defaultdict(tuple)
    for piece in pieces:
        found[piece.bucket] += (piece,)
    return found


def _parts(rows: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    buckets = rows["bucket"].to_numpy()
    if (np.diff(buckets) < 0).any():
        order = np.argsort(buckets, kind="stable")
        rows, buckets = rows.combine_chunks().take(pa.array(order)), buckets[order]
    edges = np.flatnonzero(np.diff(buckets, prepend=-1, append=-1)).tolist()
    for first, last in pairwise(edges):
        yield int(buckets[first]), one_batch(rows.slice(first, last - first))
