"""How much of a backlog is planned at once, and how files are divided into units: decided from numbers alone."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headwater.ducklake.inlined import InlinedTable
from headwater.ducklake.url import LakeUrl
from headwater.feed.inlined import INLINED_ROW, InlinedUnit
from headwater.feed.spans import NEVER, Moment, Span
from headwater.feed.stored import StoredFile
from headwater.feed.units import FileUnit
from headwater.files import S3

__all__ = ["Bound", "Weights", "file_units", "inlined_units"]


@dataclass(frozen=True, slots=True)
class Bound:
    """At most so many events, and so many bytes to read for them."""

    rows: int
    bytes: int


class Weights:
    """About how many events are in each of the retained snapshots; those of an expired one belong to the next."""

    def __init__(self, snapshots: Sequence[int]) -> None:
        self._snapshots = snapshots
        self._rows = Counter[int]()
        self._bytes = Counter[int]()

    def add(self, snapshot: int, rows: int, size: int) -> None:
        place = bisect_left(self._snapshots, snapshot)
        self._rows[place] += rows
        self._bytes[place] += size

    def fit(self, most: Bound) -> bool:
        return self._rows.total() <= most.rows and self._bytes.total() <= most.bytes

    def last(self, most: Bound) -> int:
        """The last snapshot up to which they fit; the first of all if not even that one does."""
        rows = size = 0
        for place in range(len(self._snapshots)):
            rows, size = rows + self._rows[place], size + self._bytes[place]
            if rows > most.rows or size > most.bytes:
                return self._snapshots[max(place - 1, 0)]
        return self._snapshots[-1]


def file_units(files: Iterable[StoredFile], span: Span | Moment, most: Bound, s3: S3 | None) -> Iterator[FileUnit]:
    """The units of these files; a large one is divided."""
    for file in files:
        rows = file.rows if isinstance(span, Moment) else file.events_in(span)
        if not rows:
            continue
        size = min(file.size, math.ceil(file.size * rows / max(file.rows, 1)))
        parts = max(math.ceil(rows / most.rows), math.ceil(size / most.bytes), 1)
        step = math.ceil(file.rows / parts)
        for part in range(parts):
            last = NEVER if part == parts - 1 else (part + 1) * step
            yield FileUnit(file, span, part * step, last, math.ceil(rows / parts), math.ceil(size / parts), s3)


def inlined_units(
    url: LakeUrl, counts: Iterable[tuple[InlinedTable, int]], span: Span | Moment, most: Bound
) -> Iterator[InlinedUnit]:
    """The units of tables of the catalog, with so many rows each; a large one is divided."""
    for table, count in counts:
        parts = max(math.ceil(count / most.rows), math.ceil(count * INLINED_ROW / most.bytes))
        rows = math.ceil(count / parts) if parts else 0
        for part in range(parts):
            yield InlinedUnit(url, table, span, count, rows, rows * INLINED_ROW, part, parts)
