"""The rows of a mirror, as a plan on its lake has them: all of them, or those of some keys. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.casting import fitted
from headwater.lake.target import Place, Target
from headwater.merge.mirror import MirrorColumn
from headwater.values.keys import known_by
from headwater.values.keyset import KeySet
from headwater.values.types import LakeType

__all__ = ["MirrorRows", "ScanUnit"]

PIECE = 122_880  # rows that a scan reads at once: a row group of the files that we write


@dataclass(frozen=True, slots=True, eq=False)
class MirrorRows:
    """The files of a mirror; `key` are the types of the columns that its target knows rows by."""

    target: Target[Any]
    places: tuple[Place, ...]
    key: tuple[LakeType, ...]

    def find(self, keys: pa.Array, columns: Sequence[MirrorColumn]) -> tuple[pa.Array, pa.Table]:
        """Those of these keys that the mirror has, and the columns of their rows.

        The newest files come first: what a delivery has just changed is in them, and others need not be opened.
        """
        schema = pa.schema([(each.name, each.kind.arrow) for each in columns])
        left, found, rows = keys.unique(), [pa.array([], keys.type)], [schema.empty_table()]
        for place in reversed(self.places):
            if not len(left):
                break
            here, at = self._search(place, KeySet(left))
            if len(here):
                found.append(here)
                rows.append(_fitted(self.target.rows(place, at, schema.names), schema))
                left = left.filter(pc.invert(pc.is_in(left, value_set=here)))
        return pa.concat_arrays(found), pa.concat_tables(rows)

    def _search(self, place: Place, wanted: KeySet) -> tuple[pa.Array, pa.Array]:
        """The keys that a file has of those that are looked for, and where."""
        keys, positions = [pa.array([], pa.binary())], [np.empty(0, np.int64)]
        for first, columns in self.target.keys(place):
            here = known_by(columns, self.key)
            hits = wanted.among(here)
            keys.append(here.take(pa.array(hits)))
            positions.append(hits + first)
        at, found = np.concatenate(positions), pa.concat_arrays(keys)
        alive = pa.array(~np.isin(at, self.target.gone(place))) if len(at) else pa.array([], pa.bool_())
        return found.filter(alive), pa.array(at).filter(alive)


@dataclass(frozen=True, slots=True, eq=False)
class ScanUnit:
    """The rows in a file of the mirror, as events of `headwater.route.units.EventUnit`: upserts at one position."""

    target: Target[Any]
    place: Place
    position: int

    @property
    def rows(self) -> int:
        return self.place.rows

    @property
    def bytes(self) -> int:
        return self.place.rows

    def read(self, columns: Sequence[MirrorColumn], of_deletes: Sequence[MirrorColumn]) -> Iterator[pa.Table]:  # noqa: ARG002
        schema = pa.schema([(each.name, each.kind.arrow) for each in columns])
        alive = np.setdiff1d(np.arange(self.place.rows), self.target.gone(self.place), assume_unique=True)
        for first in range(0, self.place.rows, PIECE):
            here = alive[np.searchsorted(alive, first) : np.searchsorted(alive, first + PIECE)]
            if len(here):
                rows = _fitted(self.target.rows(self.place, pa.array(here), schema.names), schema)
                rows = rows.add_column(0, "_upsert", pa.repeat(pa.scalar(True), len(here)))
                yield rows.add_column(0, "_position", pa.repeat(pa.scalar(self.position, pa.int64()), len(here)))


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([fitted(rows[each.name], each.type) for each in schema], schema=schema)
