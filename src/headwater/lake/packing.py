"""Which data files of a table are worth writing again, and which of them together; decided from numbers alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

__all__ = ["ENOUGH_FILES", "FILE_BYTES", "FILE_ROWS", "FULL", "MERGED_BYTES", "Packable", "is_small", "packed"]

FILE_BYTES = 64 << 20  # of a file that is full; a worker sorts the rows of a bin in memory
FILE_ROWS = 1_000_000
FULL = "-full"  # in the name of a file that is small only because its rows are so much alike
MERGED_BYTES = 128 << 20  # of rows that are held in memory to be sorted
MANY_DELETES = 0.2  # of a file's rows: it is worth writing again, even alone
ENOUGH_FILES = 5  # of about one size
TIER = 8  # how much larger the files of the next size are: a row is written again only a few times in its life


class Packable(Protocol):
    """A data file; of its `rows`, so many are `deleted`."""

    @property
    def path(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def deleted(self) -> int: ...
    @property
    def size(self) -> int: ...


F = TypeVar("F", bound=Packable)


def packed(
    files: Iterable[F], group: Callable[[F], Hashable], order: Callable[[F], Any]
) -> Iterator[tuple[Hashable, tuple[F, ...]]]:
    """Small files, and files with many deletes, that become one; groups such as partitions are never mixed.

    `order` puts files with neighbouring keys next to each other.
    """
    groups: defaultdict[Hashable, list[F]] = defaultdict(list)
    for each in files:
        groups[group(each)].append(each)
    for key, members in groups.items():
        for found in _bins(sorted(_worth(members), key=order)):
            yield key, found


def _worth(files: Sequence[F]) -> list[F]:
    tiers: defaultdict[int, list[F]] = defaultdict(list)
    for each in files:
        if is_small(each):
            tiers[_tier(each)].append(each)
    small = [each for tier in tiers.values() if len(tier) >= ENOUGH_FILES for each in tier if not _worn(each)]
    return [*filter(_worn, files), *small]


def is_small(file: Packable) -> bool:
    """Whether it is worth merging with others of its size."""
    return _filled(file) < 0.5


def _bins(files: Iterable[F]) -> Iterator[tuple[F, ...]]:
    held: list[F] = []
    for each in files:
        if held and sum(map(_filled, held)) + _filled(each) > 1:
            yield from _bin(held)
            held = []
        held.append(each)
    yield from _bin(held)


def _bin(files: list[F]) -> Iterator[tuple[F, ...]]:
    if len(files) > 1 or any(map(_worn, files)):
        yield tuple(files)


def _worn(file: Packable) -> bool:
    return file.deleted > 0 and file.deleted >= MANY_DELETES * file.rows


def _filled(file: Packable) -> float:
    """How much of a full file the rows make that it still has."""
    if file.path.endswith(f"{FULL}.parquet"):
        return 1.0
    alive = max(file.rows - file.deleted, 0) / max(file.rows, 1)
    return max(file.size / FILE_BYTES, file.rows / FILE_ROWS) * alive


def _tier(file: Packable) -> int:
    filled, tier = _filled(file), 0
    while filled < 0.5 / TIER and tier < 3:  # the smallest are of one size, whatever they are
        filled, tier = filled * TIER, tier + 1
    return tier
