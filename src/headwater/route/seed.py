"""Seeding: the source at one position becomes the tables of any number of destinations, by one scan.

Nothing is visible in a lake before its commit, which brings the table, all its rows and the position at once, in place
of what the destination had before. A seed that is killed leaves files that no commit has registered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater import failpoints
from headwater.change import Position
from headwater.errors import AlreadyDelivered, CommitConflict, CommitUnknown, HeadwaterError, TableError, TimedOut
from headwater.lake.sink import Copy, MirrorSpec, Sink
from headwater.lake.stream import Stream
from headwater.lake.target import Target, rows_of
from headwater.route.lakes import DestinationLake
from headwater.route.net import DESTINATION, rows_of_events
from headwater.route.reading import Buckets, Reading, routed, survey, unpacked
from headwater.route.share import RoutedTable
from headwater.spark import collected, on_partitions
from headwater.spark.faults import table_error
from headwater.values.keys import known_by

__all__ = ["Seed", "Seeded", "seed"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

ROWS_PER_PIECE = 1_000_000  # of one destination that a task checks and writes
LAKES_AT_ONCE = 8

WRITTEN = pa.schema(
    [("destination", pa.int32()), ("rows", pa.int64()), ("report", pa.binary()), ("error", pa.string())]
)


@dataclass(frozen=True, slots=True)
class Seed:
    """The table as it is at a position, and the lakes that get it, by the numbers of the destinations.

    Without units in `reading` the tables are empty: the destinations then get what changes from there on.
    """

    table: RoutedTable
    reading: Reading
    at: Position
    lakes: Mapping[int, DestinationLake]
    stream: Stream[Any]
    attempt: str


class Seeded(NamedTuple):
    """What became of a destination: the rows that it got, or why it got none."""

    rows: int = 0
    error: str | None = None


def seed(spark: SparkSession, seed: Seed) -> dict[int, Seeded]:
    """Seed the destinations. What one of them meets stops no other."""
    with ThreadPoolExecutor(LAKES_AT_ONCE) as pool:
        opened = pool.map(lambda number: (number, _begun(seed, number)), seed.lakes)
        begun = dict(reported(opened, "seeding: %s of %s lakes are open", len(seed.lakes)))
        failed = {number: Seeded(error=each) for number, each in begun.items() if isinstance(each, str)}
        ready = {number: each for number, each in begun.items() if not isinstance(each, str)}
        written = _written(spark, seed, {number: each.copy.target for number, each in ready.items()})
        failpoints.hit("seed.written")
        landed = pool.map(lambda number: (number, _landed(seed, ready[number], written[number])), ready)
        done = dict(reported(landed, "seeding: %s of %s lakes have their rows", len(ready)))
    return failed | done


def reported(results: Iterable[Result], line: str, of: int, every: float = 10.0) -> Iterator[Result]:
    """The results as they come, with a line in the log every few seconds: a thousand new lakes take minutes."""
    said = time.monotonic()
    for count, each in enumerate(results, 1):
        if time.monotonic() - said >= every:
            said = time.monotonic()
            logger.info(line, f"{count:,}", f"{of:,}")
        yield each


@dataclass(frozen=True, slots=True)
class _Begun:
    sink: Sink[Any, Any]
    copy: Copy[Any]


@dataclass(slots=True)
class _Written:
    """What tasks have written for a destination."""

    rows: int = 0
    reports: list[bytes] | None = None
    error: str | None = None


def _begun(seed: Seed, number: int) -> _Begun | str:
    """The destination's lake, opened and created when missing, with the new table prepared; or why that cannot be."""
    lake = seed.lakes[number]
    try:
        sink = lake.open(seed.stream)
        with sink.at_once():
            here = sink.standings()
            sink.names(here).take(lake.table)
            older = tuple(oid for oid in here if oid != seed.table.relation.oid)
            mirror = sink.new_mirror(MirrorSpec(seed.table.relation, seed.table.kinds, lake.table, replaces=older))
            return _Begun(sink, sink.begin_copy([mirror], {}, attempt=seed.attempt))
    except HeadwaterError as error:
        return str(error)


