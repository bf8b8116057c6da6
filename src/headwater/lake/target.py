"""What Spark's workers ask of a lake: the one contract between merging and the lakes' own formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Place", "Taken", "Target"]


class Place(Protocol):
    """A file of the lake where rows to be replaced may stand; picklable."""

    @property
    def oid(self) -> int: ...

    @property
    def rows(self) -> int: ...


class Taken(NamedTuple):
    """Rows taken out of one place: which of the positions asked for were alive, their row ids, the lake's note."""

    alive: pa.Array  # boolean, one for each position asked for
    row_ids: pa.Array  # of those alive
    report: bytes


PlaceT_contra = TypeVar("PlaceT_contra", bound=Place, contravariant=True)


class Target(Protocol[PlaceT_contra]):
    """What a lake does inside Spark's workers. Picklable; reports are its own notes, carried to its commit unread."""

    @property
    def source(self) -> str:
        """Whose tables these are: several pipelines may share a lake, and its quarantine."""
        ...

    def keys(self, place: PlaceT_contra) -> Iterator[tuple[int, list[pa.Array]]]:
        """The key columns of a file, in pieces: the position of a piece's first row, and its columns."""
        ...

    def gone(self, place: PlaceT_contra) -> npt.NDArray[np.int64]:
        """Positions of rows that were taken out of the file before."""
        ...

    def rows(self, place: PlaceT_contra, positions: pa.Array) -> pa.Table:
        """The rows at these ascending positions, as the table's newest shape has them."""
        ...

    def take_out(self, place: PlaceT_contra, positions: pa.Array) -> Taken | None:
        """Delete rows at these ascending positions, visible only after the commit; None if none was alive."""
        ...

    def write(self, oid: int, rows: Iterable[tuple[pa.Table, pa.Array | None]]) -> list[bytes]:
        """Write rows as data files, visible only after the commit. Row ids come with rows that replace older ones.

        A negative `oid` means the values of that table that found no place, 0 the quarantine as a whole.
        """
        ...
