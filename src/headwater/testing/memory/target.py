"""What Spark's workers do in a lake in memory: files travel with their places, and rows in the reports."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.lake.target import Destination, Outcome, PartitionSet, Rows, Taken, each_written
from headwater.testing.memory.lake import File, MemoryColumn

__all__ = ["DeletedRows", "MemoryLanding", "MemoryPlace", "MemoryTarget", "WrittenRows", "read_report"]


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """Implements `headwater.lake.target.Place`."""

    oid: int | None
    file: File

    @property
    def rows(self) -> int:
        return len(self.file.row_ids)


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Report: rows deleted from a file."""

    file: int
    positions: frozenset[int]


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Report: rows, with their ids if they replace older ones."""

    rows: pa.Table
    row_ids: pa.Array | None


def read_report(report: bytes) -> DeletedRows | WrittenRows:
    found = pickle.loads(report)
    assert isinstance(found, DeletedRows | WrittenRows)
    return found


@dataclass(frozen=True, slots=True)
class MemoryLanding:
    """A table to write to: its columns, and the names of those that are the key."""

    columns: tuple[MemoryColumn, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """Implements `headwater.lake.target.Target`."""

    landings: Mapping[int, MemoryLanding]
    quarantine: MemoryLanding
    source: str

    def only(self, tables: Collection[int]) -> MemoryTarget:
        return replace(self, landings={oid: each for oid, each in self.landings.items() if oid in tables})

    def searching(self, places: Collection[MemoryPlace]) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def keys(self, place: MemoryPlace) -> Iterator[tuple[int, list[pa.Array]]]:
        landing = self._landing(place)
        columns = {column.name: column for column in landing.columns}
        shown = place.file.shown(tuple(columns[name] for name in landing.key))
        yield 0, [column.combine_chunks() for column in shown.columns]

    def identity(self, place: MemoryPlace) -> str | None:  # noqa: ARG002
        return None

    def row_ids(self, place: MemoryPlace) -> pa.Array | None:
        return place.file.row_ids

    def gone(self, place: MemoryPlace) -> npt.NDArray[np.int64]:
        return np.array(sorted(place.file.deleted), np.int64)

    def rows(self, place: MemoryPlace, positions: pa.Array, columns: Collection[str] | None = None) -> pa.Table:
        wanted = (each for each in self._landing(place).columns if columns is None or each.name in columns)
        return place.file.shown(tuple(wanted)).take(positions)

    def take_out(
        self,
        place: MemoryPlace,
        positions: pa.Array,
        row_ids: pa.Array | None = None,  # noqa: ARG002
    ) -> Taken | None:
        wanted = positions.to_numpy()
        alive = ~np.isin(wanted, self.gone(place))
        if not alive.any():
            return None
        at = wanted[alive]
        report = pickle.dumps(DeletedRows(place.file.id, frozenset(at.tolist())))
        return Taken(pa.array(alive), place.file.row_ids.take(pa.array(at)), report)

    def partitioned_by(self, oid: int) -> Collection[str]:  # noqa: ARG002
        return ()

    def partitions(self, oid: int, columns: Mapping[str, pa.Array]) -> PartitionSet | None:  # noqa: ARG002
        return None

    def write(self, to: Destination, rows: Iterable[Rows]) -> list[bytes]:
        assert to.part == "quarantine" or to.oid in self.landings
        return [pickle.dumps(WrittenRows(table, row_ids)) for table, row_ids in rows if table.num_rows]

    def write_each(self, shares: Mapping[Destination, Sequence[Rows]]) -> Iterator[tuple[Destination, Outcome]]:
        return each_written(self, shares)

    def _landing(self, place: MemoryPlace) -> MemoryLanding:
        return self.quarantine if place.oid is None else self.landings[place.oid]
