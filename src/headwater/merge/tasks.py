"""What Spark's Python workers do, one picklable callable per kind of task. Record batches in, record batches out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from headwater import failpoints
from headwater.errors import CannotFollow, TableError
from headwater.lake.quarantine import Origin, quarantined
from headwater.lake.target import Place, Target
from headwater.merge.batch import Batch, Mirror, Segment
from headwater.merge.history import history_rows
from headwater.merge.keys import key_bucket, key_bytes, leading_bounds, row_bytes
from headwater.merge.keyset import KeySet
from headwater.merge.net import CHANGE, TRUNCATE, NetChanges, fold_bag, fold_table, split_tables
from headwater.merge.resolve import Resolve
from headwater.merge.rows import Typed, keyed, typed_rows
from headwater.merge.scratch import Kept, Scratch, one_batch
from headwater.merge.staged import staged
from headwater.spark.faults import table_error

__all__ = ["FOLDED", "LOCATED", "WRITTEN", "Append", "FoldBucket", "Locate", "Parse", "WriteBucket"]

APPEND_BYTES = 64 << 20  # decoded rows a worker holds before it writes them out

FOLDED = pa.schema(
    [
        ("bucket", pa.int32()),
        ("oid", pa.int64()),
        ("name", pa.string()),
        ("part", pa.int32()),
        ("touched", pa.int64()),
        ("low", pa.int64()),
        ("high", pa.int64()),
        ("truncated", pa.bool_()),
        ("based", pa.bool_()),  # some rows need values of those they replace
        ("scattered", pa.bool_()),  # all of the table is needed in one bucket
        ("error", pa.string()),
        ("needs_recopy", pa.bool_()),  # only a new copy would help
    ]
)
LOCATED = pa.schema(
    [
        ("bucket", pa.int32()),
        ("oid", pa.int64()),
        ("key", pa.binary()),
        ("row_id", pa.int64()),
        ("report", pa.binary()),
        ("rows", pa.string()),  # where rows of the lake lie that others take values from
        ("error", pa.string()),  # what keeps the table from going on
    ]
)
WRITTEN = pa.schema(
    [("oid", pa.int64()), ("report", pa.binary()), ("error", pa.string()), ("needs_recopy", pa.bool_())]
)

_ERROR_OP, _RECOPY_OP = ord("!"), ord("?")  # a change that could not be read: it carries the reason as its message


@dataclass(frozen=True, slots=True)
class Parse:
    """Segments → changes with their keys, each in the bucket that folds its key."""

    batch: Batch
    placed: Mapping[int, tuple[int, ...]]

    def __call__(self, segments: Iterable[Segment]) -> Iterator[pa.RecordBatch]:
        for mirror, relation, rows in staged(self.batch, segments):
            try:
                yield from self._parsed(mirror, relation, rows)
            except Exception as error:  # of this table alone, or raised again
                op = _RECOPY_OP if isinstance(error, CannotFollow) else _ERROR_OP
                yield self._everywhere(mirror, relation, rows.slice(0, 1), op, str(table_error(error)).encode())

    def _parsed(self, mirror: Mirror, relation: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        ops = rows["op"].to_numpy()
        if TRUNCATE in ops:
            for index in np.flatnonzero(ops == TRUNCATE):
                yield self._everywhere(mirror, relation, rows.slice(index, 1), TRUNCATE, b"")
            rows = rows.filter(pa.array(ops != TRUNCATE))
        messages = rows["message"].combine_chunks()
        changes = keyed(mirror, self.batch.relations[relation], messages)
        buckets = np.array(self.placed[mirror.oid], np.int32)
        bare = pa.array(np.where(changes.late, changes.rows, -1))  # a delete needs no more than its key
        yield _changes(
            bucket=buckets[key_bucket(changes.key, len(buckets))],
            oid=np.full(len(changes.rows), mirror.oid),
            key=changes.key,
            lsn=rows["commit_lsn"].to_numpy()[changes.rows],
            seq=rows["seq"].to_numpy()[changes.rows] * 2 + changes.late,
            op=changes.op.astype(np.int32),
            relation=np.full(len(changes.rows), relation),
            message=messages.take(pc.if_else(pc.less(bare, 0), None, bare)),
            holes=changes.holes,
            origin=changes.origin,
        )

    def _everywhere(self, mirror: Mirror, relation: int, row: pa.Table, op: int, message: bytes) -> pa.RecordBatch:
        """What concerns the whole table is told in each of its buckets."""
        buckets = self.placed[mirror.oid]
        return _changes(
            bucket=np.array(buckets, np.int32),
            oid=np.full(len(buckets), mirror.oid),
            key=pa.array([b""] * len(buckets), pa.binary()),
            lsn=np.repeat(row["commit_lsn"].to_numpy(), len(buckets)),
            seq=np.repeat(row["seq"].to_numpy(), len(buckets)) * 2,
            op=np.full(len(buckets), op, np.int32),
            relation=np.full(len(buckets), relation),
            message=pa.array([message] * len(buckets), pa.binary()),
            holes=np.zeros(len(buckets), bool),
            origin=pa.nulls(len(buckets), pa.binary()),
        )


def _changes(**columns: pa.Array | np.ndarray) -> pa.RecordBatch:
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in CHANGE], schema=CHANGE)


@dataclass(frozen=True, slots=True)
class FoldBucket:
    """A bucket's changes → the net change per key, left in the scratch folder; tells what is there."""

    batch: Batch
    room: Scratch
    placed: Mapping[int, tuple[int, ...]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        changes = pa.Table.from_batches(batches, CHANGE)
        if changes.num_rows == 0:
            return
        bucket = changes["bucket"][0].as_py()
        nets: list[tuple[pa.RecordBatch, pa.Array]] = []
        told: list[dict[str, object]] = []
        for oid, table in split_tables(changes):
            told.append({"bucket": bucket, "oid": oid, "part": len(nets), "touched": 0, "truncated": False})
            errors = table.filter(pc.is_in(table["op"], pa.array([_ERROR_OP, _RECOPY_OP], pa.int32())))
            if errors.num_rows:
                needs_recopy = errors["op"][0].as_py() == _RECOPY_OP
                told[-1] |= {"error": errors["message"][0].as_py().decode(), "needs_recopy": needs_recopy}
                continue
            try:
                net = self._folded(self.batch.mirrors[oid], table, told[-1])
                nets.append((one_batch(net.upserts), net.touched))
            except Exception as error:
                told[-1] |= {"error": str(table_error(error)), "needs_recopy": False}
        name = self.room.keep(nets)
        yield pa.RecordBatch.from_pylist([each | {"name": name} for each in told], schema=FOLDED)

    def _folded(self, mirror: Mirror, changes: pa.Table, told: dict[str, object]) -> NetChanges:
        net = fold_table(changes) if mirror.key else fold_bag(changes)
        bounds = leading_bounds(net.touched, mirror.key_types[0]) if mirror.key else None
        told |= {
            "touched": len(net.touched),
            "low": bounds and bounds[0],
            "high": bounds and bounds[1],
            "truncated": net.truncated,
            "based": net.upserts["base"].null_count < net.upserts.num_rows,
            "scattered": net.scattered and len(self.placed[mirror.oid]) > 1,
        }
        return net


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
            yield _located(np.array(unit, np.int32), oid=-1)
            return
        if isinstance(unit, Resolve):
            for report in unit():
                yield _located(np.zeros(1, np.int32), 0, report=report)
            return
        for oid, places in groupby(sorted(unit, key=lambda place: place.oid), lambda place: place.oid):
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
        buckets = np.array(self.placed[place.oid], np.int32)
        at, found = np.concatenate(positions), pa.concat_arrays(keys)
        if wanted.left is not None:
            at, found = wanted.take(at, found, self.target.gone(place))
        taken = self.target.take_out(place, pa.array(at))
        if taken is None:
            return
        yield _located(buckets[:1], place.oid, report=taken.report)  # first: what fails after it knows what to delete
        at, found = at[taken.alive.to_numpy(zero_copy_only=False)], found.filter(taken.alive)
        if wanted.left is None:
            yield _located(buckets[key_bucket(found, len(buckets))], place.oid, found, taken.row_ids)
        if wanted.bases is not None:
            yield from self._kept_values(place, at, found, wanted.bases, buckets)

    def _kept_values(
        self, place: Place, at: np.ndarray, found: pa.Array, bases: pa.Array, buckets: np.ndarray
    ) -> Iterator[pa.RecordBatch]:
        """Rows that others take values from: every bucket of the table is told where they lie."""
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
    oid: int,
    key: pa.Array | None = None,
    row_id: pa.Array | None = None,
    report: bytes | None = None,
    rows: str | None = None,
    error: str | None = None,
) -> pa.RecordBatch:
    columns = [
        pa.array(buckets, pa.int32()),
        pa.array(np.full(len(buckets), oid), pa.int64()),
        pa.nulls(len(buckets), pa.binary()) if key is None else key.cast(pa.binary()),
        pa.nulls(len(buckets), pa.int64()) if row_id is None else row_id,
        pa.array([report] * len(buckets), pa.binary()),
        pa.array([rows] * len(buckets), pa.string()),
        pa.array([error] * len(buckets), pa.string()),
    ]
    return pa.record_batch(columns, schema=LOCATED)


