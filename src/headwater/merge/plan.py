"""The jobs of a batch: fold, locate, write. They are the same for one table and for a thousand.

A change's bucket is a function of its table and key, so all changes of a key meet in one task. What one job's tasks
have for the buckets of the next goes through files (`exchange.py`); the driver sees reports only. A batch whose tables
are all small needs no exchange: each bucket's task reads, folds, searches and writes for its own tables.
Types are met at the two ends only: extracting the key, and decoding the rows that are left to write.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from headwater import failpoints
from headwater.lake.indexes import KeyIndexes
from headwater.lake.target import SETTLED, Place, Sought, Target
from headwater.merge.batch import Batch
from headwater.merge.exchange import Piece, by_bucket
from headwater.merge.locate import Locate, Older
from headwater.merge.outcome import Failed, Merged, Searched, Written, failures, located_share, reports_of
from headwater.merge.parse import FoldBucket, Folded, Parse, ParseAndFold
from headwater.merge.resolve import Resolve
from headwater.merge.scratch import Scratch
from headwater.merge.spread import SPLIT_FROM, Size, buckets_for, spread
from headwater.merge.write import Append, LocateAndWrite, WriteBucket
from headwater.spark import deal, run_tasks

__all__ = ["LakeSide", "merge"]

Buckets = Mapping[int, tuple[int, ...]]

SEARCHED_BY_WRITER = 500_000  # rows of the lake: searching more is worth a job of its own, on all cores


@dataclass(frozen=True, slots=True)
class LakeSide:
    """The lake, as far as a merge needs it.

    `places` is asked for the files in which older rows may stand: by table, with what is known about their keys.
    `quarantine` are the files with values not settled yet, `indexes` those of the files' keys, where workers find them.
    """

    target: Target[Any]
    places: Callable[[Mapping[int, Sought]], Sequence[Place]]
    quarantine: Sequence[Place] = ()
    indexes: KeyIndexes | None = None


def merge(spark: SparkSession, batch: Batch, lake: LakeSide, scratch: str, split_from: int = SPLIT_FROM) -> Merged:
    """Fold the batch and write it out; nothing is visible before the reports are committed.

    A table with `split_from` changes or more is divided among tasks.
    """
    appended, folded = _parted(batch)
    done = []
    if appended is not None:
        begun, units = time.monotonic(), appended.reader.units(_cores(spark))
        written = run_tasks(spark, units, Append(appended, lake.target))
        done.append(_outcome(written, write_seconds=time.monotonic() - begun))
    if folded is not None:
        with Scratch.opened(scratch) as room:
            done.append(_Merge(spark, folded, lake, room, split_from).run())
    return Merged(
        {to: reports for each in done for to, reports in each.reports.items()},
        frozenset().union(*(each.truncated for each in done)),
        {oid: failure for each in done for oid, failure in each.failed.items()},
        sum(each.locate_seconds for each in done),
        sum(each.write_seconds for each in done),
    )


def _parted(batch: Batch) -> tuple[Batch | None, Batch | None]:
    """What is only appended, and what must be folded first.

    When nothing is updated or deleted none of the keys can be in the lake: no fold, no exchange, no search.
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
    split_from: int

    def run(self) -> Merged:
        sizes = {oid: Size(mirror.rows, mirror.bytes) for oid, mirror in self.batch.mirrors.items()}
        buckets = buckets_for(sizes.values(), _cores(self.spark), self.split_from)
        placed = spread(sizes, buckets, self.split_from)
        # Each bucket has its tables to itself. More buckets than cores would each open all segments.
        whole = buckets <= _cores(self.spark) and all(len(each) == 1 for each in placed.values())
        folded = self._fold(placed, whole=whole)
        scattered = {each.kept.oid for each in folded if isinstance(each, Folded) and each.scattered}
        if scattered:  # rare: a row with values to be found elsewhere was given another key
            placed |= {oid: placed[oid][:1] for oid in scattered}
            folded = self._fold(placed, whole=False)
        failpoints.hit("deliver.folded")
        return self._write(folded, placed, whole=whole)

    def _fold(self, placed: Buckets, *, whole: bool) -> list[Folded | Failed]:
        if whole:
            work = [
                self._parse_and_fold(*mine, changes)
                for changes in self.batch.reader.units(1)
                for mine in _by_bucket(placed)
            ]
            return run_tasks(self.spark, work, _called) if work else []
        parse = Parse(self.batch, placed, self.room)
        fold = FoldBucket(self.batch, self.lake.target, self.room, placed)
        pieces = by_bucket(run_tasks(self.spark, self.batch.reader.units(_cores(self.spark)), parse))
        return run_tasks(self.spark, list(pieces.values()), fold)

    def _parse_and_fold(self, bucket: int, placed: Buckets, changes: Any) -> ParseAndFold:
        batch, target = self.batch.only(placed.keys()), self.lake.target.only(placed.keys())
        fold = FoldBucket(batch, target, self.room, placed)
        return ParseAndFold(bucket, Parse(batch, placed, self.room), fold, changes)

    def _write(self, found: list[Folded | Failed], placed: Buckets, *, whole: bool) -> Merged:
        failed = failures(found)
        folded = [each for each in found if isinstance(each, Folded) and each.kept.oid not in failed]
        truncated = frozenset(each.kept.oid for each in folded if each.truncated)
        kept = tuple(each.kept for each in folded)
        begun = time.monotonic()
        # A truncated table's files all go as they are: there is nothing to look for.
        places = self.lake.places(_sought(each for each in folded if each.kept.oid not in truncated))
        based = frozenset(each.kept.oid for each in folded if each.based)
        locate = Locate(self.batch, self.lake.target, self.room, placed, kept, based, self.lake.indexes)
        write = WriteBucket(self.batch, self.lake.target, self.room, kept, {})
        resolve = Resolve(self.batch, self.lake.target, self.room, kept, truncated, tuple(self.lake.quarantine))
        asked = time.monotonic() - begun
        if whole and sum(place.rows for place in places) <= SEARCHED_BY_WRITER:
            done = self._written_at_once(locate, write, resolve, places)
        else:
            done = self._written(locate, write, resolve, places)
        located = done.locate_seconds + asked
        return replace(done, truncated=truncated, failed={**done.failed, **failed}, locate_seconds=located)

    def _written_at_once(self, locate: Locate, write: WriteBucket, resolve: Resolve, places: Sequence[Place]) -> Merged:
        begun = time.monotonic()
        mine: defaultdict[int, list[Place]] = defaultdict(list)
        for place in places:
            assert place.oid is not None
            mine[locate.placed[place.oid][0]].append(place)
        placed = dict(_by_bucket(locate.placed))
        units = [
            _locate_and_write(bucket, tuple(mine[bucket]), locate.only(placed[bucket]), write)
            for bucket in _buckets(write)
        ]
        written = run_tasks(self.spark, [*units, *_if_any(resolve)], _OrResolve(_called))
        spent, share = time.monotonic() - begun, located_share(written)
        return _outcome(written, locate_seconds=spent * share, write_seconds=spent * (1 - share))

    def _written(self, locate: Locate, write: WriteBucket, resolve: Resolve, places: Sequence[Place]) -> Merged:
        begun = time.monotonic()
        units = [*self._searches(places), *_if_any(resolve)]
        located = run_tasks(self.spark, units, _OrResolve(locate))
        searched = time.monotonic()
        reported = [each for each in located if isinstance(each, Written | Failed)]
        failed, older = failures(located), defaultdict[int, list[str]](list)
        for each in located:
            if isinstance(each, Older):
                older[each.oid].append(each.name)
        write = replace(write, kept=tuple(each for each in write.kept if each.oid not in failed), older=dict(older))
        pieces = by_bucket(each for each in located if isinstance(each, Piece))
        buckets = [(bucket, pieces.get(bucket, ())) for bucket in _buckets(write)]
        written = [*reported, *run_tasks(self.spark, buckets, write)]
        return _outcome(written, locate_seconds=searched - begun, write_seconds=time.monotonic() - searched)

    def _searches(self, places: Sequence[Place]) -> list[tuple[Place, ...]]:
        """The files to search, dealt to tasks; all files of a table without a key go to one."""
        bags: defaultdict[int | None, list[Place]] = defaultdict(list)
        keyed = []
        for place in places:
            if place.oid is not None and self.batch.mirrors[place.oid].key:
                keyed.append((place, place.rows))
            else:
                bags[place.oid].append(place)
        return [*deal(keyed, _cores(self.spark)), *map(tuple, bags.values())]


