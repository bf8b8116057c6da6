"""Versions of rows, dates of deletes and weights of snapshots, in plain numbers."""

from __future__ import annotations

import numpy as np
import pytest

from headwater.feed.dating import DeleteLog
from headwater.feed.planning import Bound, Weights
from headwater.feed.spans import NEVER, Moment, Span


@pytest.mark.parametrize(
    ("made", "ended", "events"),
    [
        (3, NEVER, []),  # older than the span
        (3, 5, []),
        (3, 6, [(6, "delete")]),
        (5, 9, []),  # newer than the span ended it
        (6, NEVER, [(6, "upsert")]),
        (6, 7, [(6, "upsert"), (7, "delete")]),
        (6, 6, []),  # never shown
        (7, 6, []),
        (8, NEVER, [(8, "upsert")]),
        (9, NEVER, []),
    ],
)
def test_the_events_of_a_version_in_the_snapshots_6_to_8(made: int, ended: int, events: list[tuple[int, str]]) -> None:
    found = Span(5, 8, 0).events(np.array([made]), np.array([ended]))
    upserts = [(int(at), "upsert") for at in found.upserted_at]
    assert upserts + [(int(at), "delete") for at in found.deleted_at] == events


def test_rows_that_were_only_moved_are_no_upserts_but_can_be_deleted() -> None:
    found = Span(5, 8, 0, quiet=frozenset({6})).events(np.array([6, 6, 7]), np.array([NEVER, 8, NEVER]))
    assert (found.upserted.tolist(), found.deleted.tolist()) == ([2], [1])


def test_a_moment_shows_what_is_alive_in_it() -> None:
    found = Moment(5).events(np.array([5, 6, 1, 1]), np.array([NEVER, NEVER, 5, 6]))
    assert (found.upserted.tolist(), found.upserted_at.tolist(), found.deleted.tolist()) == ([0, 3], [5, 5], [])


def test_a_delete_is_dated_by_the_next_snapshot_that_deleted_from_the_table() -> None:
    log = DeleteLog(np.array([1, 7, 10]), np.array([3, 8, 10]), np.array([3, 8]))  # 4 to 6 and 9 are not in it
    said = np.array([0, 1, 2, 3, 5, 7, 8, 9, 10, 11])
    assert log.dated(said).tolist() == [0, 3, 3, 3, 5, 8, 8, 9, NEVER, 11]
    nothing = np.empty(0, np.int64)
    assert DeleteLog(nothing, nothing, nothing).dated(said).tolist() == said.tolist()


def test_a_backlog_goes_up_to_the_last_snapshot_that_fits() -> None:
    weights = Weights([2, 4, 6])
    for snapshot, rows in ((1, 5), (2, 5), (3, 5), (4, 1), (6, 30)):  # 1 and 3 are expired
        weights.add(snapshot, rows, 10 * rows)
    assert [weights.last(Bound(rows, 10**9)) for rows in (1, 10, 15, 16, 45, 46)] == [2, 2, 2, 4, 4, 6]
    assert weights.last(Bound(10**9, 160)) == 4
    assert weights.fit(Bound(46, 460))
    assert not weights.fit(Bound(46, 459))
