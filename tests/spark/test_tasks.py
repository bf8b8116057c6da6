"""Work on Spark's tasks, and what its workers keep from one task to the next."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.spark import collected, on_tasks

COUNTED = pa.schema([("frozen", pa.int64())])


def test_what_a_worker_has_imported_is_not_searched_for_garbage_after_every_task(spark: SparkSession) -> None:
    def frozen(_: object) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[gc.get_freeze_count()]], schema=COUNTED)

    collected(on_tasks(spark, [1], frozen, COUNTED))  # its worker may be new, and have frozen nothing yet
    (row,) = collected(on_tasks(spark, [1], frozen, COUNTED))
    assert row.frozen > 10_000