@dataclass(frozen=True, slots=True)
class WriteBucket:
    """A bucket's net changes and the places of the rows they replace → data files."""

    batch: Batch
    target: Target[Any]
    room: Scratch
    kept: tuple[Kept, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        located = pa.Table.from_batches(batches, LOCATED)
        for row in located.filter(pc.is_valid(located["report"])).select(["oid", "report"]).to_pylist():
            yield _written(row["oid"], [row["report"]])
        failed = located.filter(pc.is_valid(located["error"])).select(["oid", "error"])
        yield pa.RecordBatch.from_pylist(failed.to_pylist(), schema=WRITTEN)
        context = TaskContext.get()
        assert context is not None
        bucket = context.partitionId()  # repartitionById: the partition is the bucket
        older: defaultdict[int, list[str]] = defaultdict(list)
        for row in located.filter(pc.is_valid(located["rows"])).select(["oid", "rows"]).to_pylist():
            older[row["oid"]].append(row["rows"])
        found = located.filter(pc.is_valid(located["key"])).sort_by("oid")
        oids = found["oid"].to_numpy()
        for kept in self.kept:
            if kept.bucket == bucket and not pc.any(pc.equal(failed["oid"], kept.oid)).as_py():
                first, end = np.searchsorted(oids, [kept.oid, kept.oid + 1])
                yield from self._written(kept, found.slice(first, end - first), older[kept.oid])

    def _written(self, kept: Kept, located: pa.Table, older: Sequence[str]) -> Iterator[pa.RecordBatch]:
        upserts = pa.table(self.room.upserts(kept))
        places = pc.index_in(upserts["key"], value_set=located["key"].combine_chunks())
        upserts = upserts.append_column("row_id", located["row_id"].take(places))
        known = pc.is_valid(upserts["row_id"])
        lake = pa.concat_tables([self.room.rows(name) for name in older]) if older else None
        bad: list[pa.Table] = []
        try:
            fresh = self._rows(kept.oid, upserts.filter(pc.invert(known)), lake, bad, ids=False)
            replacing = self._rows(kept.oid, upserts.filter(known), lake, bad, ids=True)
            failpoints.hit("deliver.decoded", self.batch.mirrors[kept.oid].name)
            yield _written(kept.oid, self.target.write(kept.oid, (*fresh, *replacing)))
            yield from _quarantine(self.target, kept.oid, bad)
        except Exception as error:
            yield _failed(kept.oid, table_error(error))

    def _rows(
        self, oid: int, upserts: pa.Table, lake: pa.Table | None, bad: list[pa.Table], *, ids: bool
    ) -> list[tuple[pa.Table, pa.Array | None]]:
        """Typed rows by relation version, with their row ids; what they cannot hold is added to `bad`."""
        found = []
        mirror = self.batch.mirrors[oid]
        for relation in pc.unique(upserts["relation"]).to_pylist():
            part = upserts.filter(pc.equal(upserts["relation"], relation)).combine_chunks()
            typed = typed_rows(mirror, self.batch.relations, part, lake)
            if typed.bad:
                lsns, keys = part["lsn"].to_numpy(), part["key"].combine_chunks()
                bad.append(_bad_rows(self.target.source, mirror, typed, lsns, keys))
            found.append((typed.rows, part["row_id"].combine_chunks() if ids else None))
        return found


@dataclass(frozen=True, slots=True)
class Append:
    """Segments of nothing but inserts, or of tables that keep their history → data files, in one go."""

    batch: Batch
    target: Target[Any]

    def __call__(self, segments: Sequence[Segment]) -> Iterator[pa.RecordBatch]:
        held: defaultdict[int, list[tuple[pa.Table, pa.Array | None]]] = defaultdict(list)
        bad: defaultdict[int, list[pa.Table]] = defaultdict(list)
        size = 0
        failed: set[int] = set()
        for mirror, relation, rows in staged(self.batch, segments):
            if mirror.oid in failed:
                continue
            try:
                typed = self._typed(mirror, relation, rows)
                failpoints.hit("deliver.decoded", mirror.name)
                if typed.bad:
                    keys, lsns = self._keys(mirror, relation, rows), rows["commit_lsn"].to_numpy()
                    bad[mirror.oid].append(_bad_rows(self.target.source, mirror, typed, lsns, keys))
            except Exception as error:
                failed.add(mirror.oid)
                held.pop(mirror.oid, None)
                yield _failed(mirror.oid, table_error(error))
                continue
            held[mirror.oid].append((typed.rows, None))
            size += typed.rows.nbytes
            if size > APPEND_BYTES:
                yield from self._flush(held, bad)
                held.clear()
                bad.clear()
                size = 0
        yield from self._flush(held, bad)

    def _typed(self, mirror: Mirror, relation: int, rows: pa.Table) -> Typed:
        if mirror.history:
            return history_rows(mirror, self.batch.relations[relation], rows)
        versions = pa.array(np.full(rows.num_rows, relation))
        return typed_rows(mirror, self.batch.relations, pa.table({"relation": versions, "message": rows["message"]}))

    def _keys(self, mirror: Mirror, relation: int, rows: pa.Table) -> pa.Array | None:
        """What the quarantine knows the rows by; those of a history are never replaced."""
        if mirror.history:
            return None
        return keyed(mirror, self.batch.relations[relation], rows["message"].combine_chunks()).key

    def _flush(
        self, held: Mapping[int, list[tuple[pa.Table, pa.Array | None]]], bad: Mapping[int, list[pa.Table]]
    ) -> Iterator[pa.RecordBatch]:
        for oid, rows in held.items():
            try:
                yield _written(oid, self.target.write(oid, rows))
                yield from _quarantine(self.target, oid, bad.get(oid, []))
            except Exception as error:
                yield _failed(oid, table_error(error))


def _bad_rows(source: str, mirror: Mirror, typed: Typed, lsns: np.ndarray, keys: pa.Array | None) -> pa.Table:
    origin = Origin(source, mirror.oid, mirror.name, {column.name: column.attnum for column in mirror.columns})
    return quarantined(origin, typed.rows, mirror.key, typed.bad, lsns, keys)


def _quarantine(target: Target[Any], oid: int, bad: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Values that found no place; told under the table's negative number, because they land only if it does."""
    if bad:
        yield _written(-oid, target.write(-oid, [(each, None) for each in bad]))


def _written(oid: int, reports: Sequence[bytes]) -> pa.RecordBatch:
    columns = [
        pa.array([oid] * len(reports), pa.int64()),
        pa.array(reports, pa.binary()),
        pa.nulls(len(reports), pa.string()),
        pa.nulls(len(reports), pa.bool_()),
    ]
    return pa.record_batch(columns, schema=WRITTEN)


def _failed(oid: int, error: TableError) -> pa.RecordBatch:
    row = {"oid": oid, "error": str(error), "needs_recopy": isinstance(error, CannotFollow)}
    return pa.RecordBatch.from_pylist([row], schema=WRITTEN)
