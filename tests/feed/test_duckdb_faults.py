"""Where DuckDB's own feed (extension 1.5.5) is wrong, and how; ours is not. A test that fails here is good news.

`feed_of` asserts that our events lead from the first snapshot to the last, and returns what only DuckDB's feed has and
what only ours has.
"""

from __future__ import annotations

import duckdb
import pytest

from tests.feed.feedbench import FeedBench, Rows
from tests.feed.histories import FLUSH, MERGE, REWRITE

pytestmark = pytest.mark.parametrize("feed_url", ["sqlite"], indirect=True)
CREATE = "CREATE TABLE {l}.t (id INTEGER, v VARCHAR)"
TWO = "INSERT INTO {l}.t VALUES (1, 'a'), (2, 'b')"


def started(bench: FeedBench, inlined: int = 0) -> FeedBench:
    bench.inline(inlined)
    bench.sql(CREATE)
    return bench


def feed_of(bench: FeedBench, after: int, upto: int) -> tuple[Rows, Rows]:
    ours, theirs = bench.check(after, upto), bench.duckdb_events(after, upto)
    return theirs - ours, ours - theirs


def test_a_row_that_a_transaction_made_and_deleted_is_shown_as_an_insert_and_a_delete(bench: FeedBench) -> None:
    before = started(bench).newest
    at = bench.together(TWO, "DELETE FROM {l}.t WHERE id = 1")
    assert feed_of(bench, before, at) == (Rows([(at, True, 1, "a"), (at, False, 1, "a")]), Rows())


def test_a_row_that_a_transaction_updated_and_deleted_stays_as_an_insert(bench: FeedBench) -> None:
    before = started(bench).do(TWO)
    at = bench.together("UPDATE {l}.t SET v = 'new'", "DELETE FROM {l}.t WHERE id = 1")
    assert feed_of(bench, before, at) == (Rows([*[(at, True, 1, "new")] * 2, (at, False, 1, "new")]), Rows())


def test_two_updates_in_one_transaction_are_shown_several_times(bench: FeedBench) -> None:
    """https://github.com/duckdb/ducklake/issues/1387"""
    before = started(bench).do(TWO)
    at = bench.together("UPDATE {l}.t SET v = 'A' WHERE id = 1", "UPDATE {l}.t SET v = 'B' WHERE id = 2")
    assert feed_of(bench, before, at) == (Rows([(at, True, 1, "A"), (at, False, 1, "a")]), Rows())


def test_a_rewrite_is_shown_as_inserts_and_deletes(bench: FeedBench) -> None:
    started(bench).sql("INSERT INTO {l}.t SELECT i, 'a' FROM range(4) r(i)")
    before = bench.do("DELETE FROM {l}.t WHERE id = 3")
    at = bench.do(REWRITE)
    again = Rows([(at, upsert, id_, "a") for id_ in range(3) for upsert in (True, False)])
    assert feed_of(bench, before, at) == (again, Rows())


def test_a_rewrite_shows_deletes_that_were_in_the_catalog_once_more(bench: FeedBench) -> None:
    started(bench, 3).sql("INSERT INTO {l}.t SELECT i, 'a' FROM range(4) r(i)")
    before = bench.do("DELETE FROM {l}.t WHERE id = 3")
    at = bench.do(REWRITE)
    assert feed_of(bench, before, at)[0][at, False, 3, "a"] == 1


def test_a_delete_from_a_merged_file_is_shown_in_the_snapshot_of_the_insert(bench: FeedBench) -> None:
    insert = started(bench).do(TWO)
    bench.sql("INSERT INTO {l}.t VALUES (3, 'c')", MERGE)
    before = bench.newest
    at = bench.do("DELETE FROM {l}.t WHERE id = 1")
    assert insert < before, "not even in the span that was asked for"
    assert feed_of(bench, before, at) == (Rows([(insert, False, 1, "a")]), Rows([(at, False, 1, "a")]))


def test_versions_of_a_row_that_were_flushed_together_are_mixed_up(bench: FeedBench) -> None:
    started(bench, 10).sql("INSERT INTO {l}.t VALUES (1, 'a')")
    first, second = bench.do("UPDATE {l}.t SET v = 'A'"), bench.do("UPDATE {l}.t SET v = 'B'")
    assert feed_of(bench, 1, second) == (Rows(), Rows())
    bench.sql(FLUSH)
    only_duckdb, only_ours = feed_of(bench, 1, second)
    assert only_duckdb == Rows([(first, True, 1, "A"), (first, False, 1, "A")])
    assert only_ours == Rows([(second, False, 1, "A")])


def test_a_flush_does_not_say_that_its_delete_file_has_deletes_of_several_snapshots(bench: FeedBench) -> None:
    """Which is why `feed.catalog` goes by the numbers of files."""
    started(bench, 10).sql(TWO)
    first, second = bench.do("DELETE FROM {l}.t WHERE id = 1"), bench.do("DELETE FROM {l}.t WHERE id = 2")
    bench.sql(FLUSH)
    with bench.lake.reading() as tx:
        assert tx.rows("SELECT begin_snapshot, partial_max FROM ducklake_delete_file") == [(first, None)]
    assert bench.events(first, second) == Rows([(second, False, 2, "b")])


def test_after_a_rewrite_and_a_flush_older_snapshots_show_rows_twice(bench: FeedBench) -> None:
    """Time travel itself: the data file then has two delete files in one snapshot."""
    started(bench).sql("INSERT INTO {l}.t SELECT i, 'a' FROM range(6) r(i)", "DELETE FROM {l}.t WHERE id = 0")
    bench.inline(10)
    at = bench.do("DELETE FROM {l}.t WHERE id = 1")
    wanted = bench.shown(at)
    bench.sql(REWRITE, FLUSH)
    assert bench.shown(at) - wanted == Rows([*((id_, "a") for id_ in range(2, 6)), (0, "a"), (1, "a")])
    assert bench.scanned(at, bench.at(at).table.columns) == wanted
    assert bench.check(at - 1, at) == Rows([(at, False, 1, "a")])


def test_a_span_is_refused_if_its_first_snapshot_is_expired(bench: FeedBench) -> None:
    """Though the snapshot before it is there, and with it everything to tell the changes."""
    before = started(bench).do(TWO)
    gone, last = bench.do("INSERT INTO {l}.t VALUES (3, 'c')"), bench.do("DELETE FROM {l}.t WHERE id = 1")
    bench.sql(f"CALL ducklake_expire_snapshots('{{l}}', versions => [{gone}])")
    with pytest.raises(duckdb.InvalidInputException, match=f"No snapshot found at version {gone}"):
        bench.duckdb_events(before, last)
    assert bench.check(before, last) == Rows([(gone, True, 3, "c"), (gone, False, 1, "a")])