def _written(spark: SparkSession, seed: Seed, targets: Mapping[int, Target[Any]]) -> dict[int, _Written]:
    found = {number: _Written(reports=[]) for number in targets}
    if not targets or not seed.reading.units:
        return found
    rows = survey(spark, seed.reading).waiting
    reading = replace(seed.reading, after={number: seed.reading.after[number] for number in targets})
    pieces = {number: -(-rows[number] // ROWS_PER_PIECE) for number in targets if rows[number] > ROWS_PER_PIECE}
    cores = spark.sparkContext.defaultParallelism
    most = max(cores * 4, sum(pieces.values()), -(-sum(rows[number] for number in targets) // ROWS_PER_PIECE))
    buckets = Buckets(most, pieces, seed.table.key_kinds)
    events = routed(spark, reading, buckets).repartitionById(buckets.count, F.col("bucket"))
    for row in collected(on_partitions(events, _WriteBucket(seed.table, targets), WRITTEN)):
        each = found[row.destination]
        each.rows += row.rows or 0
        each.error = each.error or row.error
        if row.report is not None and each.reports is not None:
            each.reports.append(bytes(row.report))
    return found


@dataclass(frozen=True, slots=True)
class _WriteBucket:
    """Rows of some destinations → files; those whose keys are not unique get an error instead."""

    table: RoutedTable
    targets: Mapping[int, Target[Any]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = [unpacked(each.as_buffer()) for batch in batches for each in batch["events"] if each.is_valid]
        if not pieces:
            return
        rows = pa.concat_tables(pieces)
        for number in pc.unique(rows[DESTINATION]).to_pylist():
            mine = rows.filter(pc.equal(rows[DESTINATION], number)).combine_chunks()
            yield pa.RecordBatch.from_pylist(self._write(number, mine), schema=WRITTEN)

    def _write(self, number: int, rows: pa.Table) -> list[dict[str, object]]:
        rows = rows_of_events(rows)
        found: list[dict[str, object]] = [{"destination": number, "rows": rows.num_rows}]
        try:
            check_unique(rows, self.table)
            to = rows_of(self.table.relation.oid)
            reports = self.targets[number].write(to, [(rows, None)])
            found += [{"destination": number, "report": each} for each in reports]
        except Exception as error:
            found.append({"destination": number, "error": str(table_error(error))})
        return found


def check_unique(rows: pa.Table, table: RoutedTable) -> None:
    """TableError if two rows have the same key."""
    if not table.key:
        return
    keys = known_by([rows[name].combine_chunks() for name in table.key], list(table.key_kinds.values()))
    codes = keys.dictionary_encode()
    if len(codes.dictionary) == len(keys):
        return
    counts = codes.indices.value_counts()
    code = counts.field("values").filter(pc.greater(counts.field("counts"), 1))[0]
    first = pc.index(codes.indices, code).as_py()
    values = ", ".join(f"{name} = {rows[name][first].as_py()!r}" for name in table.key)
    raise TableError(
        f"several rows of {table.relation.table} have the same key: {values}",
        hint="name columns under `keys` that identify a row, or remove the doubled rows from the source",
    )


def _landed(seed: Seed, begun: _Begun, written: _Written) -> Seeded:
    """Commit what was written; nothing of it stays if that is not possible."""
    oid = seed.table.relation.oid
    reports = {rows_of(oid): written.reports or []}
    try:
        if written.error is not None:
            begun.copy.discard(reports)
            return Seeded(error=written.error)
        with begun.sink.kept_open():
            begun.copy.commit({oid: seed.at}, reports)
        return Seeded(written.rows)
    except CommitUnknown as error:
        return Seeded(written.rows) if _stands(begun.sink, oid, seed.at) else Seeded(error=str(error))
    except (CommitConflict, AlreadyDelivered, TableError, TimedOut) as error:
        begun.copy.discard(reports)
        return Seeded(error=str(error))
    except HeadwaterError as error:
        return Seeded(error=str(error))
    finally:
        begun.sink.close()


def _stands(sink: Sink[Any, Any], oid: int, at: Position) -> bool:
    """Whether the destination is known to be where the seed brings it."""
    try:
        standing = sink.standings().get(oid)
    except HeadwaterError:  # then it is seeded once more
        return False
    return standing is not None and standing.position == at
