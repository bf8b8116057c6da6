"""The first two kinds of task: read a batch's changes with their keys, and fold those of a bucket."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CannotFollow
from headwater.lake.target import PartitionSet, Target
from headwater.merge.batch import Batch
from headwater.merge.mirror import Mirror
from headwater.merge.net import TRUNCATE, NetChanges, fold_bag, fold_table, split_tables
from headwater.merge.reader import Read
from headwater.merge.scratch import Scratch, one_batch
from headwater.merge.shuffle import SHUFFLED, packed, unpacked
from headwater.spark.faults import table_error
from headwater.values.keys import key_bucket, key_values, leading_bounds

__all__ = ["FOLDED", "FoldBucket", "Parse"]

FOLDED = pa.schema(
    [
        ("bucket", pa.int32()),
        ("oid", pa.int64()),
        ("name", pa.string()),
        ("number", pa.int32()),  # of its record batch there
        ("touched", pa.int64()),
        ("low", pa.int64()),
        ("high", pa.int64()),
        ("partitions", pa.binary()),  # in which alone the touched keys can be, if that is known
        ("truncated", pa.bool_()),
        ("based", pa.bool_()),  # some rows need values of those they replace
        ("scattered", pa.bool_()),  # all of the table is needed in one bucket
        ("error", pa.string()),
        ("needs_recopy", pa.bool_()),  # only a new copy would help
    ]
)

_ERROR_OP, _RECOPY_OP = ord("!"), ord("?")  # a change that could not be read: it carries the reason as its message


@dataclass(frozen=True, slots=True)
class Parse:
    """A unit of the reader → changes with their keys, each in the bucket that folds its key."""

    batch: Batch
    placed: Mapping[int, tuple[int, ...]]

    def __call__(self, unit: Any) -> Iterator[pa.RecordBatch]:
        for read in self.batch.reader.read(unit, self.batch.mirrors):
            try:
                yield from self._parsed(read)
            except Exception as error:  # of this table alone, or raised again
                op = _RECOPY_OP if isinstance(error, CannotFollow) else _ERROR_OP
                first = read._replace(rows=read.rows.slice(0, 1))
                yield self._everywhere(first, op, str(table_error(error)).encode())

    def _parsed(self, read: Read) -> Iterator[pa.RecordBatch]:
        ops = read.rows["op"].to_numpy()
        if TRUNCATE in ops:
            for index in np.flatnonzero(ops == TRUNCATE):
                yield self._everywhere(read._replace(rows=read.rows.slice(index, 1)), TRUNCATE, b"")
            read = read._replace(rows=read.rows.filter(pa.array(ops != TRUNCATE)))
        changes = self.batch.reader.keyed(read)
        buckets = np.array(self.placed[read.mirror.oid], np.int32)
        bare = pa.array(np.where(changes.late, changes.rows, -1))  # a delete needs no more than its key
        yield packed(
            {
                "bucket": buckets[key_bucket(changes.key, len(buckets))],
                "key": changes.key,
                "lsn": read.rows["commit_lsn"].to_numpy()[changes.rows],
                "seq": read.rows["seq"].to_numpy()[changes.rows] * 2 + changes.late,
                "op": changes.op.astype(np.int32),
                "relation": np.full(len(changes.rows), read.version),
                "message": read.rows["message"].combine_chunks().take(pc.if_else(pc.less(bare, 0), None, bare)),
            },
            changes.holes,
            changes.origin,
        )

    def _everywhere(self, read: Read, op: int, message: bytes) -> pa.RecordBatch:
        """What concerns the whole table goes into each of its buckets."""
        buckets = self.placed[read.mirror.oid]
        count = len(buckets)
        return packed(
            {
                "bucket": np.array(buckets, np.int32),
                "key": pa.array([b""] * count, pa.binary()),
                "lsn": np.repeat(read.rows["commit_lsn"].to_numpy(), count),
                "seq": np.repeat(read.rows["seq"].to_numpy(), count) * 2,
                "op": np.full(count, op, np.int32),
                "relation": np.full(count, read.version),
                "message": pa.array([message] * count, pa.binary()),
            },
            np.zeros(count, bool),
            pa.nulls(count, pa.binary()),
        )


@dataclass(frozen=True, slots=True)
class FoldBucket:
    """A bucket's changes → the net change per key, left in the scratch folder; yields what is there."""

    batch: Batch
    target: Target[Any]
    room: Scratch
    placed: Mapping[int, tuple[int, ...]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        changes = unpacked(pa.Table.from_batches(batches, SHUFFLED), self.batch.reader.tables())
        if changes.num_rows == 0:
            return
        bucket = changes["bucket"][0].as_py()
        nets: list[tuple[pa.RecordBatch, pa.Array]] = []
        found: list[dict[str, object]] = []
        for oid, table in split_tables(changes):
            found.append({"bucket": bucket, "oid": oid, "number": len(nets), "touched": 0, "truncated": False})
            errors = table.filter(pc.is_in(table["op"], pa.array([_ERROR_OP, _RECOPY_OP], pa.int32())))
            if errors.num_rows:
                needs_recopy = errors["op"][0].as_py() == _RECOPY_OP
                found[-1] |= {"error": errors["message"][0].as_py().decode(), "needs_recopy": needs_recopy}
                continue
            try:
                net = self._folded(self.batch.mirrors[oid], table, found[-1])
                nets.append((one_batch(net.upserts), net.touched))
            except Exception as error:
                found[-1] |= {"error": str(table_error(error)), "needs_recopy": False}
        name = self.room.keep(nets)
        yield pa.RecordBatch.from_pylist([each | {"name": name} for each in found], schema=FOLDED)

    def _folded(self, mirror: Mirror, changes: pa.Table, found: dict[str, object]) -> NetChanges:
        net = fold_table(changes) if mirror.key else fold_bag(changes)
        bounds = leading_bounds(net.touched, mirror.key_types[0]) if mirror.key else None
        partitions = self._partitions(mirror, net.touched)
        found |= {
            "touched": len(net.touched),
            "low": bounds and bounds[0],
            "high": bounds and bounds[1],
            "partitions": partitions and pickle.dumps(partitions),
            "truncated": net.truncated,
            "based": net.upserts["base"].null_count < net.upserts.num_rows,
            "scattered": net.scattered and len(self.placed[mirror.oid]) > 1,
        }
        return net

    def _partitions(self, mirror: Mirror, touched: pa.Array) -> PartitionSet | None:
        """The partitions that rows with these keys can be in; None if the key does not tell."""
        wanted = set(self.target.partitioned_by(mirror.oid)) & set(mirror.key)
        if not wanted or not len(touched):
            return None
        found = zip(mirror.key_columns, key_values(touched, mirror.key_types), strict=True)
        columns = {column.name: array for column, array in found if column.name in wanted and array is not None}
        return self.target.partitions(mirror.oid, columns) if columns else None
