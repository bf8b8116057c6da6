"""The last kinds of task: write data files, of what was folded or of changes that need no fold."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater import failpoints
from headwater.lake.quarantine import Origin, quarantined
from headwater.lake.target import Destination, Place, Rows, Target, misfits_of, rows_of
from headwater.merge.alike import FEW_BYTES, FEW_ROWS, TABLES_AT_ONCE
from headwater.merge.batch import Batch
from headwater.merge.exchange import Piece, incoming
from headwater.merge.locate import LOCATED, Locate, Older
from headwater.merge.mirror import Mirror
from headwater.merge.outcome import Failed, Failure, Searched, Written
from headwater.merge.reader import Read, Typed
from headwater.merge.scratch import Kept, Scratch
from headwater.spark.faults import table_error
from headwater.values.keys import keys_of_tables

__all__ = ["Append", "LocateAndWrite", "WriteBucket"]

APPEND_BYTES = 64 << 20  # decoded rows a worker holds before it writes them out


@dataclass(frozen=True, slots=True)
class WriteBucket:
    """A bucket's net changes and the places of the rows they replace → data files."""

    batch: Batch
    target: Target[Any]
    room: Scratch
    kept: tuple[Kept, ...]
    older: Mapping[int, Sequence[str]]  # by table, the rows of the lake that others take values from

    def __call__(self, unit: tuple[int, tuple[Piece, ...]]) -> Iterator[Written | Failed]:
        bucket, pieces = unit
        yield from self.written(bucket, incoming(self.room, pieces, LOCATED))

    def written(self, bucket: int, located: pa.Table) -> Iterator[Written | Failed]:
        found = located.sort_by("oid").combine_chunks()
        oids = found["oid"].to_numpy()
        for upserts in self._alike(bucket):
            if len(upserts) > 1:
                mine = np.isin(oids, list(upserts))
                done = self._written_at_once(upserts, found.filter(pa.array(mine)))
                if done is not None:
                    yield from done
                    continue
            for oid, rows in upserts.items():
                first, end = np.searchsorted(oids, [oid, oid + 1])
                yield from self._written(oid, rows, found.slice(first, end - first), self.older.get(oid, ()))

    def _alike(self, bucket: int) -> Iterator[dict[int, pa.Table]]:
        """The rows to write to each table, together those of tables that are alike, if there are few of them."""
        alike: defaultdict[Hashable, dict[int, pa.Table]] = defaultdict(dict)
        for kept in self.kept:
            if kept.bucket != bucket:
                continue
            upserts = pa.Table.from_batches([self.room.upserts(kept)])  # `pa.table` takes a detour through C
            layout = self._layout(kept.oid, upserts)
            if layout is None:
                yield {kept.oid: upserts}
                continue
            alike[layout][kept.oid] = upserts
            if len(alike[layout]) == TABLES_AT_ONCE:
                yield alike.pop(layout)
        yield from alike.values()

    def _layout(self, oid: int, upserts: pa.Table) -> Hashable | None:
        """What tables have in common whose rows may be written together; None: these are written alone."""
        mirror = self.batch.mirrors[oid]
        few = 0 < upserts.num_rows <= FEW_ROWS and upserts.nbytes <= FEW_BYTES
        if not few or not mirror.key or upserts["older"].null_count < upserts.num_rows or oid in self.older:
            return None
        versions = upserts["relation"].to_numpy()
        return self.batch.reader.layout(mirror, int(versions[0])) if (versions == versions[0]).all() else None

    def _written_at_once(self, tables: Mapping[int, pa.Table], located: pa.Table) -> list[Written | Failed] | None:
        """The rows of tables that are alike, in one pass; None: each must be written alone."""
        try:
            rows = self._rows_at_once(tables, located)
        except Exception:  # of some table: alone, it will say what
            rows = None
        if rows is None:
            return None
        done: list[Written | Failed] = []
        outcomes = dict(self.target.write_each(rows))
        for oid in tables:
            to, outcome = rows_of(oid), outcomes[rows_of(oid)]
            if isinstance(outcome, Exception):
                done.append(Failed(oid, Failure.of(table_error(outcome))))
            else:
                done += _written(to, outcome)
        return done

    def _rows_at_once(self, tables: Mapping[int, pa.Table], located: pa.Table) -> dict[Destination, list[Rows]] | None:
        """What is to be written to each of these tables; None if some value does not fit its type."""
        upserts = pa.concat_tables(tables.values()).combine_chunks()
        typed = self.batch.reader.typed(self.batch.mirrors[next(iter(tables))], upserts)
        for oid in tables:
            failpoints.hit("deliver.decoded", self.batch.mirrors[oid].name)
        if typed.bad:
            return None
        counts = [each.num_rows for each in tables.values()]
        numbers = np.repeat(np.arange(len(counts)), counts)  # which of the tables a row is of
        oids = np.array(list(tables), np.int64)[numbers]
        places = pc.index_in(
            keys_of_tables(oids, upserts["key"].combine_chunks()),
            value_set=keys_of_tables(located["oid"].to_numpy(), located["key"].combine_chunks()),
        )
        replacing = places.is_valid().to_numpy(zero_copy_only=False)
        order = np.lexsort((replacing, numbers))  # of each table, new rows come first
        rows, row_ids = (
            typed.rows.take(pa.array(order)),
            located["row_id"].combine_chunks().take(places.take(pa.array(order))),
        )
        found: dict[Destination, list[Rows]] = {}
        edges = np.cumsum([0, *counts])
        middles = edges[1:] - np.bincount(numbers[replacing], minlength=len(counts))
        for oid, (first, end), middle in zip(tables, pairwise(edges.tolist()), middles.tolist(), strict=True):
            parts = [
                (rows.slice(first, middle - first), None),
                (rows.slice(middle, end - middle), row_ids.slice(middle, end - middle)),
            ]
            found[rows_of(oid)] = [part for part in parts if part[0].num_rows]
        return found

    def _written(
        self, oid: int, upserts: pa.Table, located: pa.Table, older: Sequence[str]
    ) -> Iterator[Written | Failed]:
        places = pc.index_in(upserts["key"], value_set=located["key"].combine_chunks())
        upserts = upserts.append_column("row_id", located["row_id"].take(places))
        upserts = upserts.append_column("replacing", pc.is_valid(places))
        lake = pa.concat_tables([self.room.rows(name) for name in older]) if older else None
        bad: list[pa.Table] = []
        try:
            rows = self._rows(oid, upserts, lake, bad)
            failpoints.hit("deliver.decoded", self.batch.mirrors[oid].name)
            to = rows_of(oid)
            yield from _written(to, self.target.write(to, rows))
            yield from _quarantine(self.target, oid, bad)
        except Exception as error:
            yield Failed(oid, Failure.of(table_error(error)))

    def _rows(self, oid: int, upserts: pa.Table, lake: pa.Table | None, bad: list[pa.Table]) -> list[Rows]:
        """Typed rows by relation version, with the row ids of those they replace; misfits are added to `bad`."""
        found = []
        mirror = self.batch.mirrors[oid]
        for relation in pc.unique(upserts["relation"]).to_pylist():
            part = upserts.filter(pc.equal(upserts["relation"], relation)).combine_chunks()
            typed = self.batch.reader.typed(mirror, part, lake)
            if typed.bad:
                lsns, keys = part["lsn"].to_numpy(), part["key"].combine_chunks()
                bad.append(_bad_rows(self.target.source, mirror, typed, lsns, keys))
            replacing = part["replacing"]
            found.append((typed.rows.filter(pc.invert(replacing)), None))
            found.append((typed.rows.filter(replacing), part["row_id"].filter(replacing).combine_chunks()))
        return [(rows, row_ids) for rows, row_ids in found if rows.num_rows]


