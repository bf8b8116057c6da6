"""The Spark plan of a batch: fold, locate, write. It is the same plan for one table and for a thousand.

The rows that Spark moves have fixed columns (`shuffle.SHUFFLED`), and a change's bucket is a function of its table and
key, so all changes of a key meet in one task. The fold itself is done there, in Arrow: Spark's own `max_by` over binary
values falls back to a sort aggregation that took twice as long as shuffle and Arrow together.
Types are met at the two ends only: extracting the key, and decoding the rows that are left to write.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from headwater import failpoints
from headwater.lake.target import Destination, Place, Sought, Target
from headwater.merge.batch import Batch
from headwater.merge.locate import LOCATED, Locate
from headwater.merge.outcome import Failure, Merged
from headwater.merge.parse import FOLDED, FoldBucket, Parse
from headwater.merge.resolve import Resolve
from headwater.merge.scratch import Kept, Scratch
from headwater.merge.shuffle import SHUFFLED
from headwater.merge.spread import Size, buckets_for, spread
from headwater.merge.write import WRITTEN, Append, WriteBucket
from headwater.spark import collected, deal, on_partitions, on_tasks

__all__ = ["LakeSide", "merge"]

Buckets = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class LakeSide:
    """The lake, as far as a merge needs it.

    `places` is asked for the files in which older rows may stand: by table, with what is known about their keys.
    `quarantine` are the files with values not settled yet.
    """

    target: Target[Any]
    places: Callable[[Mapping[int, Sought]], Sequence[Place]]
    quarantine: Sequence[Place] = ()


def merge(spark: SparkSession, batch: Batch, lake: LakeSide, scratch: str) -> Merged:
    """Fold the batch and write it out; nothing is visible before the reports are committed."""
    appended, folded = _parted(batch)
    done = []
    if appended is not None:
        units = appended.reader.units(_cores(spark))
        done.append(_outcome(on_tasks(spark, units, Append(appended, lake.target), WRITTEN)))
    if folded is not None:
        with Scratch.opened(scratch) as room:
            done.append(_Merge(spark, folded, lake, room).run())
    return Merged(
        {to: reports for each in done for to, reports in each.reports.items()},
        frozenset().union(*(each.truncated for each in done)),
        {oid: failure for each in done for oid, failure in each.failed.items()},
    )


def _parted(batch: Batch) -> tuple[Batch | None, Batch | None]:
    """What is only appended, and what must be folded first.

    When nothing is updated or deleted none of the keys can be in the lake: no fold, no shuffle, no search.
    """
    mirrors = batch.mirrors
    if all(mirror.history or mirror.inserts_only for mirror in mirrors.values()):
        return batch, None
    histories = {oid: mirror for oid, mirror in mirrors.items() if mirror.history}
    others = {oid: mirror for oid, mirror in mirrors.items() if not mirror.history}
    return replace(batch, mirrors=histories) if histories else None, replace(batch, mirrors=others)


def _cores(spark: SparkSession) -> int:
    return spark.sparkContext.defaultParallelism


@dataclass(frozen=True, slots=True)
class _Merge:
    spark: SparkSession
    batch: Batch
    lake: LakeSide
    room: Scratch

    def run(self) -> Merged:
        sizes = {oid: Size(mirror.rows, mirror.bytes) for oid, mirror in self.batch.mirrors.items()}
        buckets = buckets_for(sizes.values(), _cores(self.spark))
        placed = spread(sizes, buckets)
        folded = self._fold(buckets, placed)
        scattered = {row.oid for row in folded if row.scattered}
        if scattered:  # rare: a row with values to be found elsewhere was given another key
            placed |= {oid: placed[oid][:1] for oid in scattered}
            folded = self._fold(buckets, placed)
        failpoints.hit("deliver.folded")
        return self._write(folded, buckets, placed)

    def _fold(self, buckets: int, placed: Buckets) -> list[Row]:
        units = self.batch.reader.units(_cores(self.spark))
        parsed = on_tasks(self.spark, units, Parse(self.batch, placed), SHUFFLED)
        changes = parsed.repartitionById(buckets, F.col("bucket"))
        fold = FoldBucket(self.batch, self.lake.target, self.room, placed)
        return collected(on_partitions(changes, fold, FOLDED))

    def _write(self, folded: list[Row], buckets: int, placed: Buckets) -> Merged:
        failed = _failed(folded)
        truncated = frozenset(row.oid for row in folded if row.truncated)
        kept = tuple(Kept(row.bucket, row.oid, row.name, row.number) for row in folded if row.oid not in failed)
        # A truncated table's files all go as they are: there is nothing to look for.
        searched = _sought(row for row in folded if row.oid not in truncated | failed.keys())
        # Every bucket must be woken to write, whether rows were found for it or not: the first unit sees to that.
        units: list[Any] = [range(buckets), *self._searches(searched)]
        if self.lake.quarantine:
            places = tuple(self.lake.quarantine)
            units.append(Resolve(self.batch, self.lake.target, self.room, kept, truncated, places))
        based = frozenset(row.oid for row in folded if row.based)
        locate = Locate(self.batch, self.lake.target, self.room, placed, kept, based)
        located = on_tasks(self.spark, units, locate, LOCATED).repartitionById(buckets, F.col("bucket"))
        write = WriteBucket(self.batch, self.lake.target, self.room, kept)
        written = _outcome(on_partitions(located, write, WRITTEN))
        return Merged(written.reports, truncated, {**written.failed, **failed})

    def _searches(self, searched: Mapping[int, Sought]) -> list[tuple[Place, ...]]:
        """The files to search, dealt to tasks; all files of a table without a key go to one."""
        found = self.lake.places(searched)
        bags = {oid for oid in searched if not self.batch.mirrors[oid].key}
        keyed = deal([(place, place.rows) for place in found if place.oid not in bags], _cores(self.spark))
        return [*keyed, *(tuple(place for place in found if place.oid == oid) for oid in bags)]


def _sought(folded: Iterable[Any]) -> dict[int, Sought]:
    """For each table with touched keys, what is known about them over all its buckets."""
    found: dict[int, Sought] = {}
    for row in folded:
        if row.touched:
            here = None if row.low is None else (row.low, row.high)
            partitions = row.partitions and pickle.loads(row.partitions)
            known = found.get(row.oid, Sought(here, partitions))
            bounds = here and known.bounds and (min(here[0], known.bounds[0]), max(here[1], known.bounds[1]))
            found[row.oid] = Sought(bounds, known.partitions and known.partitions | partitions)
    return found


def _failed(rows: Iterable[Row]) -> dict[int, Failure]:
    """The first failure of each table; if any of them needs a new copy, the table does."""
    found: dict[int, Failure] = {}
    for row in rows:
        if row.error is not None:
            first = found.get(row.oid, Failure(row.error))
            found[row.oid] = replace(first, needs_recopy=first.needs_recopy or bool(row.needs_recopy))
    return found


def _outcome(written: DataFrame) -> Merged:
    rows = collected(written)
    reports: dict[Destination, list[bytes]] = {}
    for row in rows:
        if row.error is None:
            reports.setdefault(Destination(row.oid, row.part), []).append(bytes(row.report))
    return Merged(reports, failed=_failed(rows))