def _by_bucket(placed: Buckets) -> list[tuple[int, dict[int, tuple[int, ...]]]]:
    """The tables that each bucket has, where each has its tables to itself."""
    found: defaultdict[int, dict[int, tuple[int, ...]]] = defaultdict(dict)
    for oid, buckets in placed.items():
        found[buckets[0]][oid] = buckets
    return sorted(found.items())


def _locate_and_write(bucket: int, places: tuple[Place, ...], locate: Locate, write: WriteBucket) -> LocateAndWrite:
    mine = replace(write, batch=locate.batch, target=locate.target, kept=locate.kept)
    return LocateAndWrite(bucket, places, locate, mine)


def _called(unit: Callable[[], Iterable[Any]]) -> Iterable[Any]:
    """The work of a task that comes with all it needs."""
    return unit()


def _buckets(write: WriteBucket) -> list[int]:
    """Those in which there is something to write."""
    return sorted({each.bucket for each in write.kept})


def _if_any(resolve: Resolve) -> list[Resolve]:
    return [resolve] if resolve.places else []


@dataclass(frozen=True, slots=True)
class _OrResolve:
    """The work of a job's tasks, one of which may be for the quarantine."""

    work: Callable[[Any], Iterable[Any]]

    def __call__(self, unit: Any) -> Iterator[Any]:
        if isinstance(unit, Resolve):
            yield from (Written(SETTLED, report) for report in unit())
        else:
            yield from self.work(unit)


def _sought(folded: Iterable[Folded]) -> dict[int, Sought]:
    """For each table with touched keys, what is known about them over all its buckets."""
    found: dict[int, Sought] = {}
    for each in folded:
        if each.touched:
            here = Sought(each.bounds, each.partitions)
            known = found.get(each.kept.oid, here)
            bounds = _hull(known.bounds, here.bounds)
            found[each.kept.oid] = Sought(bounds, known.partitions and known.partitions | here.partitions)
    return found


def _hull(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    return one and other and (min(one[0], other[0]), max(one[1], other[1]))


def _outcome(
    written: Sequence[Written | Failed | Searched], *, locate_seconds: float = 0.0, write_seconds: float = 0.0
) -> Merged:
    return Merged(
        reports_of(written), failed=failures(written), locate_seconds=locate_seconds, write_seconds=write_seconds
    )