@dataclass(frozen=True, slots=True)
class LocateAndWrite:
    """Both in one task, for a bucket that has its tables to itself, and few rows to search: it knows no others."""

    bucket: int
    places: tuple[Place, ...]
    locate: Locate
    write: WriteBucket

    def __call__(self) -> Iterator[Written | Failed | Searched]:
        begun = time.monotonic()
        located: list[pa.RecordBatch] = []
        older: defaultdict[int, list[str]] = defaultdict(list)
        failed: set[int] = set()
        for found in self.locate.found(self.places):
            match found:
                case pa.RecordBatch():
                    located.append(found)
                case Older(oid, name):
                    older[oid].append(name)
                case Failed(oid):
                    failed.add(oid)
                    yield found
                case _:
                    yield found
        searched = time.monotonic()
        kept = tuple(each for each in self.write.kept if each.oid not in failed)
        write = replace(self.write, kept=kept, older=older)
        yield from write.written(self.bucket, pa.Table.from_batches(located, LOCATED))
        yield Searched(searched - begun, time.monotonic() - begun)


@dataclass(frozen=True, slots=True)
class Append:
    """A unit of nothing but inserts, or of tables that keep their history → data files, in one go."""

    batch: Batch
    target: Target[Any]

    def __call__(self, unit: Any) -> Iterator[Written | Failed]:
        held: defaultdict[int, list[Rows]] = defaultdict(list)
        bad: defaultdict[int, list[pa.Table]] = defaultdict(list)
        size = 0
        failed: set[int] = set()
        for read in (each for reads in self.batch.reader.read(unit, self.batch.mirrors) for each in reads.each()):
            mirror = read.mirror
            if mirror.oid in failed:
                continue
            try:
                typed = self._typed(read)
                failpoints.hit("deliver.decoded", mirror.name)
                if typed.bad:
                    lsns = read.rows["commit_lsn"].to_numpy()
                    bad[mirror.oid].append(_bad_rows(self.target.source, mirror, typed, lsns, self._keys(read)))
            except Exception as error:
                failed.add(mirror.oid)
                held.pop(mirror.oid, None)
                yield Failed(mirror.oid, Failure.of(table_error(error)))
                continue
            held[mirror.oid].append((typed.rows, None))
            size += typed.rows.nbytes
            if size > APPEND_BYTES:
                yield from self._flush(held, bad)
                held.clear()
                bad.clear()
                size = 0
        yield from self._flush(held, bad)

    def _typed(self, read: Read) -> Typed:
        if read.mirror.history:
            return self.batch.reader.history(read)
        versions = pa.array(np.full(read.rows.num_rows, read.version))
        return self.batch.reader.typed(read.mirror, pa.table({"relation": versions, "message": read.rows["message"]}))

    def _keys(self, read: Read) -> pa.Array | None:
        """What the quarantine knows the rows by; those of a history are never replaced."""
        return None if read.mirror.history else self.batch.reader.keyed(read).key

    def _flush(self, held: Mapping[int, list[Rows]], bad: Mapping[int, list[pa.Table]]) -> Iterator[Written | Failed]:
        for oid, rows in held.items():
            try:
                yield from _written(rows_of(oid), self.target.write(rows_of(oid), rows))
                yield from _quarantine(self.target, oid, bad.get(oid, []))
            except Exception as error:
                yield Failed(oid, Failure.of(table_error(error)))


def _bad_rows(source: str, mirror: Mirror, typed: Typed, lsns: np.ndarray, keys: pa.Array | None) -> pa.Table:
    origin = Origin(source, mirror.oid, mirror.name, {column.name: column.attnum for column in mirror.columns})
    return quarantined(origin, typed.rows, mirror.key, typed.bad, lambda row: mirror.start.at(int(lsns[row])), keys)


def _quarantine(target: Target[Any], oid: int, bad: Sequence[pa.Table]) -> Iterator[Written]:
    """Values that the lake's types cannot hold."""
    if bad:
        yield from _written(misfits_of(oid), target.write(misfits_of(oid), [(each, None) for each in bad]))


def _written(to: Destination, reports: Sequence[bytes]) -> Iterator[Written]:
    return (Written(to, report) for report in reports)
