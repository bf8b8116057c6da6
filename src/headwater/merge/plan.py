"""The Spark plan of a batch: fold, locate, write. It is the same plan for one table and for a thousand.

The rows Spark moves have a fixed shape (`net.CHANGE`), and a change's bucket is a function of its table and key, so
all changes of a key meet in one task. The fold itself is done there, in Arrow: Spark's own `max_by` over binary
values falls back to a sort aggregation that took twice as long as shuffle and Arrow together.
Types are met at the two ends only: extracting the key, and decoding the rows that are left to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from headwater import failpoints
from headwater.lake.target import Place, Target
from headwater.merge.batch import Batch
from headwater.merge.net import CHANGE
from headwater.merge.resolve import Resolve
from headwater.merge.scratch import Kept, Scratch
from headwater.merge.spread import Size, buckets_for, spread
from headwater.merge.tasks import FOLDED, LOCATED, WRITTEN, Append, FoldBucket, Locate, Parse, WriteBucket
from headwater.spark import deal, on_tasks, spark_schema

__all__ = ["Merged", "merge"]

Bounds = tuple[int, int]
Places = Callable[[Mapping[int, Bounds | None]], Sequence[Place]]
Buckets = dict[int, tuple[int, ...]]


@dataclass(slots=True)
class Merged:
    """What the tasks did: the lake's own reports by table, and the tables that could not be done.

    Values that found no place are reported under the table's negative number; those of older batches that are settled
    now under 0. `needs_recopy` are the failed tables that only a new copy would help.
    """

    reports: dict[int, list[bytes]] = field(default_factory=dict)
    truncated: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    needs_recopy: set[int] = field(default_factory=set)

    def fail(self, row: Row) -> None:
        self.failed.setdefault(row.oid, row.error)
        if row.needs_recopy:
            self.needs_recopy.add(row.oid)


def merge(
    spark: SparkSession,
    batch: Batch,
    target: Target[Any],
    places: Places,
    scratch: str,
    quarantine: Sequence[Place] = (),
) -> Merged:
    """Fold the batch and write it out through `target`; nothing is visible before its reports are committed.

    `places` is asked for the lake files in which older rows may stand: by table, with the lowest and highest value of
    the key's first column among them, where that is known. `quarantine` are the files with values not settled yet.
    """
    merged = Merged()
    appended, folded = _parted(batch)
    if appended is not None:
        _collect(on_tasks(spark, _units(spark, appended), Append(appended, target), WRITTEN), merged)
    if folded is not None:
        with Scratch.opened(scratch) as room:
            _Merge(spark, folded, target, room, merged).run(places, quarantine)
    return merged


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


def _units(spark: SparkSession, batch: Batch) -> list[tuple[Any, ...]]:
    return deal([(each, each.bytes) for each in batch.segments], spark.sparkContext.defaultParallelism)


@dataclass(slots=True)
class _Merge:
    spark: SparkSession
    batch: Batch
    target: Target[Any]
    room: Scratch
    merged: Merged

    def run(self, places: Places, quarantine: Sequence[Place]) -> None:
        cores = self.spark.sparkContext.defaultParallelism
        sizes = {oid: Size(mirror.rows, mirror.bytes) for oid, mirror in self.batch.mirrors.items()}
        buckets = buckets_for(sizes.values(), cores)
        placed = spread(sizes, buckets)
        folded = self._fold(buckets, placed)
        scattered = {row.oid for row in folded if row.scattered}
        if scattered:  # rare: a row with values to be found elsewhere was given another key
            placed |= {oid: placed[oid][:1] for oid in scattered}
            folded = self._fold(buckets, placed)
        failpoints.hit("deliver.folded")
        self.merged.truncated = {row.oid for row in folded if row.truncated}
        for row in folded:
            if row.error is not None:
                self.merged.fail(row)
        self._write(folded, buckets, placed, places, quarantine)

    def _fold(self, buckets: int, placed: Buckets) -> list[Row]:
        parsed = on_tasks(self.spark, _units(self.spark, self.batch), Parse(self.batch, placed), CHANGE)
        changes = parsed.repartitionById(buckets, F.col("bucket"))
        return changes.mapInArrow(FoldBucket(self.batch, self.room, placed), spark_schema(FOLDED)).collect()

    def _write(
        self, folded: list[Row], buckets: int, placed: Buckets, places: Places, quarantine: Sequence[Place]
    ) -> None:
        batch, merged = self.batch, self.merged
        kept = tuple(Kept(row.bucket, row.oid, row.name, row.part) for row in folded if row.oid not in merged.failed)
        # A truncated table's files all go as they are: there is nothing to look for.
        searched = _bounds(row for row in folded if row.oid not in merged.truncated | merged.failed.keys())
        found = places(searched)
        bags = {oid for oid in searched if not batch.mirrors[oid].key}
        keyed = [(place, place.rows) for place in found if place.oid not in bags]
        # Every bucket must be woken to write, whether rows were found for it or not: the first unit sees to that.
        searches: list[Any] = [range(buckets), *deal(keyed, self.spark.sparkContext.defaultParallelism)]
        searches += [tuple(place for place in found if place.oid == oid) for oid in bags]
        if quarantine:
            searches.append(
                Resolve(batch, self.target, self.room, kept, frozenset(merged.truncated), tuple(quarantine))
            )
        based = frozenset(row.oid for row in folded if row.based)
        locate = Locate(batch, self.target, self.room, placed, kept, based)
        located = on_tasks(self.spark, searches, locate, LOCATED).repartitionById(buckets, F.col("bucket"))
        write = WriteBucket(batch, self.target, self.room, kept)
        _collect(located.mapInArrow(write, spark_schema(WRITTEN)), merged)


def _bounds(folded: Iterable[Any]) -> dict[int, Bounds | None]:
    """For each table with touched keys, the bounds over all its buckets."""
    found: dict[int, Bounds | None] = {}
    for row in folded:
        if row.touched:
            here = None if row.low is None else (row.low, row.high)
            known = found.get(row.oid, here)
            found[row.oid] = here and known and (min(here[0], known[0]), max(here[1], known[1]))
    return found


def _collect(written: DataFrame, merged: Merged) -> None:
    for row in written.collect():
        if row.error is not None:
            merged.fail(row)
        else:
            merged.reports.setdefault(row.oid, []).append(bytes(row.report))
