"""Maintenance of a lake's table on Spark: a task for each of the files that come out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater import failpoints
from headwater.change import TableName
from headwater.lake.maintenance import Chores, Maintenance, MaintenancePolicy, MergeWriter
from headwater.spark import collected, on_tasks

__all__ = ["maintain"]

_REPORT = pa.schema([pa.field("report", pa.binary())])


def maintain(
    spark: Callable[[], SparkSession],
    maintenance: Maintenance,
    table: TableName,
    policy: MaintenancePolicy,
    most: int | None = None,
) -> Chores:
    """Do what is worth doing in a table: merge its files, of at most so many bins, expire snapshots, remove orphans.

    What a delivery changes meanwhile is left for the next time.
    """
    done = _merge(spark, maintenance, table, policy, most)
    if policy.expire is not None:
        done += maintenance.expire(table, policy.expire, policy.keep)
    if policy.orphans is not None:
        done += maintenance.remove_orphans(table, policy.orphans)
    return done


def _merge(
    spark: Callable[[], SparkSession],
    maintenance: Maintenance,
    table: TableName,
    policy: MaintenancePolicy,
    most: int | None,
) -> Chores:
    merging = maintenance.merging(table, policy, most)
    if merging is None:
        return Chores()
    job = on_tasks(spark(), merging.bins, _reported(merging.writer), _REPORT)
    reports = [row.report for row in collected(job)]
    failpoints.hit("maintain.written")
    done = merging.commit(reports)
    failpoints.hit("maintain.merged")
    return done


def _reported(writer: MergeWriter) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def work(bin: Any) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([writer.write(bin)], pa.binary())], schema=_REPORT)

    return work
