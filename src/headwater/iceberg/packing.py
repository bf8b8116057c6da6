"""Which data files of a table are worth writing again, and which of them together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.iceberg.model import LiveFile, Partition

__all__ = ["FILE_BYTES", "FILE_ROWS", "FULL", "Bin", "packed"]

FILE_BYTES = 64 << 20  # of a file that is full; a worker sorts the rows of a bin in memory
FILE_ROWS = 1_000_000
FULL = "-full"  # in the name of a file that is small only because its rows are so much alike
MANY_DELETES = 0.2  # of a file's rows: it is worth writing again, even alone
ENOUGH_FILES = 5  # of about one size
TIER = 8  # how much larger the files of the next size are: a row is written again only a few times in its life

Order = Callable[[LiveFile], Any]  # by which files with neighbouring keys are next to each other


@dataclass(frozen=True, slots=True)
class Bin:
    """Files of one partition that become one."""

    files: tuple[LiveFile, ...]

    @property
    def spec_id(self) -> int:
        return self.files[0].spec_id

    @property
    def partition(self) -> Partition:
        return self.files[0].partition

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)


def packed(files: Iterable[LiveFile], order: Order) -> list[Bin]:
    """Bins of small files and of files with many deletes; partitions and their specs are never mixed."""
    partitions: defaultdict[tuple[int, Partition], list[LiveFile]] = defaultdict(list)
    for each in files:
        partitions[each.spec_id, each.partition].append(each)
    return [found for group in partitions.values() for found in _bins(sorted(_worth(group), key=order))]


def _worth(files: Sequence[LiveFile]) -> list[LiveFile]:
    tiers: defaultdict[int, list[LiveFile]] = defaultdict(list)
    for each in files:
        if _filled(each) < 0.5:
            tiers[_tier(each)].append(each)
    small = [each for tier in tiers.values() if len(tier) >= ENOUGH_FILES for each in tier if not _worn(each)]
    return [*filter(_worn, files), *small]


def _bins(files: Iterable[LiveFile]) -> Iterator[Bin]:
    held: list[LiveFile] = []
    for each in files:
        if held and sum(map(_filled, held)) + _filled(each) > 1:
            yield from _bin(held)
            held = []
        held.append(each)
    yield from _bin(held)


def _bin(files: list[LiveFile]) -> Iterator[Bin]:
    if len(files) > 1 or any(map(_worn, files)):
        yield Bin(tuple(files))


def _worn(file: LiveFile) -> bool:
    return file.deleted > 0 and file.deleted >= MANY_DELETES * file.rows


def _filled(file: LiveFile) -> float:
    """How much of a full file the rows make that it still has."""
    if file.path.endswith(f"{FULL}.parquet"):
        return 1.0
    alive = max(file.rows - file.deleted, 0) / max(file.rows, 1)
    return max(file.size / FILE_BYTES, file.rows / FILE_ROWS) * alive


def _tier(file: LiveFile) -> int:
    filled, tier = _filled(file), 0
    while filled < 0.5 / TIER and tier < 3:  # the smallest are of one size, whatever they are
        filled, tier = filled * TIER, tier + 1
    return tier
