"""What an Iceberg table holds and what a commit changes in it, as frozen, picklable facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headwater.iceberg.metrics import Metrics

__all__ = ["DELETED_PATH", "DELETED_POSITION", "DeleteFile", "LiveFile", "NewFile", "Partition", "RowNumbers"]

RowNumbers = npt.NDArray[np.int64]  # row numbers in a data file, from 0
Partition = tuple[Any, ...]  # a value for each field of the partition spec, as Iceberg keeps them
DELETED_PATH, DELETED_POSITION = 2147483546, 2147483545  # the field ids of a position delete file


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A live position delete file; `of` is the only data file that it deletes from, None if there may be others."""

    path: str
    rows: int
    of: str | None


@dataclass(frozen=True, slots=True, eq=False)
class LiveFile:
    """A data file that is part of its table now, with the delete files that apply to it.

    `lower` and `upper` are the bounds of its columns by field id, as Iceberg serializes them.
    """

    path: str
    rows: int
    size: int
    spec_id: int = 0
    partition: Partition = ()
    lower: Mapping[int, bytes] = field(default_factory=dict)
    upper: Mapping[int, bytes] = field(default_factory=dict)
    sequence: int = 0  # of the commit that added it: only deletes of that and of later ones apply
    deletes: tuple[DeleteFile, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Its own, and those of its delete files."""
        return (self.path, *(each.path for each in self.deletes))

    @property
    def deleted(self) -> int:
        """How many rows are deleted from it, at most: a delete file of another client may be for many files."""
        return min(self.rows, sum(each.rows for each in self.deletes))


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that was written and that no snapshot has yet: rows, or the positions of rows deleted from `of`."""

    content: Literal["rows", "deletes"]
    path: str
    rows: int
    size: int
    metrics: Metrics
    spec_id: int = 0
    partition: Partition = ()
    of: str = ""
    sorted: bool = False  # by the table's sort order
