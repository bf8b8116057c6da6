"""What Spark's Python workers do, one picklable callable per kind of task. Record batches in, record batches out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from headwater import failpoints
from headwater.errors import TableError
from headwater.files import filesystem, inside
from headwater.merge.batch import Batch, Mirror
from headwater.merge.keys import key_bucket, key_bytes, leading_bounds
from headwater.merge.net import CHANGE, TRUNCATE, Net, fold_table, split_tables
from headwater.merge.rows import keyed, typed_rows
from headwater.merge.scratch import Kept, Scratch
from headwater.target import Place, Target

__all__ = ["Append", "FoldSlot", "Locate", "Parse", "WriteSlot"]

APPEND_BYTES = 256 << 20  # decoded rows a worker holds before it writes them out

_FOLDED = pa.schema(
    [
        ("slot", pa.int32()),
        ("oid", pa.int64()),
        ("name", pa.string()),
        ("part", pa.int32()),
        ("touched", pa.int64()),
        ("low", pa.int64()),
        ("high", pa.int64()),
        ("truncated", pa.bool_()),
        ("error", pa.string()),
    ]
)
_LOCATED = pa.schema(
    [
        ("slot", pa.int32()),
        ("oid", pa.int64()),
        ("key", pa.binary()),
        ("row_id", pa.int64()),
        ("report", pa.binary()),
    ]
)
_WRITTEN = pa.schema([("oid", pa.int64()), ("report", pa.binary()), ("error", pa.string())])

_ERROR_OP = ord("!")  # a change that could not be read: it carries the reason as its message


def staged(batch: Batch, segments: Iterable[str]) -> Iterator[tuple[Mirror, int, pa.Table]]:
    """The batch's changes in these segments: a mirror, a relation version, its rows, in commit order."""
    for path in segments:
        with pq.ParquetFile(inside(path), filesystem=filesystem(path), memory_map=True) as file:
            at = file.schema_arrow.get_field_index("relation")
            for group in range(file.num_row_groups):
                relation = file.metadata.row_group(group).column(at).statistics.min
                mirror = batch.mirrors.get(batch.relations[relation].oid) if relation in batch.relations else None
                if mirror is None:
                    continue
                rows = file.read_row_group(group, columns=["commit_lsn", "seq", "op", "message"])
                lsn = rows["commit_lsn"].to_numpy()
                wanted = (lsn >= mirror.start.value) & (lsn < batch.upto.value)
                rows = rows if wanted.all() else rows.filter(pa.array(wanted))
                if rows.num_rows:
                    yield mirror, relation, rows.combine_chunks()


@dataclass(frozen=True, slots=True)
class Parse:
    """Segments → changes with their keys, each in the slot that folds its key."""

    batch: Batch
    placed: Mapping[int, tuple[int, ...]]

    def __call__(self, segments: Iterable[str]) -> Iterator[pa.RecordBatch]:
        for mirror, relation, rows in staged(self.batch, segments):
            try:
                yield from self._parsed(mirror, relation, rows)
            except TableError as error:
                yield self._everywhere(mirror, relation, rows.slice(0, 1), _ERROR_OP, str(error).encode())

    def _parsed(self, mirror: Mirror, relation: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        ops = rows["op"].to_numpy()
        if TRUNCATE in ops:
            for index in np.flatnonzero(ops == TRUNCATE):
                yield self._everywhere(mirror, relation, rows.slice(index, 1), TRUNCATE, b"")
            rows = rows.filter(pa.array(ops != TRUNCATE))
        messages = rows["message"].combine_chunks()
        changes = keyed(mirror, self.batch.relations[relation], messages)
        slots = np.array(self.placed[mirror.oid], np.int32)
        bare = pa.array(np.where(changes.late, changes.rows, -1))  # a delete needs no more than its key
        yield _changes(
            slot=slots[key_bucket(changes.key, len(slots))],
            oid=np.full(len(changes.rows), mirror.oid),
            key=changes.key,
            lsn=rows["commit_lsn"].to_numpy()[changes.rows],
            seq=rows["seq"].to_numpy()[changes.rows] * 2 + changes.late,
            op=changes.op.astype(np.int32),
            relation=np.full(len(changes.rows), relation),
            message=messages.take(pc.if_else(pc.less(bare, 0), None, bare)),
        )

    def _everywhere(self, mirror: Mirror, relation: int, row: pa.Table, op: int, message: bytes) -> pa.RecordBatch:
        """What concerns the whole table is told in each of its slots."""
        slots = self.placed[mirror.oid]
        return _changes(
            slot=np.array(slots, np.int32),
            oid=np.full(len(slots), mirror.oid),
            key=pa.array([b""] * len(slots), pa.binary()),
            lsn=np.repeat(row["commit_lsn"].to_numpy(), len(slots)),
            seq=np.repeat(row["seq"].to_numpy(), len(slots)) * 2,
            op=np.full(len(slots), op, np.int32),
            relation=np.full(len(slots), relation),
            message=pa.array([message] * len(slots), pa.binary()),
        )


def _changes(**columns: pa.Array | np.ndarray) -> pa.RecordBatch:
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in CHANGE], schema=CHANGE)


