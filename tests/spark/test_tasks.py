"""Work on Spark's tasks, and what its workers keep from one task to the next."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.spark import collected, on_tasks, run_tasks
from headwater.spark.tasks import JobCancelled

COUNTED = pa.schema([("frozen", pa.int64())])


def test_what_a_worker_has_imported_is_not_searched_for_garbage_after_every_task(spark: SparkSession) -> None:
    def frozen(_: object) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[gc.get_freeze_count()]], schema=COUNTED)

    collected(on_tasks(spark, [1], frozen, COUNTED))  # its worker may be new, and have frozen nothing yet
    (row,) = collected(on_tasks(spark, [1], frozen, COUNTED))
    assert row.frozen > 10_000


def test_a_job_that_we_cancel_has_not_died(spark: SparkSession) -> None:
    """Else the job would be tried again, for fewer tables each time."""

    def job() -> None:
        spark.sparkContext.setJobGroup("slow", "slow")
        run_tasks(spark, [[120.0]], partial(map, time.sleep))

    with ThreadPoolExecutor() as threads:
        running = threads.submit(job)
        while not running.done():
            spark.sparkContext.cancelJobGroup("slow")
            time.sleep(0.2)
        with pytest.raises(JobCancelled):
            running.result()
