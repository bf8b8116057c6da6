"""After a crash: the files that killed polls have left in the lakes of their destinations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.errors import HeadwaterError
from headwater.lake.stream import Stream
from headwater.route.lakes import DestinationLake
from headwater.spark import collected, deal, on_tasks

__all__ = ["Collected", "collect_lakes"]

COLLECTED = pa.schema([("files", pa.int64()), ("error", pa.string())])


class Collected(NamedTuple):
    """How many files were deleted, and why not all of them could be; None: they were."""

    files: int
    failed: str | None


def collect_lakes(
    spark: SparkSession, lakes: Sequence[DestinationLake], stream: Stream[Any], attempts: Collection[str]
) -> Collected:
    """Delete what these attempts have written and no commit has registered. They can no longer be committed."""
    if not lakes:
        return Collected(0, None)
    units = deal([(lake, 1) for lake in lakes], spark.sparkContext.defaultParallelism * 4)
    rows = collected(on_tasks(spark, units, _CollectLakes(stream, tuple(attempts)), COLLECTED))
    failed = [row.error for row in rows if row.error is not None]
    return Collected(sum(row.files for row in rows), failed[0] if failed else None)


@dataclass(frozen=True, slots=True)
class _CollectLakes:
    stream: Stream[Any]
    attempts: tuple[str, ...]

    def __call__(self, lakes: Sequence[DestinationLake]) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, object]] = []
        for lake in lakes:
            try:
                rows.append({"files": self._files(lake)})
            except HeadwaterError as error:
                rows.append({"files": 0, "error": str(error)})
        yield pa.RecordBatch.from_pylist(rows, schema=COLLECTED)

    def _files(self, lake: DestinationLake) -> int:
        sink = lake.address.find(lake.source, self.stream)
        if sink is None:
            return 0  # it was never made
        with closing(sink):
            return sink.collect(self.attempts)