@dataclass(frozen=True, slots=True)
class FoldSlot:
    """A slot's changes → the net change per key, left in the scratch folder; tells what is there."""

    batch: Batch
    room: Scratch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        changes = pa.Table.from_batches(batches, CHANGE)
        if changes.num_rows == 0:
            return
        slot = changes["slot"][0].as_py()
        nets: list[Net] = []
        told: list[tuple[object, ...]] = []
        for oid, table in split_tables(changes):
            errors = table.filter(pc.equal(table["op"], _ERROR_OP))
            if errors.num_rows:
                told.append((slot, oid, "", 0, 0, None, None, False, errors["message"][0].as_py().decode()))
                continue
            net = fold_table(table)
            low, high = leading_bounds(net.touched, self.batch.mirrors[oid].key_types[0]) or (None, None)
            told.append((slot, oid, "", len(nets), len(net.touched), low, high, net.truncated, None))
            nets.append(net)
        name = self.room.keep([net.upserts for net in nets], [net.touched for net in nets])
        columns = [list(column) for column in zip(*told, strict=True)]
        columns[2] = [name] * len(told)
        yield pa.record_batch(
            [pa.array(column, field.type) for column, field in zip(columns, _FOLDED, strict=True)], schema=_FOLDED
        )


@dataclass(frozen=True, slots=True)
class Locate:
    """Lake files → where the touched keys' rows are; those rows are taken out on the way.

    A unit is a tuple of files to search or, once, the range of all slots: each is sent a row so that it wakes.
    """

    batch: Batch
    target: Target[Any]
    room: Scratch
    placed: Mapping[int, tuple[int, ...]]
    kept: tuple[Kept, ...]

    def __call__(self, unit: range | tuple[Place, ...]) -> Iterator[pa.RecordBatch]:
        if isinstance(unit, range):
            yield _located(np.array(unit, np.int32), oid=-1)
            return
        wanted: dict[int, pa.Array] = {}
        for place in sorted(unit, key=lambda place: place.oid):
            if place.oid not in wanted:
                wanted = {place.oid: self._touched(place.oid)}  # one key set at a time
            yield from self._search(place, wanted[place.oid])
            failpoints.hit("deliver.located")

    def _search(self, place: Place, wanted: pa.Array) -> Iterator[pa.RecordBatch]:
        types = self.batch.mirrors[place.oid].key_types
        positions, keys = [], []
        for first, columns in self.target.keys(place):
            here = key_bytes(columns, types)
            hits = np.flatnonzero(pc.is_in(here, value_set=wanted).to_numpy(zero_copy_only=False))
            positions.append(hits + first)
            keys.append(here.take(pa.array(hits)))
        taken = self.target.take_out(place, pa.array(np.concatenate(positions)))
        if taken is not None:
            found = pa.concat_arrays(keys).filter(taken.alive)
            slots = np.array(self.placed[place.oid], np.int32)
            yield _located(slots[key_bucket(found, len(slots))], place.oid, found, taken.row_ids)
            yield _located(slots[:1], place.oid, report=taken.report)

    def _touched(self, oid: int) -> pa.Array:
        return pa.concat_arrays([self.room.touched(each) for each in self.kept if each.oid == oid])


