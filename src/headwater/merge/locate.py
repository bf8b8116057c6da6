"""The third kind of task: search the lake's files for the rows that a batch replaces, and delete them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater import failpoints
from headwater.lake.indexes import KeyIndexes, Parts
from headwater.lake.keyindex import Found, KeyIndex, Keys, index_parts, index_schema
from headwater.lake.target import Place, Taken, Target, rows_of
from headwater.merge.alike import FEW_ROWS, TABLES_AT_ONCE
from headwater.merge.batch import Batch
from headwater.merge.exchange import Outgoing, Piece
from headwater.merge.mirror import Mirror
from headwater.merge.outcome import Failed, Failure, Written
from headwater.merge.scratch import Kept, Scratch
from headwater.merge.search import Match, search, valid_keys
from headwater.spark.faults import table_error
from headwater.values.keys import are_numbers, key_bucket, row_bytes
from headwater.values.keyset import KeySet

__all__ = ["LOCATED", "Locate", "Older"]

# A row that was found and taken out.
LOCATED = pa.schema([("bucket", pa.int32()), ("oid", pa.int64()), ("key", pa.binary()), ("row_id", pa.int64())])


class Older(NamedTuple):
    """Rows of the lake that others take values from: their name in the scratch folder."""

    oid: int
    name: str


@dataclass(frozen=True, slots=True)
class Locate:
    """Lake files → where the touched keys' rows are, for their buckets; those rows are taken out on the way.

    All files of a table without a key are in one unit: as many rows go as were deleted, whichever they are.
    """

    batch: Batch
    target: Target[Any]
    room: Scratch
    placed: Mapping[int, tuple[int, ...]]
    kept: tuple[Kept, ...]
    based: frozenset[int]  # tables in which rows take values from those they replace
    indexes: KeyIndexes | None = None  # of the keys of large files

    def only(self, placed: Mapping[int, tuple[int, ...]]) -> Locate:
        """The same for these tables, with what they need."""
        kept = tuple(each for each in self.kept if each.oid in placed)
        batch, target = self.batch.only(placed.keys()), self.target.only(placed.keys())
        return Locate(batch, target, self.room, placed, kept, self.based & placed.keys(), self.indexes)

    def __call__(self, places: tuple[Place, ...]) -> Iterator[Piece | Older | Written | Failed]:
        outgoing = Outgoing(self.room)
        for found in self.found(places):
            if isinstance(found, pa.RecordBatch):
                yield from outgoing.add(found)
            else:
                yield found
        yield from outgoing.flush()

    def found(self, places: tuple[Place, ...]) -> Iterator[pa.RecordBatch | Older | Written | Failed]:
        tables = {oid: tuple(mine) for oid, mine in groupby(sorted(places, key=_table_of), _table_of)}
        with self.target.searching(places):
            for oids in self._alike(tables):
                try:
                    matches = self._matches_of_all(oids, tables) if len(oids) > 1 else None
                except Exception:  # of some table: alone, it will say what
                    matches = None
                if matches is not None:
                    yield from self._taken(oids, matches)
                    continue
                for oid in oids:
                    try:
                        yield from self._searched(tables[oid], self._wanted(oid))  # one key set at a time
                    except Exception as error:
                        yield Failed(oid, Failure.of(table_error(error)))

    def _alike(self, tables: Mapping[int, Sequence[Place]]) -> Iterator[Sequence[int]]:
        """The tables to search; together those that have few rows, and keys of the same types."""
        alike: defaultdict[Hashable, list[int]] = defaultdict(list)
        for oid, places in tables.items():
            mirror, rows = self.batch.mirrors[oid], sum(each.rows for each in places)
            if mirror.key and oid not in self.based and rows <= FEW_ROWS and len(self.placed[oid]) == 1:
                alike[tuple(mirror.key_types)].append(oid)
            else:
                yield (oid,)
        for oids in alike.values():
            yield from (oids[first : first + TABLES_AT_ONCE] for first in range(0, len(oids), TABLES_AT_ONCE))

    def _matches_of_all(
        self, oids: Sequence[int], tables: Mapping[int, Sequence[Place]]
    ) -> Mapping[int, Sequence[Match]]:
        places = [place for oid in oids for place in tables[oid]]
        touched: dict[int, list[pa.Array]] = {oid: [] for oid in oids}
        for each in self.kept:
            if each.oid in touched:
                touched[each.oid].append(self.room.touched(each))
        found = search(self.target, places, self.batch.mirrors[oids[0]].key_types, touched)
        return {oid: tuple(mine) for oid, mine in groupby(found, lambda match: _table_of(match.place))}

    def _taken(
        self, oids: Sequence[int], matches: Mapping[int, Sequence[Match]]
    ) -> Iterator[pa.RecordBatch | Written | Failed]:
        """Take out what was found in these tables; one record batch tells of all of it."""
        found: list[tuple[int, pa.Array, Taken]] = []
        for oid in oids:
            mine: list[tuple[int, pa.Array, Taken]] = []
            try:
                for place, at, keys in matches.get(oid, ()):
                    taken = self.target.take_out(place, pa.array(at))
                    if taken is not None:
                        yield Written(rows_of(oid), taken.report)
                        mine.append((oid, keys, taken))
                    failpoints.hit("deliver.located", self.batch.mirrors[oid].name)
            except Exception as error:
                yield Failed(oid, Failure.of(table_error(error)))
            else:
                found += mine
        if found:
            yield self._located(found)

    def _located(self, found: Sequence[tuple[int, pa.Array, Taken]]) -> pa.RecordBatch:
        oids = np.repeat([oid for oid, _, _ in found], [len(taken.row_ids) for *_, taken in found])
        alive = pa.concat_arrays([taken.alive for *_, taken in found])
        keys = pa.concat_arrays([keys for _, keys, _ in found]).filter(alive)
        first = {oid: self.placed[oid][0] for oid, _, _ in found}  # one with several is not searched with others
        return _located(
            np.array([first[oid] for oid in oids.tolist()], np.int32),
            oids,
            keys,
            pa.concat_arrays([taken.row_ids for *_, taken in found]),
        )

    def _searched(self, places: Iterable[Place], wanted: _Wanted) -> Iterator[pa.RecordBatch | Older | Written]:
        for place in places:
            yield from self._search(place, wanted)
            failpoints.hit("deliver.located", wanted.mirror.name)

    def _search(self, place: Place, wanted: _Wanted) -> Iterator[pa.RecordBatch | Older | Written]:
        oid = wanted.mirror.oid
        buckets = np.array(self.placed[oid], np.int32)
        at, found, row_ids = self._matches(place, wanted)
        if wanted.left is not None:
            at, found = wanted.take(at, found, self.target.gone(place))
        taken = self.target.take_out(place, pa.array(at), row_ids)
        if taken is None:
            return
        yield Written(rows_of(oid), taken.report)  # first: what fails after it knows what to delete
        at, found = at[taken.alive.to_numpy(zero_copy_only=False)], found.filter(taken.alive)
        if wanted.left is None:
            oids = np.full(len(found), oid)
            yield _located(buckets[key_bucket(found, len(buckets))], oids, found, taken.row_ids)
        if wanted.bases is not None:
            yield from self._older(place, at, found, wanted)

    def _matches(self, place: Place, wanted: _Wanted) -> Found:
        """The rows of a file that have one of the keys, whether they are still there or not."""
        index = self._index(place, wanted)
        if index is not None:
            return index.among(wanted.keys)
        positions, keys = [], []
        for at, here in self._keys(place, wanted):
            hits = wanted.keys.among(here)
            positions.append(at[hits])
            keys.append(here.take(pa.array(hits)))
        return Found(np.concatenate(positions), pa.concat_arrays(keys), None)

    def _index(self, place: Place, wanted: _Wanted) -> KeyIndex | None:
        if self.indexes is None or wanted.left is not None or not self.indexes.may_have(place.rows):
            return None
        identity = self.target.identity(place)
        if identity is None:
            return None

        def parts() -> Parts:
            ids = self.target.row_ids(place)
            schema = index_schema(numbers=are_numbers(wanted.mirror.key_types), row_ids=ids is not None)
            return schema, index_parts(self._keys(place, wanted), ids, schema)

        make = parts if self.indexes.worth_making(place.rows, len(wanted.keys)) else None
        return self.indexes.get(f"{identity} {wanted.mirror.key_types}", place.rows, make)

    def _keys(self, place: Place, wanted: _Wanted) -> Keys:
        for first, columns in self.target.keys(place):
            at, here = wanted.keys_of(columns)
            yield at + first, here

    def _older(self, place: Place, at: np.ndarray, found: pa.Array, wanted: _Wanted) -> Iterator[Older]:
        needed = pc.is_in(found, value_set=wanted.bases)
        if pc.any(needed).as_py():
            rows = self.target.rows(place, pa.array(at).filter(needed))
            name = self.room.keep_rows(rows.append_column("key", found.filter(needed).cast(pa.binary())))
            yield Older(wanted.mirror.oid, name)

    def _wanted(self, oid: int) -> _Wanted:
        mine = [each for each in self.kept if each.oid == oid]
        keys = pa.concat_arrays([self.room.touched(each) for each in mine])
        mirror = self.batch.mirrors[oid]
        if not mirror.key:
            counts = keys.value_counts()
            left = dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))
            return _Wanted(mirror, KeySet(counts.field("values")), None, left)
        bases = [self.room.upserts(each)["base"].drop_null() for each in mine] if oid in self.based else None
        return _Wanted(mirror, KeySet(keys), bases and pa.concat_arrays(bases), None)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The keys looked for in a table's files; of a table without a key, how many more rows of each must go."""

    mirror: Mirror
    keys: KeySet
    bases: pa.Array | None
    left: dict[bytes, int] | None

    def keys_of(self, columns: Sequence[pa.Array]) -> tuple[np.ndarray, pa.Array]:
        """The keys of a file's rows, and where these rows are."""
        kinds = self.mirror.key_types
        if self.left is not None:
            whole = [array.cast(kind.arrow) for array, kind in zip(columns, kinds, strict=True)]
            return np.arange(len(whole[0])), row_bytes(whole)
        return valid_keys(columns, kinds)

    def take(self, at: np.ndarray, found: pa.Array, gone: np.ndarray) -> tuple[np.ndarray, pa.Array]:
        """Among rows that are still there, as many of each as must go."""
        assert self.left is not None
        chosen = []
        for index in np.flatnonzero(~np.isin(at, gone)).tolist():
            key = found[index].as_py()
            if self.left[key] > 0:
                self.left[key] -= 1
                chosen.append(index)
        return at[chosen], found.take(pa.array(chosen, pa.int64()))


def _located(buckets: np.ndarray, oids: np.ndarray, key: pa.Array, row_id: pa.Array) -> pa.RecordBatch:
    columns = [pa.array(buckets, pa.int32()), pa.array(oids, pa.int64()), key.cast(pa.binary()), row_id]
    return pa.record_batch(columns, schema=LOCATED)


def _table_of(place: Place) -> int:
    assert place.oid is not None, "files of the quarantine are for Resolve"
    return place.oid
