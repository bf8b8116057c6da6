"""The first two kinds of task: read a batch's changes with their keys, and fold those of a bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CannotFollow
from headwater.lake.target import PartitionSet, Target
from headwater.merge.alike import alike
from headwater.merge.batch import Batch
from headwater.merge.exchange import Outgoing, Piece, incoming
from headwater.merge.mirror import Mirror
from headwater.merge.net import (
    CHANGE,
    TRUNCATE,
    NetChanges,
    NetTables,
    fold_bag,
    fold_table,
    fold_tables,
    in_order,
    of_plain_tables,
    split_tables,
)
from headwater.merge.outcome import Failed, Failure
from headwater.merge.reader import Read, Reads
from headwater.merge.scratch import Kept, Scratch, Span, one_batch
from headwater.pickling import pickled_by_fields
from headwater.spark.faults import table_error
from headwater.values.keys import key_bucket, key_values, leading_bounds

__all__ = ["FoldBucket", "Folded", "Parse", "ParseAndFold"]

TOGETHER_BYTES = 64 << 20  # of changes that are folded at once
_ERROR_OP, _RECOPY_OP = ord("!"), ord("?")  # a change that could not be read: it carries the reason as its message


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Folded:
    """A table's net changes in one bucket: where they lie, and what is known about the keys that they touch."""

    kept: Kept
    touched: int
    bounds: tuple[int, int] | None  # of the first column of these keys
    partitions: PartitionSet | None  # in which alone they can be, if that is known
    truncated: bool = False
    based: bool = False  # some rows need values of those they replace
    scattered: bool = False  # all of the table is needed in one bucket


@dataclass(frozen=True, slots=True)
class Parse:
    """A unit of the reader → changes with their keys, each for the bucket that folds its key."""

    batch: Batch
    placed: Mapping[int, tuple[int, ...]]
    room: Scratch

    def __call__(self, unit: Any) -> Iterator[Piece]:
        outgoing = Outgoing(self.room)
        for changes in self.changes(unit):
            yield from outgoing.add(changes)
        yield from outgoing.flush()

    def changes(self, unit: Any) -> Iterator[pa.RecordBatch]:
        for reads in alike(self.batch.reader, self.batch.reader.read(unit, self.batch.mirrors), self._can_wait):
            try:
                yield from self._parsed(reads)
            except Exception:  # of some table alone, or raised again
                for read in reads.each():
                    yield from self._parsed_alone(read)

    def _can_wait(self, mirror: Mirror) -> bool:
        """Whether a table may be parsed with others: all of it is for one bucket."""
        return len(self.placed[mirror.oid]) == 1

    def _parsed_alone(self, read: Read) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._parsed(Reads(((read.mirror, read.version),), np.zeros(read.rows.num_rows, int), read.rows))
        except Exception as error:
            op = _RECOPY_OP if isinstance(error, CannotFollow) else _ERROR_OP
            first = read._replace(rows=read.rows.slice(0, 1))
            yield self._everywhere(first, op, str(table_error(error)).encode())

    def _parsed(self, reads: Reads) -> Iterator[pa.RecordBatch]:
        """The changes of one table, or of several that are alike."""
        of, together = reads.of, reads.rows
        ops = together["op"].to_numpy()
        if TRUNCATE in ops:
            for index in np.flatnonzero(ops == TRUNCATE):
                mirror, version = reads.tables[int(of[index])]
                yield self._everywhere(Read(mirror, version, together.slice(index, 1)), TRUNCATE, b"")
            of, together = of[ops != TRUNCATE], together.filter(pa.array(ops != TRUNCATE))
        changes = self.batch.reader.keyed(Read(*reads.tables[0], together))
        bare = pa.array(np.where(changes.late, changes.rows, -1))  # a delete needs no more than its key
        of = of[changes.rows]
        yield _changes(
            bucket=self._buckets(reads, of, changes.key),
            oid=np.array([mirror.oid for mirror, _ in reads.tables])[of],
            key=changes.key,
            lsn=together["commit_lsn"].to_numpy()[changes.rows],
            seq=together["seq"].to_numpy()[changes.rows] * 2 + changes.late,
            op=changes.op.astype(np.int32),
            relation=np.array([version for _, version in reads.tables])[of],
            message=together["message"].combine_chunks().take(pc.if_else(pc.less(bare, 0), None, bare)),
            holes=changes.holes,
            origin=changes.origin,
        )

    def _buckets(self, reads: Reads, of: npt.NDArray[np.int64], keys: pa.Array) -> npt.NDArray[np.int32]:
        placed = [self.placed[mirror.oid] for mirror, _ in reads.tables]
        if len(placed) > 1:
            return np.array([first for first, *_ in placed], np.int32)[of]
        buckets = np.array(placed[0], np.int32)
        return buckets[key_bucket(keys, len(buckets))]

    def _everywhere(self, read: Read, op: int, message: bytes) -> pa.RecordBatch:
        """What concerns the whole table goes into each of its buckets."""
        buckets = self.placed[read.mirror.oid]
        count = len(buckets)
        return _changes(
            bucket=np.array(buckets, np.int32),
            oid=np.full(count, read.mirror.oid),
            key=pa.array([b""] * count, pa.binary()),
            lsn=np.repeat(read.rows["commit_lsn"].to_numpy(), count),
            seq=np.repeat(read.rows["seq"].to_numpy(), count) * 2,
            op=np.full(count, op, np.int32),
            relation=np.full(count, read.version),
            message=pa.array([message] * count, pa.binary()),
            holes=np.zeros(count, bool),
            origin=pa.nulls(count, pa.binary()),
        )


