"""A few rows that change all the time, in a lake that keeps all snapshots: neither files nor flushes pile up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from headwater.ducklake.extension import attach, connect
from headwater.ducklake.opening import open_lake
from headwater.lake.maintenance import FlushLimits, MaintenancePolicy
from tests.sink.sinkbench import T
from tests.sink.test_ducklake_maintenance import AT_ONCE, DAY, Kept, kept_of

MOST = 100  # rows of the table in the catalog
FLUSH = MaintenancePolicy(merge=False, flush=FlushLimits.in_time(MOST, DAY))


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(threads=1) as con:
        yield con


@pytest.fixture
def hot(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> Iterator[Kept]:
    """A table of ten rows."""
    with closing(open_lake(f"sqlite:///{tmp_path}/lake.sqlite", str(tmp_path / "lake"))) as lake:
        attach(duck, lake.url, "l")
        kept = replace(kept_of(lake, duck, inlined=True), most=MOST)
        kept.copy([(number, "copied") for number in range(10)])
        yield kept
        duck.execute("DETACH l")


def deliver(kept: Kept, first: int, count: int) -> None:
    """So many deliveries, each of which changes all rows."""
    for turn in range(first, first + count):
        kept.deliver(200 + turn, update=[(number, f"turn {turn}") for number in range(10)])


def in_catalog(kept: Kept) -> tuple[int, int]:
    """Rows that are alive, and those that have ended."""
    found = kept.maintenance.figures()[T]
    return found.inlined_rows, found.old_rows


def test_versions_of_a_few_rows_stay_in_the_catalog_and_are_not_flushed_again_and_again(hot: Kept) -> None:
    files = hot.on_disk()
    for turn in range(0, 95, 5):
        deliver(hot, turn, 5)
        if turn >= 10:  # before, there are so few of each row that a flush would make a file of each
            assert hot.maintenance.merging(T, FLUSH) is None
    assert hot.on_disk() == files
    assert in_catalog(hot) == (10, 940)
    before, changes = hot.history(), hot.changes(2)
    assert hot.maintenance.merging(T, replace(FLUSH, flush=FlushLimits.in_time(MOST, AT_ONCE))) is not None  # by age
    assert hot.merge().flushed_rows == 10
    assert in_catalog(hot) == (0, 940)
    assert hot.changes(2) == changes
    assert {id_: rows for id_, rows in hot.history().items() if id_ in before} == before


def test_versions_of_many_rows_leave_the_catalog_though_a_few_have_very_many(hot: Kept) -> None:
    hot = replace(hot, most=10_000)
    deliver(hot, 0, 20)
    hot.deliver(300, insert=[(number, "new") for number in range(100, 240)])
    assert hot.merge().flushed_rows == 150  # those that are alive
    for turn in range(3):
        hot.deliver(301 + turn, update=[(number, f"again {turn}") for number in range(100, 240)])
    before, changes = hot.history(), hot.changes(2)
    merging = hot.maintenance.merging(T, replace(FLUSH, flush=replace(FLUSH.flush or FlushLimits(), ended_only=True)))
    assert merging is not None
    assert (
        merging.commit([merging.writer.write(each) for each in merging.bins]).flushed_rows == 140 + 150 + 150
    )  # alive, and two layers
    assert in_catalog(hot) == (0, 190 + 280 - 300)
    assert hot.changes(2) == changes
    assert {id_: rows for id_, rows in hot.history().items() if id_ in before} == before


def test_so_many_versions_that_readers_would_notice_are_not_kept_in_the_catalog_until_they_expire(hot: Kept) -> None:
    deliver(hot, 0, 120)
    assert in_catalog(hot) == (0, 1020)  # ten times what else may be there
    assert len(hot.data_files) == 1  # those of the others have ended
    before, changes = hot.history(), hot.changes(2)
    hot.merge()
    assert hot.changes(2) == changes
    assert {id_: rows for id_, rows in hot.history().items() if id_ in before} == before
    hot.maintenance.expire(T, timedelta(0))
    assert in_catalog(hot) == (0, 0)
    files = hot.on_disk()
    deliver(hot, 200, 3)
    assert hot.on_disk() == files
    assert {row["v"] for row in hot.read(T)} == {"turn 202"}
