"""After a crash: the files that killed polls have left in the lakes of their destinations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.errors import HeadwaterError, TimedOut
from headwater.lake.stream import Stream
from headwater.route.lakes import DestinationLake
from headwater.spark import collected, deal, on_tasks

__all__ = ["Collected", "collect_lakes"]

LAKES_AT_ONCE = 8  # in one task
COLLECTED = pa.schema([("lake", pa.int32()), ("files", pa.int64()), ("error", pa.string()), ("timed_out", pa.bool_())])


class Collected(NamedTuple):
    """How many files were deleted; by the lakes' numbers, why not all of them could be, and who kept us waiting."""

    files: int
    failed: Mapping[int, str]
    timed_out: frozenset[int]


def collect_lakes(
    spark: SparkSession, lakes: Sequence[DestinationLake], stream: Stream[Any], attempts: Collection[str]
) -> Collected:
    """Delete what these attempts have written and no commit has registered. They can no longer be committed."""
    if not lakes:
        return Collected(0, {}, frozenset())
    units = deal([(each, 1) for each in enumerate(lakes)], spark.sparkContext.defaultParallelism * 4)
    rows = collected(on_tasks(spark, units, _CollectLakes(stream, tuple(attempts)), COLLECTED))
    failed = {row.lake: row.error for row in rows if row.error is not None}
    return Collected(sum(row.files for row in rows), failed, frozenset(row.lake for row in rows if row.timed_out))


@dataclass(frozen=True, slots=True)
class _CollectLakes:
    stream: Stream[Any]
    attempts: tuple[str, ...]

    def __call__(self, lakes: Sequence[tuple[int, DestinationLake]]) -> Iterator[pa.RecordBatch]:
        with ThreadPoolExecutor(LAKES_AT_ONCE) as pool:
            rows = list(pool.map(lambda each: self._done(*each), lakes))
        yield pa.RecordBatch.from_pylist(rows, schema=COLLECTED)

    def _done(self, number: int, lake: DestinationLake) -> dict[str, object]:
        try:
            return {"lake": number, "files": self._files(lake)}
        except HeadwaterError as error:
            return {"lake": number, "files": 0, "error": str(error), "timed_out": isinstance(error, TimedOut)}

    def _files(self, lake: DestinationLake) -> int:
        sink = lake.find(self.stream)
        if sink is None:
            return 0  # it was never made
        with closing(sink):
            return sink.collect(self.attempts)