def _changes(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in CHANGE], schema=CHANGE)


@dataclass(frozen=True, slots=True)
class FoldBucket:
    """A bucket's changes → the net change per key, left in the scratch folder; yields what is there."""

    batch: Batch
    target: Target[Any]
    room: Scratch
    placed: Mapping[int, tuple[int, ...]]

    def __call__(self, pieces: tuple[Piece, ...]) -> Iterator[Folded | Failed]:
        yield from self.folded(pieces[0].bucket, incoming(self.room, pieces, CHANGE))

    def folded(self, bucket: int, changes: pa.Table) -> Iterator[Folded | Failed]:
        ordered = in_order(changes)
        plain = of_plain_tables(ordered, [oid for oid, mirror in self.batch.mirrors.items() if not mirror.key])
        together = None
        if plain.any() and ordered.nbytes <= TOGETHER_BYTES:
            together = fold_tables(ordered.filter(pa.array(plain)))
            ordered = ordered.filter(pa.array(~plain))
        nets: list[tuple[int, NetChanges]] = []
        for oid, table in split_tables(ordered):
            net = _unreadable(table) or self._net(oid, table)
            if isinstance(net, Failure):
                yield Failed(oid, net)
            else:
                nets.append((oid, net))
        shared = [] if together is None else [(one_batch(together.upserts), together.touched)]
        name = self.room.keep([*((one_batch(net.upserts), net.touched) for _, net in nets), *shared])
        for number, (oid, net) in enumerate(nets):
            yield self._described(Kept(bucket, oid, name, number), net)
        if together is not None:
            yield from self._each_described(Kept(bucket, 0, name, len(nets)), together)

    def _each_described(self, kept: Kept, nets: NetTables) -> Iterator[Folded]:
        """Of tables that share what is kept."""
        for oid, (start, end), (first, last) in nets.spans():
            touched = nets.touched.slice(first, last - first)
            mine = kept._replace(oid=oid, upserts=Span(start, end - start), touched=Span(first, last - first))
            yield self._folded(mine, touched)

    def _net(self, oid: int, changes: pa.Table) -> NetChanges | Failure:
        try:
            return fold_table(changes) if self.batch.mirrors[oid].key else fold_bag(changes)
        except Exception as error:
            return Failure.of(table_error(error))

    def _described(self, kept: Kept, net: NetChanges) -> Folded:
        based = net.upserts["base"].null_count < net.upserts.num_rows
        scattered = net.scattered and len(self.placed[kept.oid]) > 1
        return replace(self._folded(kept, net.touched), truncated=net.truncated, based=based, scattered=scattered)

    def _folded(self, kept: Kept, touched: pa.Array) -> Folded:
        mirror = self.batch.mirrors[kept.oid]
        bounds = leading_bounds(touched, mirror.key_types[0]) if mirror.key else None
        return Folded(kept, len(touched), bounds, self._partitions(mirror, touched))

    def _partitions(self, mirror: Mirror, touched: pa.Array) -> PartitionSet | None:
        """The partitions that rows with these keys can be in; None if the key does not tell."""
        wanted = set(self.target.partitioned_by(mirror.oid)) & set(mirror.key)
        if not wanted or not len(touched):
            return None
        found = zip(mirror.key_columns, key_values(touched, mirror.key_types), strict=True)
        columns = {column.name: array for column, array in found if column.name in wanted and array is not None}
        return self.target.partitions(mirror.oid, columns) if columns else None


def _unreadable(changes: pa.Table) -> Failure | None:
    errors = changes.filter(pc.is_in(changes["op"], pa.array([_ERROR_OP, _RECOPY_OP], pa.int32())))
    if not errors.num_rows:
        return None
    return Failure(errors["message"][0].as_py().decode(), errors["op"][0].as_py() == _RECOPY_OP)


@dataclass(frozen=True, slots=True)
class ParseAndFold:
    """Both in one task, for a bucket that has its tables to itself: it knows and reads these and no others."""

    bucket: int
    parse: Parse
    fold: FoldBucket
    changes: Any  # all of the batch, as one unit of the reader

    def __call__(self) -> Iterator[Folded | Failed]:
        yield from self.fold.folded(self.bucket, pa.Table.from_batches(self.parse.changes(self.changes), CHANGE))
