"""The third kind of task: search the lake's files for the rows that a batch replaces, and delete them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater import failpoints
from headwater.lake.target import Part, Place, Target
from headwater.merge.batch import Batch
from headwater.merge.mirror import Mirror
from headwater.merge.resolve import Resolve
from headwater.merge.scratch import Kept, Scratch
from headwater.spark.faults import table_error
from headwater.values.keys import key_bucket, key_bytes, row_bytes
from headwater.values.keyset import KeySet

__all__ = ["LOCATED", "Locate"]

LOCATED = pa.schema(
    [
        ("bucket", pa.int32()),
        ("oid", pa.int64()),  # null: of the quarantine, or of no table
        ("key", pa.binary()),
        ("row_id", pa.int64()),
        ("report", pa.binary()),
        ("part", pa.string()),  # of the lake that the report is about
        ("rows", pa.string()),  # where rows of the lake lie that others take values from
        ("error", pa.string()),  # what keeps the table from going on
    ]
)


@dataclass(frozen=True, slots=True)
class Locate:
    """Lake files → where the touched keys' rows are; those rows are taken out on the way.

    A unit is a tuple of files to search or, once, the range of all buckets: each is sent a row so that it wakes; and
    once, if there is one, the quarantine.
    All files of a table without a key are in one unit: as many rows go as were deleted, whichever they are.
    """

    batch: Batch
    target: Target[Any]
    room: Scratch
    placed: Mapping[int, tuple[int, ...]]
    kept: tuple[Kept, ...]
    based: frozenset[int]  # tables in which rows take values from those they replace

    def __call__(self, unit: range | Resolve | tuple[Place, ...]) -> Iterator[pa.RecordBatch]:
        if isinstance(unit, range):
            yield _located(np.array(unit, np.int32), None)
            return
        if isinstance(unit, Resolve):
            for report in unit():
                yield _located(np.zeros(1, np.int32), None, report=report, part="quarantine")
            return
        for oid, places in groupby(sorted(unit, key=_table_of), _table_of):
            try:
                yield from self._searched(places, self._wanted(oid))  # one key set at a time
            except Exception as error:
                yield _located(np.array(self.placed[oid], np.int32), oid, error=str(table_error(error)))

    def _searched(self, places: Iterable[Place], wanted: _Wanted) -> Iterator[pa.RecordBatch]:
        for place in places:
            yield from self._search(place, wanted)
            failpoints.hit("deliver.located", wanted.mirror.name)

    def _search(self, place: Place, wanted: _Wanted) -> Iterator[pa.RecordBatch]:
        positions, keys = [], []
        for first, columns in self.target.keys(place):
            at, here = wanted.keys_of(columns)
            hits = wanted.keys.among(here)
            positions.append(at[hits] + first)
            keys.append(here.take(pa.array(hits)))
        oid = wanted.mirror.oid
        buckets = np.array(self.placed[oid], np.int32)
        at, found = np.concatenate(positions), pa.concat_arrays(keys)
        if wanted.left is not None:
            at, found = wanted.take(at, found, self.target.gone(place))
        taken = self.target.take_out(place, pa.array(at))
        if taken is None:
            return
        yield _located(buckets[:1], oid, report=taken.report)  # first: what fails after it knows what to delete
        at, found = at[taken.alive.to_numpy(zero_copy_only=False)], found.filter(taken.alive)
        if wanted.left is None:
            yield _located(buckets[key_bucket(found, len(buckets))], oid, found, taken.row_ids)
        if wanted.bases is not None:
            yield from self._kept_values(place, at, found, wanted.bases, buckets)

    def _kept_values(
        self, place: Place, at: np.ndarray, found: pa.Array, bases: pa.Array, buckets: np.ndarray
    ) -> Iterator[pa.RecordBatch]:
        """Rows that others take values from: every bucket of the table gets to know where they lie."""
        needed = pc.is_in(found, value_set=bases)
        if pc.any(needed).as_py():
            rows = self.target.rows(place, pa.array(at).filter(needed))
            name = self.room.keep_rows(rows.append_column("key", found.filter(needed).cast(pa.binary())))
            yield _located(buckets, place.oid, rows=name)

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
        """The keys of a file's rows, and where these rows are.

        Some may have none: rows that are gone, from before the key was what it is now.
        """
        kinds = self.mirror.key_types
        if self.left is not None:
            whole = [array.cast(kind.arrow) for array, kind in zip(columns, kinds, strict=True)]
            return np.arange(len(whole[0])), row_bytes(whole)
        at = np.arange(len(columns[0]))
        if any(array.null_count for array in columns):
            at = np.flatnonzero(np.all([array.is_valid().to_numpy(zero_copy_only=False) for array in columns], axis=0))
            columns = [array.take(pa.array(at)) for array in columns]
        return at, key_bytes(columns, kinds)

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


def _located(
    buckets: np.ndarray,
    oid: int | None,
    key: pa.Array | None = None,
    row_id: pa.Array | None = None,
    report: bytes | None = None,
    part: Part = "rows",
    rows: str | None = None,
    error: str | None = None,
) -> pa.RecordBatch:
    columns = [
        pa.array(buckets, pa.int32()),
        pa.array([oid] * len(buckets), pa.int64()) if oid is None else pa.array(np.full(len(buckets), oid), pa.int64()),
        pa.nulls(len(buckets), pa.binary()) if key is None else key.cast(pa.binary()),
        pa.nulls(len(buckets), pa.int64()) if row_id is None else row_id,
        pa.array([report] * len(buckets), pa.binary()),
        pa.array([report and part] * len(buckets), pa.string()),
        pa.array([rows] * len(buckets), pa.string()),
        pa.array([error] * len(buckets), pa.string()),
    ]
    return pa.record_batch(columns, schema=LOCATED)


def _table_of(place: Place) -> int:
    assert place.oid is not None, "files of the quarantine are for Resolve"
    return place.oid
