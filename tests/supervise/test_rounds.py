"""Maintenance in `run`: units of work that end soon, and hold up deliveries only while they commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.sink.sinkbench import T
from tests.sink.test_ducklake_maintenance import Kept, kept_of

from headwater.ducklake.extension import attach, connect
from headwater.ducklake.opening import open_lake
from headwater.errors import CommitConflict
from headwater.lake.maintenance import FlushLimits, MaintenancePolicy, Ready
from headwater.supervise.rounds import SNAPSHOTS, TRIES, Rounds, Site

OLD = "2026-01-01 00:00:00.000000+00"


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """A lake whose deliveries go into its catalog."""
    with (
        closing(open_lake(f"sqlite:///{tmp_path}/lake.sqlite", str(tmp_path / "lake"))) as lake,
        connect(threads=1) as duck,
    ):
        attach(duck, lake.url, "l")
        yield replace(kept_of(lake, duck, inlined=True), most=200)


class Moments:
    """How often deliveries were held up. In the first `lost` ones, a delivery could not wait for the commit."""

    def __init__(self, lost: int = 0) -> None:
        self.count, self.lost = 0, lost

    @contextmanager
    def __call__(self, patience: float = 0) -> Iterator[Ready]:  # noqa: ARG002
        self.count += 1
        yield self.ready

    def ready(self) -> None:
        if self.count <= self.lost:
            raise CommitConflict("a delivery could not wait")


def site(kept: Kept, spark: SparkSession, policy: MaintenancePolicy, moments: Moments) -> Site:
    return Site(spark, kept.maintenance, lambda: policy, moments, lake_snapshots=True)


def with_old_snapshots(kept: Kept, count: int) -> None:
    """As if no one had touched the table for so many snapshots of the lake."""
    newest = kept.lake.snapshot()
    rows = [
        (newest.id + 1 + number, OLD, newest.schema_version, newest.next_catalog_id, newest.next_file_id)
        for number in range(count)
    ]
    columns = "snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id"
    kept.lake.changed_by(lambda tx: tx.insert("ducklake_snapshot", columns, rows))


def test_many_snapshots_expire_in_portions_and_other_work_has_its_turns_between_them(
    kept: Kept, spark: SparkSession
) -> None:
    kept.copy([(1, "copied")])
    with_old_snapshots(kept, 2 * SNAPSHOTS + 100)
    there, moments, rounds = len(kept.snapshots), Moments(), Rounds()
    policy = MaintenancePolicy(expire=timedelta(days=1), orphans=timedelta(days=1), merge=False)
    done = []
    while (unit := rounds.step(site(kept, spark, policy, moments))) is not None:
        done.append((unit.kind, unit.done.expired_snapshots))
    assert done[:2] == [("expire", SNAPSHOTS), ("orphans", 0)]
    expired = [count for kind, count in done if kind == "expire"]
    assert expired == [SNAPSHOTS, SNAPSHOTS, there - 1 - 2 * SNAPSHOTS]
    assert moments.count == 3
    assert len(kept.snapshots) == 1


def test_rows_that_come_all_the_time_are_flushed_once_in_a_round(kept: Kept, spark: SparkSession) -> None:
    kept.copy([(number, "copied") for number in range(10)])
    moments, rounds, policy = Moments(), Rounds(), MaintenancePolicy(merge=False, flush=FlushLimits(rows=5))
    for turn in range(4):
        kept.deliver(200 + turn, update=[(number, f"turn {turn}") for number in range(10)])
        unit = rounds.step(site(kept, spark, policy, moments))
        if turn == 0:
            assert unit is not None
            assert (unit.kind, unit.table, unit.done.flushed_rows) == ("flush", T, 10)
        else:
            assert unit is None or not unit.done
    assert moments.count == 1  # to see that nothing is due does not hold up deliveries


@pytest.mark.parametrize("lost", [1, 20], ids=["once", "always"])
def test_a_flush_that_a_delivery_could_not_wait_for_comes_again_soon_and_in_the_end_insists(
    lost: int, kept: Kept, spark: SparkSession
) -> None:
    kept.copy([])
    kept.deliver(200, insert=[(number, "new") for number in range(10)])
    moments, rounds, policy = Moments(lost), Rounds(), MaintenancePolicy(merge=False, flush=FlushLimits(rows=5))
    for _ in range(min(lost, TRIES)):
        with pytest.raises(CommitConflict):
            rounds.step(site(kept, spark, policy, moments))
        assert kept.maintenance.figures()[T].inlined_rows == 10
    unit = rounds.step(site(kept, spark, policy, moments))
    assert unit is not None
    assert unit.done.flushed_rows == 10
    assert kept.maintenance.collect() == min(lost, TRIES)  # files of those that were given up