def _located(
    slots: np.ndarray,
    oid: int,
    key: pa.Array | None = None,
    row_id: pa.Array | None = None,
    report: bytes | None = None,
) -> pa.RecordBatch:
    columns = [
        pa.array(slots, pa.int32()),
        pa.array(np.full(len(slots), oid), pa.int64()),
        pa.nulls(len(slots), pa.binary()) if key is None else key.cast(pa.binary()),
        pa.nulls(len(slots), pa.int64()) if row_id is None else row_id,
        pa.array([report] * len(slots), pa.binary()),
    ]
    return pa.record_batch(columns, schema=_LOCATED)


@dataclass(frozen=True, slots=True)
class WriteSlot:
    """A slot's net changes and the places of the rows they replace → data files."""

    batch: Batch
    target: Target[Any]
    room: Scratch
    kept: tuple[Kept, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        located = pa.Table.from_batches(batches, _LOCATED)
        for row in located.filter(pc.is_valid(located["report"])).select(["oid", "report"]).to_pylist():
            yield _written(row["oid"], [row["report"]])
        context = TaskContext.get()
        assert context is not None
        slot = context.partitionId()  # repartitionById: the partition is the slot
        found = located.filter(pc.is_valid(located["key"])).sort_by("oid")
        oids = found["oid"].to_numpy()
        for kept in self.kept:
            if kept.slot == slot:
                first, end = np.searchsorted(oids, [kept.oid, kept.oid + 1])
                yield self._written(kept, found.slice(first, end - first))

    def _written(self, kept: Kept, located: pa.Table) -> pa.RecordBatch:
        upserts = pa.table(self.room.upserts(kept))
        places = pc.index_in(upserts["key"], value_set=located["key"].combine_chunks())
        upserts = upserts.append_column("row_id", located["row_id"].take(places))
        known = pc.is_valid(upserts["row_id"])
        try:
            fresh = self._rows(kept.oid, upserts.filter(pc.invert(known)), ids=False)
            replacing = self._rows(kept.oid, upserts.filter(known), ids=True)
            return _written(kept.oid, self.target.write(kept.oid, (*fresh, *replacing)))
        except TableError as error:
            return _failed(kept.oid, error)

    def _rows(self, oid: int, upserts: pa.Table, *, ids: bool) -> list[tuple[pa.Table, pa.Array | None]]:
        """Typed rows by relation version, with their row ids."""
        found = []
        for relation in pc.unique(upserts["relation"]).to_pylist():
            part = upserts.filter(pc.equal(upserts["relation"], relation))
            messages = part["message"].combine_chunks()
            rows = typed_rows(self.batch.mirrors[oid], self.batch.relations[relation], messages)
            found.append((rows, part["row_id"].combine_chunks() if ids else None))
        return found


@dataclass(frozen=True, slots=True)
class Append:
    """Segments of nothing but inserts → data files, in one go."""

    batch: Batch
    target: Target[Any]

    def __call__(self, segments: Sequence[str]) -> Iterator[pa.RecordBatch]:
        held: defaultdict[int, list[tuple[pa.Table, pa.Array | None]]] = defaultdict(list)
        size = 0
        failed: set[int] = set()
        for mirror, relation, rows in staged(self.batch, segments):
            if mirror.oid in failed:
                continue
            try:
                typed = typed_rows(mirror, self.batch.relations[relation], rows["message"].combine_chunks())
            except TableError as error:
                failed.add(mirror.oid)
                held.pop(mirror.oid, None)
                yield _failed(mirror.oid, error)
                continue
            held[mirror.oid].append((typed, None))
            size += typed.nbytes
            if size > APPEND_BYTES:
                yield from self._flush(held)
                held.clear()
                size = 0
        yield from self._flush(held)

    def _flush(self, held: Mapping[int, list[tuple[pa.Table, pa.Array | None]]]) -> Iterator[pa.RecordBatch]:
        for oid, rows in held.items():
            yield _written(oid, self.target.write(oid, rows))


def _written(oid: int, reports: Sequence[bytes]) -> pa.RecordBatch:
    columns = [
        pa.array([oid] * len(reports), pa.int64()),
        pa.array(reports, pa.binary()),
        pa.nulls(len(reports), pa.string()),
    ]
    return pa.record_batch(columns, schema=_WRITTEN)


def _failed(oid: int, error: TableError) -> pa.RecordBatch:
    return pa.record_batch([pa.array([oid]), pa.nulls(1, pa.binary()), pa.array([str(error)])], schema=_WRITTEN)
