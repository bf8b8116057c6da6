"""What a route reads of the log: both images of every change, in the order in which the changes were made.

An insert is an upsert, a delete a delete; an update is a delete of its old image and an upsert of its new one. Nothing
is folded here: a change may move a row from one destination to another, and each destination folds its own share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.change import Relation
from headwater.errors import TableError
from headwater.merge.mirror import Mirror, MirrorColumn
from headwater.merge.mirrorrows import MirrorRows
from headwater.merge.net import INSERT
from headwater.merge.reader import Read
from headwater.merge.rows import columns_in, missing, unfit_key
from headwater.merge.staged import Segment, StagedChanges
from headwater.merge.tuples import UNCHANGED, Cells, Split, split
from headwater.values.decode import decode
from headwater.values.keys import key_bytes

__all__ = ["ImageUnit"]

_Rows = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ImageUnit:
    """A table's changes in some segments, as events of `headwater.route.units.EventUnit`.

    An event's position is the first that includes its transaction. `table` has the columns and the source's key as
    they are at the end of the batch; `key` is what destinations know rows by. A value that does not fit its column's
    lake type is NULL, as it is in the mirror, whose quarantine has it; in a key it is an error.

    `lake` are the mirror's rows at the end of the batch. TOASTed values that an update left alone, and that its old
    tuple does not have, are taken from there: the last image of a row has just these. An earlier image may lack them,
    or get later ones, which does not matter: in no destination is it the last event of its key.
    """

    changes: StagedChanges
    segments: tuple[Segment, ...]
    table: Mirror
    key: tuple[str, ...]
    rows: int
    bytes: int
    lake: MirrorRows | None

    def read(self, columns: Sequence[MirrorColumn], of_deletes: Sequence[MirrorColumn]) -> Iterator[pa.Table]:
        for read in (
            each for reads in self.changes.read(self.segments, {self.table.oid: self.table}) for each in reads.each()
        ):
            images = _Images.of(self, read, (*columns, *of_deletes))
            if len(images.parts.new.rows):
                yield images.upserts(columns)
            if len(images.gone):
                yield images.deletes(columns, {each.name for each in of_deletes})


@dataclass(frozen=True, slots=True, eq=False)
class _Images:
    """The images in the messages of one relation version."""

    unit: ImageUnit
    read: Read
    relation: Relation
    places: Mapping[str, int]
    parts: Split

    @classmethod
    def of(cls, unit: ImageUnit, read: Read, columns: Sequence[MirrorColumn]) -> _Images:
        relation = unit.changes.relations[read.version]
        known_by = unit.table.key_columns if unit.lake else ()
        wanted = tuple({each.name: each for each in (*columns, *known_by)}.values())
        places = columns_in(replace(unit.table, columns=wanted), relation)
        parts = split(read.rows["message"].combine_chunks(), len(relation.columns), places.values())
        if relation.identity == "f" and np.count_nonzero(parts.whole) < np.count_nonzero(parts.op != INSERT):
            raise TableError(
                f"a change of table {unit.table.name} comes without the whole old row, though its replica identity is"
                " FULL",
                hint="so must be that of each of its partitions; then seed the route again: `headwater route seed`",
            )
        return cls(unit, read, relation, places, parts)

    @property
    def gone(self) -> _Rows:
        """The messages that end a row, or an image of it."""
        return np.flatnonzero(self.parts.op != INSERT)

    def upserts(self, columns: Sequence[MirrorColumn]) -> pa.Table:
        found, holes = [], dict[str, _Mask]()
        for column in columns:
            cells = self._new(column)
            found.append(self._decoded(column, cells, len(self.parts.new.rows)))
            if cells is not None and (cells.kind == UNCHANGED).any():
                holes[column.name] = cells.kind == UNCHANGED
        rows = dict(zip((each.name for each in columns), found, strict=True))
        if holes and self.unit.lake is not None:
            rows |= self._filled(self.unit.lake, [each for each in columns if each.name in holes], rows, holes)
        return self._events(self.parts.new.rows, rows, columns, upsert=True)

    def deletes(self, columns: Sequence[MirrorColumn], of_deletes: set[str]) -> pa.Table:
        """Without an old tuple, neither the key nor what it is routed by has changed: the new one has them, too."""
        parts, gone = self.parts, self.gone
        at = np.empty(len(parts.op), np.int64)
        at[parts.new.rows] = np.arange(len(parts.new.rows))
        at[parts.old.rows] = len(parts.new.rows) + np.arange(len(parts.old.rows))
        rows = {}
        for column in columns:
            if column.name not in of_deletes:
                rows[column.name] = pa.nulls(len(gone), column.kind.arrow)
                continue
            new = self._new(column)
            if new is not None:
                old = parts.old.cells[self.places[column.name]]
                texts = pa.concat_arrays([new.text, old.text]).take(pa.array(at[gone]))
                new = Cells(texts, np.concatenate([new.kind, old.kind])[at[gone]])
            rows[column.name] = self._decoded(column, new, len(gone))
        return self._events(gone, rows, columns, upsert=False)

    def _new(self, column: MirrorColumn) -> Cells | None:
        """A column of the new tuples; None if this version does not have it yet."""
        index = self.places.get(column.name)
        return None if index is None else self.parts.values(index, in_key=self.relation.columns[index].key)

    def _decoded(self, column: MirrorColumn, cells: Cells | None, rows: int) -> pa.Array:
        if cells is None:
            return missing(column, rows)
        decoded = decode(cells.text, column.kind)
        if decoded.bad and column.name in self.unit.key:
            raise unfit_key(self.unit.table.name, column.name, column.kind, decoded.bad[0])
        return decoded.array

    def _filled(
        self,
        lake: MirrorRows,
        columns: Sequence[MirrorColumn],
        rows: Mapping[str, pa.Array],
        holes: Mapping[str, _Mask],
    ) -> dict[str, pa.Array]:
        """The columns with what the mirror has, where the messages have nothing."""
        lacking = pa.array(np.any(list(holes.values()), axis=0))
        key = self.unit.table.key_columns
        values = [self._decoded(each, self._new(each), len(self.parts.new.rows)) for each in key]
        keys = key_bytes([each.filter(lacking) for each in values], self.unit.table.key_types)
        known, found = lake.find(keys, columns)
        places = np.full(len(lacking), -1)
        places[lacking.to_numpy(zero_copy_only=False)] = pc.index_in(keys, value_set=known).fill_null(-1).to_numpy()
        return {each.name: _patched(rows[each.name], found[each.name], holes[each.name], places) for each in columns}

    def _events(
        self, at: _Rows, rows: Mapping[str, pa.Array], columns: Sequence[MirrorColumn], *, upsert: bool
    ) -> pa.Table:
        commits = self.read.rows["commit_lsn"].to_numpy()[at]
        head = {
            "_position": pa.array(commits + 1),
            "_upsert": pa.repeat(pa.scalar(upsert), len(at)),
            "_seq": pa.array(self.read.rows["seq"].to_numpy()[at]),
        }
        return pa.table({**head, **{each.name: rows[each.name] for each in columns}})


def _patched(array: pa.Array, found: pa.ChunkedArray, holes: _Mask, places: _Rows) -> pa.Array:
    """The array with found values in its holes, by their places; -1: there is none."""
    at = np.arange(len(array))
    at[holes] = np.where(places[holes] < 0, -1, len(array) + places[holes])
    both = pa.concat_arrays([array, found.combine_chunks().cast(array.type)])
    return both.take(pa.array(at, mask=at < 0))
