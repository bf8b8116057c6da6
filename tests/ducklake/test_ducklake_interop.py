"""Others work on the same lake with DuckDB: before, between and during our commits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import duckdb
import psycopg
import pytest
from lakebench import Bench, T
from psycopg.sql import SQL, Identifier
from tests.feeds import Feeds, assert_same_feeds, feeds

from headwater.change import TableName
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import PostgresUrl
from headwater.errors import CommitConflict, TableError

O = TableName("public", "o")  # noqa: E741


def busy(bench: Bench) -> dict[int, str]:
    """A table with several files, updates, inlined deletes and delete files; returns what it holds."""
    bench.create([(i, "a") for i in range(20)])
    bench.apply(insert=[(i, "b") for i in range(20, 30)])
    bench.apply(insert=[(30, "c")], update={1: "u", 25: "u"}, delete=[2, 21])
    bench.apply(update={3: "u"}, delete=[4, 5], inline_limit=0)
    held = dict.fromkeys(range(20), "a") | dict.fromkeys(range(20, 30), "b") | {30: "c", 1: "u", 25: "u", 3: "u"}
    for gone in (2, 21, 4, 5):
        del held[gone]
    assert dict(bench.rows()) == held
    return held


def go_on(bench: Bench, held: dict[int, str]) -> None:
    """Deliver once more, touching rows that were moved and rows that were not, in both ways to delete."""
    bench.apply(insert=[(100, "n")], update={1: "after", 10: "after"}, delete=[20])
    bench.apply(update={11: "again"}, delete=[100, 30], inline_limit=0)
    held |= {1: "after", 10: "after", 11: "again"}
    del held[20], held[30]
    assert dict(bench.rows()) == held
    start = bench.lake.snapshot().id - 1
    assert [(c, i) for _, c, i, _ in bench.changes(start)] == [
        ("delete", 20),
        ("insert", 100),
        *[("update_postimage", i) for i in (1, 10)],
        *[("update_preimage", i) for i in (1, 10)],
        *[("delete", i) for i in (30, 100)],
        ("update_postimage", 11),
        ("update_preimage", 11),
    ]


MAINTENANCE = {
    "merge": "CALL ducklake_merge_adjacent_files('{l}')",
    "rewrite": "CALL ducklake_rewrite_data_files('{l}', delete_threshold => 0)",
    "flush": "CALL ducklake_flush_inlined_data('{l}')",
    "expire": "CALL ducklake_expire_snapshots('{l}', versions => {half})",
    "cleanup": "CALL ducklake_cleanup_old_files('{l}', cleanup_all => true)",
}


def maintenance(bench: Bench, step: str) -> str:
    """The call; half of the snapshots expire, the older ones."""
    snapshots = [id_ for (id_,) in bench.sql("SELECT snapshot_id FROM {l}.snapshots() ORDER BY 1")]
    return MAINTENANCE[step].replace("{half}", str(snapshots[: len(snapshots) // 2]))


def fed(bench: Bench) -> Feeds:
    return feeds(bench.sql, bench.alias, T, 1)


def maintained(bench: Bench, step: str, before: Feeds, rewrites: set[int]) -> Feeds:
    """Run a maintenance function: every range of snapshots shows the changes that it showed before.

    Except a range with a rewrite in it: the extension shows rewritten rows as changes of that snapshot.
    """
    held = bench.rows()
    bench.sql(maintenance(bench, step))
    assert bench.rows() == held, step
    rewrites |= {bench.lake.snapshot().id} if step == "rewrite" else set()
    after = fed(bench)
    # A file that ended at the oldest snapshot left is visible in none, so it goes, and the deletes that ended it too.
    since = min(first for first, _ in after) + 1 if step == "expire" else 1
    assert_same_feeds(chosen(before, since, rewrites), chosen(after, since, rewrites))
    return after


def chosen(feeds: Feeds, since: int, without: set[int]) -> Feeds:
    return {
        (first, last): rows
        for (first, last), rows in feeds.items()
        if first >= since and not without & {*range(first, last + 1)}
    }


@pytest.mark.parametrize(
    "steps",
    [
        *(pytest.param(step, marks=pytest.mark.long) for step in ("merge", "rewrite", "flush", "expire")),
        *("merge expire cleanup", "flush rewrite merge expire cleanup"),
    ],
)
def test_delivery_goes_on_after_maintenance(bench: Bench, steps: str) -> None:
    held = busy(bench)
    for step in steps.split():
        bench.sql(maintenance(bench, step))
        assert dict(bench.rows()) == held, step
    go_on(bench, held)
    for step in ("flush", "merge", "rewrite", "expire", "cleanup"):
        bench.sql(maintenance(bench, step))
        assert dict(bench.rows()) == held, step


@pytest.mark.parametrize("steps", ["merge flush", pytest.param("expire cleanup", marks=pytest.mark.long)])
def test_maintenance_leaves_the_change_feed_as_it_was(bench: Bench, steps: str) -> None:
    held, rewrites = busy(bench), set[int]()
    shown = fed(bench)
    for step in steps.split():
        shown = maintained(bench, step, shown, rewrites)
    go_on(bench, held)
    shown = fed(bench)
    for step in ("flush", "merge", "rewrite", "expire", "cleanup"):
        shown = maintained(bench, step, shown, rewrites)


def test_an_update_stays_one_in_the_feed_when_files_are_merged(bench: Bench) -> None:
    bench.create([(i, "a") for i in range(5)])
    bench.apply(insert=[(i, "b") for i in range(5, 10)])
    updated = bench.apply(update={2: "u"})
    row_ids = bench.sql("SELECT rowid, id FROM {l}.public.t ORDER BY id")
    maintained(bench, "merge", fed(bench), set())
    assert bench.sql("SELECT rowid, id FROM {l}.public.t ORDER BY id") == row_ids
    assert bench.changes(updated) == [(updated, "update_postimage", 2, "u"), (updated, "update_preimage", 2, "a")]


def test_deletes_from_a_merged_file_are_in_the_feed_at_their_own_snapshot(bench: Bench) -> None:
    bench.create([(i, "a") for i in range(5)])
    bench.apply(insert=[(i, "b") for i in range(5, 10)])
    maintained(bench, "merge", fed(bench), set())
    first = bench.apply(delete=[1, 6], inline_limit=0)
    assert bench.changes(first) == [(first, "delete", 1, "a"), (first, "delete", 6, "b")]
    assert [(s, c) for s, c, _, _ in bench.changes(1, first)] == [
        *[(1, "insert")] * 5,
        *[(2, "insert")] * 5,
        *[(first, "delete")] * 2,
    ]
    second = bench.apply(delete=[2], update={7: "u"}, inline_limit=0)
    assert bench.changes(second, second) == [
        (second, "delete", 2, "a"),
        (second, "update_postimage", 7, "u"),
        (second, "update_preimage", 7, "b"),
    ]
    for step in ("flush", "merge"):
        maintained(bench, step, fed(bench), set())


@pytest.mark.parametrize("step", ["merge", "rewrite"])
def test_compaction_of_files_we_delete_from_is_a_conflict_and_planning_again_helps(bench: Bench, step: str) -> None:
    bench.create([(1, "a"), (2, "b")])
    bench.apply(insert=[(3, "c"), (4, "d")])
    if step == "rewrite":
        bench.apply(delete=[2, 3])
    planned = bench.plan(update={1: "A"}, delete=[4])
    bench.sql(MAINTENANCE[step])
    before = bench.rows()
    with pytest.raises(CommitConflict, match="replaced data file"):
        bench.commit(planned)
    assert bench.rows() == before
    bench.apply(update={1: "A"}, delete=[4])
    assert (1, "A") in bench.rows()


def test_compaction_of_other_files_of_the_table_is_none_of_our_business(bench: Bench) -> None:
    bench.create([(1, "a"), (2, "b")])
    bench.apply(insert=[(3, "c")])
    bench.apply(insert=[(4, "d")])
    bench.apply(delete=[2])  # merging leaves files with deletes alone
    planned = bench.plan(update={1: "A"})
    bench.sql(MAINTENANCE["merge"])
    assert len(bench.live()) == 2
    bench.commit(planned)
    assert bench.rows() == [(1, "A"), (3, "c"), (4, "d")]


def test_a_flush_of_deletes_we_planned_on_is_a_conflict(bench: Bench) -> None:
    bench.create([(1, "a"), (2, "b"), (3, "c")])
    bench.apply(delete=[1])
    planned = bench.plan(delete=[2])
    bench.sql(MAINTENANCE["flush"])
    with pytest.raises(CommitConflict, match="deleted from data file"):
        bench.commit(planned)
    bench.apply(delete=[2])
    assert bench.rows() == [(3, "c")]


@pytest.mark.parametrize("alteration", ["ADD COLUMN more INTEGER", "RENAME COLUMN s TO s2", "RENAME TO t2"])
def test_a_table_altered_meanwhile_is_a_conflict(bench: Bench, alteration: str) -> None:
    bench.create([(1, "a")])
    planned = bench.plan(insert=[(2, "b")])
    bench.sql(f"ALTER TABLE {{l}}.public.t {alteration}")
    with pytest.raises(CommitConflict, match="altered table"):
        bench.commit(planned)


def test_a_table_dropped_meanwhile_is_a_conflict(bench: Bench) -> None:
    bench.create([(1, "a")])
    planned = bench.plan(insert=[(2, "b")])
    bench.sql("DROP TABLE {l}.public.t")
    with pytest.raises(CommitConflict, match="dropped table"):
        bench.commit(planned)


def test_a_table_created_meanwhile_is_a_conflict(bench: Bench) -> None:
    bench.create([(1, "a")])
    new = bench.lake.new_table(O, bench.table().columns)
    planned = replace(bench.plan(), new_tables=(new,), changes=())
    bench.sql("CREATE TABLE {l}.public.o(id BIGINT)")
    with pytest.raises(CommitConflict, match="by now"):
        bench.commit(planned)


def test_work_of_others_elsewhere_does_not_disturb_us(bench: Bench) -> None:
    bench.create([(1, "a"), (2, "b")])
    bench.create([(1, "o")], name=O)
    planned = bench.plan(insert=[(3, "c")], update={1: "A"}, delete=[2])
    bench.sql("INSERT INTO {l}.public.o VALUES (2, 'user')")
    bench.sql("DELETE FROM {l}.public.o WHERE id = 1")
    bench.sql("CREATE TABLE {l}.main.users AS SELECT 1 AS x")
    bench.sql("INSERT INTO {l}.public.t VALUES (9, 'user, into ours')")
    snapshot = bench.commit(planned)
    assert snapshot == planned.base.id + 5
    assert bench.rows() == [(1, "A"), (3, "c"), (9, "user, into ours")]
    assert bench.rows(O) == [(2, "user")]
    assert [(c, i) for _, c, i, _ in bench.changes(snapshot)] == [
        ("delete", 2),
        ("insert", 3),
        ("update_postimage", 1),
        ("update_preimage", 1),
    ]
    assert len({row_id for (row_id,) in bench.sql("SELECT rowid FROM {l}.public.t")}) == 3


def test_a_commit_that_gets_another_snapshot_than_predicted_stamps_its_deletes_again(bench: Bench) -> None:
    first = bench.create([(i, "a") for i in range(6)])
    bench.create(name=O)
    bench.apply(delete=[1])
    bench.apply(delete=[2], inline_limit=0)
    planned = bench.plan(delete=[3], inline_limit=0)
    bench.sql("INSERT INTO {l}.public.o VALUES (1, 'takes the predicted snapshot')")
    snapshot = bench.commit(planned)
    assert snapshot == planned.base.id + 2
    assert [row[0] for row in bench.rows()] == [0, 4, 5]
    assert [row[0] for row in bench.rows(at=snapshot - 1)] == [0, 3, 4, 5]
    deletes = [(s, i) for s, c, i, _ in bench.changes(first) if c == "delete"]
    assert deletes == [(first + 2, 1), (first + 3, 2), (snapshot, 3)]


OPEN_TRANSACTIONS = {
    "delete": "DELETE FROM {l}.public.{t} WHERE id = 1",
    "delete_of_another_row_of_the_file": "DELETE FROM {l}.public.{t} WHERE id = 3",
    "update": "UPDATE {l}.public.{t} SET s = 'user' WHERE id = 1",
    "merge": "CALL ducklake_merge_adjacent_files('{l}', '{t}', schema => 'public')",
    "rewrite": "CALL ducklake_rewrite_data_files('{l}', '{t}', schema => 'public', delete_threshold => 0)",
    "flush": "CALL ducklake_flush_inlined_data('{l}', schema_name => 'public', table_name => '{t}')",
}


@pytest.mark.parametrize("inline_limit", [1000, 0], ids=["inlined", "delete file"])
def test_transactions_of_others_that_our_delete_overtakes_must_fail(bench: Bench, inline_limit: int) -> None:
    """Hazard 2 and its kin: else rows would come back, or be deleted twice and counted twice."""
    for theirs, statement in OPEN_TRANSACTIONS.items():
        name = TableName("public", theirs)
        bench.create([(i, "a") for i in range(6)], name=name)
        bench.apply(insert=[(10, "b")], name=name)
        bench.apply(insert=[(11, "c")], name=name)
        bench.apply(delete=[5], name=name)
        bench.apply(delete=[4], inline_limit=inline_limit, name=name)
        bench.sql("BEGIN")
        bench.sql(statement.replace("{t}", theirs))
        bench.apply(delete=[1, 10], inline_limit=inline_limit, name=name)
        if theirs == "flush" and inline_limit == 0:
            bench.sql("COMMIT")  # our delete file took them over: there was nothing to flush
        else:
            with pytest.raises(duckdb.TransactionException, match="conflict"):
                bench.sql("COMMIT")
        assert [row[0] for row in bench.rows(name)] == [0, 2, 3, 11], theirs


def test_an_insert_of_others_that_we_overtake_goes_through(bench: Bench) -> None:
    bench.create([(1, "a")])
    bench.sql("BEGIN")
    bench.sql("INSERT INTO {l}.public.t VALUES (2, 'theirs')")
    bench.apply(insert=[(3, "ours")])
    bench.sql("COMMIT")
    assert bench.rows() == [(1, "a"), (2, "theirs"), (3, "ours")]
    assert len({row_id for (row_id,) in bench.sql("SELECT rowid FROM {l}.public.t")}) == 3


@pytest.mark.parametrize("lake_url", ["postgres"], indirect=True)
def test_deletes_that_the_flush_of_another_client_doubled_are_counted_once(bench: Bench) -> None:
    bench.create([(i, "a") for i in range(100)])
    bench.apply(delete=[0, 1, 2, 3, 4])
    with overtaking(bench):
        bench.sql(MAINTENANCE["flush"])
    assert bench.sql("SELECT count(*) FROM {l}.public.t") == [(90,)], "the extension has mended its flush"
    bench.apply(delete=range(5, 95))  # as many as seem to be left, but there are five more
    assert [id_ for id_, _ in bench.rows()] == [95, 96, 97, 98, 99]
    bench.apply(delete=range(95, 100))
    assert bench.rows() == []


@pytest.mark.parametrize("lake_url", ["postgres"], indirect=True)
def test_attaching_a_lake_reads_the_definitions_of_no_other_lake_in_its_database(bench: Bench) -> None:
    """With a thousand lakes in a database, DuckDB would read for seconds at every ATTACH."""
    assert isinstance(bench.lake.url, PostgresUrl)
    with psycopg.connect(bench.lake.url.conninfo, autocommit=True) as other:
        other.execute("CREATE SCHEMA another_lake; CREATE TABLE another_lake.ducklake_metadata (key text)")
    with connect() as con:
        attach(con, bench.lake.url, "lake", read_only=True)
        catalog = "FROM __ducklake_metadata_lake.{}.ducklake_metadata"
        assert con.execute(catalog.format(f'"{bench.lake.url.schema}"')).fetchall()
        with pytest.raises(duckdb.CatalogException):
            con.execute(catalog.format("another_lake"))


@contextmanager
def overtaking(bench: Bench) -> Iterator[None]:
    """Another client is about to commit, and does so when a commit of the block waits for it."""
    assert isinstance(bench.lake.url, PostgresUrl)
    with psycopg.connect(bench.lake.url.conninfo) as other, ThreadPoolExecutor(1) as pool:
        other.execute(SQL("SET search_path TO {}").format(Identifier(bench.lake.url.schema)))
        other.execute(
            "INSERT INTO ducklake_snapshot SELECT snapshot_id + 1, now(), schema_version, next_catalog_id, next_file_id"
            " FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
        )
        other.execute("INSERT INTO ducklake_snapshot_changes SELECT max(snapshot_id), '' FROM ducklake_snapshot")
        done = pool.submit(commit_when_awaited, other)
        yield
        done.result()


def commit_when_awaited(connection: psycopg.Connection[Any]) -> None:
    blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND %s = ANY(pg_blocking_pids(pid))"
    deadline = time.monotonic() + 60
    while connection.execute(blocked, (connection.info.backend_pid,)).fetchone() == (0,):
        if time.monotonic() > deadline:
            connection.rollback()
            pytest.fail("nothing waits for this commit")
        time.sleep(0.02)
    connection.commit()


def test_our_tables_tell_clients_not_to_put_rows_into_the_catalog(bench: Bench) -> None:
    bench.sql("CALL {l}.set_option('data_inlining_row_limit', 10)")
    bench.create([(1, "a")])
    with connect(threads=1) as newcomer:
        attach(newcomer, bench.lake.url, "l")
        newcomer.execute("INSERT INTO l.public.t VALUES (2, 'b')")
        newcomer.execute("DELETE FROM l.public.t WHERE id = 1")
    assert bench.lake.inlined_counts([bench.table().id], bench.lake.snapshot()) == {}
    assert bench.rows() == [(2, "b")]


def test_a_table_others_partitioned_is_refused(bench: Bench) -> None:
    """Hazards 5 and 6: files without partition values are skipped by filters, or break compaction."""
    bench.create([(1, "a")])
    bench.sql("ALTER TABLE {l}.public.t SET PARTITIONED BY (bucket(4, id))")
    assert bench.table().partitioning
    with pytest.raises(TableError, match="partitioned"):
        bench.apply(insert=[(2, "b")])
    bench.sql("ALTER TABLE {l}.public.t RESET PARTITIONED BY")
    bench.apply(insert=[(2, "b")])
    assert bench.sql("SELECT s FROM {l}.public.t WHERE id = 2") == [("b",)]


def test_deletes_of_others_are_taken_over(bench: Bench) -> None:
    bench.create([(i, "a") for i in range(10)])
    bench.sql("DELETE FROM {l}.public.t WHERE id IN (1, 2)")
    bench.sql("DELETE FROM {l}.public.t WHERE id = 3")
    bench.apply(delete=[4], inline_limit=0)
    bench.sql("DELETE FROM {l}.public.t WHERE id = 5")
    bench.apply(update={6: "u"})
    assert bench.rows() == [(0, "a"), (6, "u"), (7, "a"), (8, "a"), (9, "a")]
    deletes = [(s, i) for s, c, i, _ in bench.changes(1) if c == "delete"]
    assert deletes == [(2, 1), (2, 2), (3, 3), (4, 4), (5, 5)]
    assert len(bench.rows(T, at=2)) == 8
