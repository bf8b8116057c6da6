"""Maintenance of a lake's table on Spark: a task for each of the files that come out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater import failpoints
from headwater.change import TableName
from headwater.lake.maintenance import Chores, Maintenance, MaintenancePolicy, MergeWriter, Ready, at_any_time
from headwater.spark import collected, on_tasks

__all__ = ["maintain", "merge_files"]

_REPORT = pa.schema([pa.field("report", pa.binary())])


def maintain(
    spark: Callable[[], SparkSession], maintenance: Maintenance, table: TableName, policy: MaintenancePolicy
) -> Chores:
    """Do what is worth doing in a table: merge its files, delete those of the lake that were merged long ago, expire
    snapshots, remove orphans.

    What a delivery changes meanwhile is left for the next time.
    """
    done = merge_files(spark, maintenance, table, policy)
    if policy.merge:
        done += maintenance.delete_replaced()
    if policy.expire is not None:
        done += maintenance.expire(table, policy.expire, policy.keep, policy.newest)
    if policy.orphans is not None:
        done += maintenance.remove_orphans(table, policy.orphans)
    return done


def merge_files(
    spark: Callable[[], SparkSession],
    maintenance: Maintenance,
    table: TableName,
    policy: MaintenancePolicy,
    most: int | None = None,
    between: Callable[[], AbstractContextManager[Ready]] = at_any_time,
) -> Chores:
    """Write files that take the place of others, or of rows in the catalog: of at most so many bins.

    They are committed inside `between`.
    """
    merging = maintenance.merging(table, policy, most)
    if merging is None:
        return Chores()
    job = on_tasks(spark(), merging.bins, _reported(merging.writer), _REPORT)
    reports = [row.report for row in collected(job)]
    failpoints.hit("maintain.written")
    with between() as ready:
        done = merging.commit(reports, ready)
    failpoints.hit("maintain.merged")
    return done


def _reported(writer: MergeWriter) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def work(bin: Any) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([writer.write(bin)], pa.binary())], schema=_REPORT)

    return work
