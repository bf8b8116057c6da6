"""Which snapshots expire: only what is promised to no reader, whoever has made branches, tags and commits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from headwater.iceberg.retention import expired, pruned

TAG, BRANCH = SnapshotRefType.TAG, SnapshotRefType.BRANCH


def table(
    *snapshots: tuple[int, int | None, int],
    current: int = 0,
    refs: Mapping[str, tuple[int, SnapshotRefType]] | None = None,
    properties: Mapping[str, str] | None = None,
) -> TableMetadata:
    """A table with snapshots, each with its number, its parent and the time of its commit."""
    empty = new_table_metadata(
        Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "/t", dict(properties or {})
    )
    made = [
        Snapshot(
            snapshot_id=id_,
            parent_snapshot_id=parent,
            timestamp_ms=time,
            manifest_list=f"/{id_}",
            sequence_number=id_,
            summary=Summary(Operation.APPEND),
        )
        for id_, parent, time in snapshots
    ]
    heads = {
        name: SnapshotRef.model_validate({"snapshot-id": id_, "type": kind})
        for name, (id_, kind) in (refs or {}).items()
    }
    newest = current or (snapshots[-1][0] if snapshots else None)
    return empty.model_copy(update={"snapshots": made, "current_snapshot_id": newest, "refs": heads})


LINE = [(1, None, 10), (2, 1, 20), (3, 2, 30), (4, 3, 40)]


@pytest.mark.parametrize(
    ("before", "gone"),
    [(0, []), (20, []), (21, [1]), (30, [1]), (31, [1, 2]), (41, [1, 2, 3]), (1000, [1, 2, 3])],
)
def test_a_snapshot_expires_by_the_time_when_the_next_one_replaced_it(before: int, gone: list[int]) -> None:
    assert expired(table(*LINE), before) == gone


def test_a_table_without_snapshots_has_none_to_expire() -> None:
    assert expired(table(), 1000) == []


def test_as_many_as_asked_for_stay() -> None:
    assert expired(table(*LINE), 1000, keep=3) == [1]


def test_what_other_branches_and_tags_have_stays() -> None:
    tagged = table(*LINE, refs={"main": (4, BRANCH), "audit": (1, TAG)})
    assert expired(tagged, 1000) == [2, 3]
    branched = table(*LINE, (5, 2, 25), current=4, refs={"main": (4, BRANCH), "test": (5, BRANCH)})
    assert expired(branched, 1000) == [3]


def test_the_way_from_the_newest_snapshot_to_the_one_that_is_needed_stays_whole() -> None:
    assert expired(table(*LINE), 1000, needed=lambda each: each.snapshot_id == 2) == [1]


def test_snapshots_that_another_client_rolled_back_expire_by_their_own_age() -> None:
    rolled_back = table(*LINE, (5, 2, 50), current=5)
    assert expired(rolled_back, 35) == [1, 3]


def lines(count: int) -> list[tuple[int, int | None, int]]:
    return [(number, number - 1 or None, number) for number in range(1, count + 1)]


KEEP_10 = {"history.expire.min-snapshots-to-keep": "10"}
NOW = datetime.fromtimestamp(0.060, UTC)


@pytest.mark.parametrize(
    ("count", "properties", "gone"),
    [
        (34, KEEP_10, 0),
        (35, KEEP_10, 25),
        (60, {}, 0),
        (60, {"history.expire.min-snapshots-to-keep": "all of them"}, 0),
        (60, {**KEEP_10, "history.expire.max-snapshot-age-ms": "30"}, 28),
    ],
    ids=["few", "too many", "no limit", "not a number", "young ones stay"],
)
def test_a_commit_removes_snapshots_now_and_then(count: int, properties: dict[str, str], gone: int) -> None:
    assert pruned(table(*lines(count), properties=properties), NOW) == list(range(1, gone + 1))
