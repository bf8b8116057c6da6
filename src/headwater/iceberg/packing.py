"""Which data files of a table are worth writing again, and which of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headwater.iceberg.model import LiveFile, Partition
from headwater.lake import packing
from headwater.lake.packing import FILE_BYTES, FILE_ROWS, FULL

__all__ = ["FILE_BYTES", "FILE_ROWS", "FULL", "Bin", "packed"]

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
    found = packing.packed(files, lambda each: (each.spec_id, each.partition), order)
    return [Bin(each) for _, each in found]
