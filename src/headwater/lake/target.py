"""What Spark's workers ask of a lake: the one contract between merging and the lakes' own formats."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pickling import pickled_by_fields

__all__ = [
    "SETTLED",
    "Destination",
    "Outcome",
    "Part",
    "PartitionSet",
    "Place",
    "Reports",
    "Rows",
    "Sought",
    "Taken",
    "Target",
    "each_written",
    "misfits_of",
    "rows_of",
]

Part = Literal["rows", "quarantine"]


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Destination:
    """Where rows are written: to the mirror of a source table, or to the quarantine.

    Rows of the quarantine are values of one table, which land only with that table's rows; without a table, they are
    older values of any table that this delivery settles.
    """

    oid: int | None
    part: Part = "rows"


def rows_of(oid: int) -> Destination:
    """The mirror of a source table."""
    return Destination(oid, "rows")


def misfits_of(oid: int) -> Destination:
    """The quarantine, for values of this table that the lake's types cannot hold."""
    return Destination(oid, "quarantine")


SETTLED = Destination(None, "quarantine")  # older values of any table

Rows = tuple[pa.Table, pa.Array | None]  # with the row ids of those that they replace, if they do

# A lake's own notes about what its workers did, carried to its commit unread.
Reports = Mapping[Destination, list[bytes]]
Outcome = list[bytes] | Exception  # of writing to a table


class Place(Protocol):
    """A file of the lake in which rows to be replaced may stand; picklable."""

    @property
    def oid(self) -> int | None:
        """The source table that it mirrors; None for a file of the quarantine."""
        ...

    @property
    def rows(self) -> int: ...


class PartitionSet(NamedTuple):
    """Partitions of a table, by their values for some of the fields that it is partitioned by."""

    fields: tuple[int, ...]  # their numbers
    values: frozenset[tuple[Any, ...]]

    def has(self, partition: tuple[Any, ...]) -> bool:
        return tuple(partition[field] for field in self.fields) in self.values

    def __or__(self, other: PartitionSet | None) -> PartitionSet | None:
        """Both together; None, which is all partitions, if they are not known alike."""
        if other is None or other.fields != self.fields:
            return None
        return PartitionSet(self.fields, self.values | other.values)


class Sought(NamedTuple):
    """What is known about the keys that are looked for in a table's files; None: nothing."""

    bounds: tuple[int, int] | None = None  # the lowest and highest value of the key's first column
    partitions: PartitionSet | None = None  # in which alone they can be


class Taken(NamedTuple):
    """Rows deleted from one place: which of the positions asked for were alive, their row ids, the lake's report."""

    alive: pa.Array  # boolean, one for each position asked for
    row_ids: pa.Array  # of those alive; null where the lake knows rows by no id
    report: bytes


PlaceT_contra = TypeVar("PlaceT_contra", bound=Place, contravariant=True)


class Target(Protocol[PlaceT_contra]):
    """What a lake does inside Spark's workers. Picklable."""

    @property
    def source(self) -> str:
        """Whose tables these are: several pipelines may share a lake, and its quarantine."""
        ...

    def only(self, tables: Collection[int]) -> Target[PlaceT_contra]:
        """What concerns these tables, by the source's OIDs, and the quarantine: less to send to a worker."""
        ...

    def searching(self, places: Collection[PlaceT_contra]) -> AbstractContextManager[None]:
        """Inside, what is asked about these places shares what it costs to come to them."""
        ...

    def keys(self, place: PlaceT_contra) -> Iterator[tuple[int, list[pa.Array]]]:
        """The key columns of a file, in pieces: the position of a piece's first row, and its columns."""
        ...

    def identity(self, place: PlaceT_contra) -> str | None:
        """What tells `keys` of the file from those of all others, for ever; None for rows that are in no file."""
        ...

    def row_ids(self, place: PlaceT_contra) -> pa.Array | None:
        """The ids that a file has of all its rows; None if they follow from their positions, or the lake knows none."""
        ...

    def gone(self, place: PlaceT_contra) -> npt.NDArray[np.int64]:
        """Positions of rows that were deleted from the file before."""
        ...

    def rows(self, place: PlaceT_contra, positions: pa.Array, columns: Collection[str] | None = None) -> pa.Table:
        """The rows at these ascending positions, with the table's newest columns; with `columns`, these of them."""
        ...

    def take_out(self, place: PlaceT_contra, positions: pa.Array, row_ids: pa.Array | None = None) -> Taken | None:
        """Delete rows at these ascending positions, visible only after the commit; None if none was alive.

        If the rows' ids are known that the file has, they need not be read from it.
        """
        ...

    def partitioned_by(self, oid: int) -> Collection[str]:
        """The columns from whose values it follows in which partition of the table a row is."""
        ...

    def partitions(self, oid: int, columns: Mapping[str, pa.Array]) -> PartitionSet | None:
        """The partitions that rows can be in which have these values in some columns; None if they are too many."""
        ...

    def write(self, to: Destination, rows: Iterable[Rows]) -> list[bytes]:
        """Write rows, visible only after the commit. Row ids come with rows that replace older ones."""
        ...

    def write_each(self, shares: Mapping[Destination, Sequence[Rows]]) -> Iterator[tuple[Destination, Outcome]]:
        """Write few rows to each of many tables, which have the same columns: as `write` does, or its error."""
        ...


def each_written(
    target: Target[Any], shares: Mapping[Destination, Sequence[Rows]]
) -> Iterator[tuple[Destination, Outcome]]:
    """`write_each`, for a lake in which many tables at once cost as much as one after the other."""
    for to, rows in shares.items():
        try:
            yield to, target.write(to, rows)
        except Exception as error:
            yield to, error
