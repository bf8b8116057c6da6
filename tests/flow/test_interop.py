"""The lake belongs to everyone: DuckDB reads every snapshot and the change feed, maintains it, and delivery goes on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.feeds import Feeds, assert_same_feeds, feeds
from tests.mirror import Mirror

from headwater.change import TableName

ROWS = 6000
MAINTENANCE = {
    "merge": "CALL ducklake_merge_adjacent_files('lake')",
    "rewrite": "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "flush": "CALL ducklake_flush_inlined_data('lake')",
    "expire": "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "cleanup": "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
}
Rows = list[tuple[Any, ...]]

pytestmark = pytest.mark.ducklake_only  # the change feed, and the maintenance of its extension


@pytest.fixture
def filled(mirror: Mirror) -> Mirror:
    """A table of several pages, a smaller one, and DuckDB attached from the beginning."""
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, item text, amount numeric(10,2))",
        "CREATE TABLE pairs (a text, b int, PRIMARY KEY (a, b))",
        f"INSERT INTO orders SELECT i, 'item ' || i, i * 1.5 FROM generate_series(1, {ROWS}) i",
        "INSERT INTO pairs SELECT chr(97 + i % 26), i FROM generate_series(1, 100) i",
    )
    mirror.start()
    mirror.assert_equal("orders", "pairs")
    return mirror


def held(mirror: Mirror, table: str) -> Rows:
    return sorted(mirror.rows_of(f"SELECT * FROM {table}"))


def newest(mirror: Mirror) -> int:
    ((snapshot,),) = mirror.ask("SELECT max(snapshot_id) FROM lake.snapshots()")
    return int(snapshot)


def replayed(mirror: Mirror, table: str, start: Rows, first: int, last: int) -> Rows:
    """The change feed of some snapshots, played on what the table had before them, strictly by row id."""
    # Unfiltered and unsorted: DuckDB 1.5.5 mislabels changes when it pushes a filter into the feed.
    feed = mirror.ask(f"SELECT * FROM ducklake_table_changes('lake', 'public', '{table}', {first}, {last})")
    rows: dict[int, tuple[Any, ...]] = {row_id: tuple(row) for row_id, *row in start}
    for snapshot in sorted({change[0] for change in feed}):
        changes = [change for change in feed if change[0] == snapshot]
        assert len({(row_id, kind) for _, row_id, kind, *_ in changes}) == len(changes), "a change is there twice"
        for _, row_id, kind, *row in changes:
            if kind in ("delete", "update_preimage"):
                assert rows.pop(row_id) == tuple(row)
        for _, row_id, kind, *row in changes:
            if kind in ("insert", "update_postimage"):
                assert row_id not in rows
                rows[row_id] = tuple(row)
        updated = [
            {row_id for _, row_id, kind, *_ in changes if kind == f"update_{image}image"} for image in ("pre", "post")
        ]
        assert updated[0] == updated[1]
    return sorted(rows.values())


HISTORY = {
    "few deletes stay in the catalog": ["DELETE FROM orders WHERE id <= 20", "DELETE FROM pairs WHERE b < 5"],
    "the same rows are updated": ["UPDATE orders SET item = 'once' WHERE id BETWEEN 100 AND 200"],
    "and updated again": ["UPDATE orders SET item = 'twice' WHERE id BETWEEN 100 AND 200"],
    "and again, twice in one batch": [
        "UPDATE orders SET item = 'thrice' WHERE id BETWEEN 100 AND 200",
        "UPDATE orders SET amount = 0 WHERE id BETWEEN 150 AND 250",
    ],
    "many deletes make a delete file": ["DELETE FROM orders WHERE id BETWEEN 1000 AND 3500"],
    "more deletes make it a partial one": ["DELETE FROM orders WHERE id BETWEEN 3501 AND 4800"],
    "few deletes beside a delete file": ["DELETE FROM orders WHERE id BETWEEN 4801 AND 4810"],
    "many once more, over both": ["UPDATE orders SET item = 'far' WHERE id BETWEEN 4811 AND 5990"],
    "inserts": ["INSERT INTO orders SELECT i, 'new', 1 FROM generate_series(10001, 10100) i"],
    "a file loses its last rows": ["DELETE FROM orders WHERE id > 10000"],
    "keys move": ["UPDATE orders SET id = id + 100000 WHERE id % 3 = 0", "UPDATE pairs SET b = -b"],
    "everything goes": ["DELETE FROM orders", "DELETE FROM pairs WHERE b > -50"],
    "and comes back": ["INSERT INTO orders SELECT i, 'back', i FROM generate_series(1, 50) i"],
    "and is truncated and filled": ["TRUNCATE orders", "INSERT INTO orders VALUES (1, 'last', 1), (2, 'too', 2)"],
    "and changed once more": ["UPDATE orders SET item = 'changed' WHERE id = 1", "DELETE FROM orders WHERE id = 2"],
}


def test_duckdb_sees_every_snapshot_and_the_change_feed_tells_them_all(filled: Mirror) -> None:
    mirror = filled
    tables = ("orders", "pairs")
    first = newest(mirror)
    start = {table: mirror.ask(f"SELECT rowid, * FROM lake.public.{table}") for table in tables}
    history = {first: {table: held(mirror, table) for table in tables}}
    for what, statements in HISTORY.items():
        mirror.execute(*statements)
        mirror.sync()
        assert newest(mirror) == first + len(history), what
        mirror.assert_equal(*tables)
        history[newest(mirror)] = {table: held(mirror, table) for table in tables}
    assert sorted(id for (id,) in mirror.ask("SELECT snapshot_id FROM lake.snapshots()")) == [0, *history]
    for snapshot, content in history.items():
        for table in tables:
            where = f"lake.public.{table} AT (VERSION => {snapshot})"
            assert sorted(mirror.ask(f"SELECT * FROM {where}")) == content[table], (snapshot, table)
            assert mirror.ask(f"SELECT count(*) FROM {where}") == [(len(content[table]),)], (snapshot, table)
            assert replayed(mirror, table, start[table], first + 1, snapshot) == content[table], (snapshot, table)
    # from the very beginning, with the first copy as inserts
    assert replayed(mirror, "orders", [], 1, newest(mirror)) == held(mirror, "orders")


def test_what_went_where_is_as_the_history_above_says(filled: Mirror) -> None:
    """The ways to delete are all met: else the test above would prove less than it seems to."""
    mirror = filled
    names = iter(HISTORY.items())

    def deliver_until(last: str) -> None:
        for what, statements in names:
            mirror.execute(*statements)
            if what == last:
                break
        mirror.sync()

    def delete_files() -> list[tuple[int, bool]]:
        return [
            (count, partial is not None)
            for count, partial in mirror.ask(
                "SELECT delete_count, partial_max FROM __ducklake_metadata_lake.ducklake_delete_file"
                " WHERE end_snapshot IS NULL"
            )
        ]

    deliver_until("few deletes stay in the catalog")
    assert delete_files() == []
    deliver_until("many deletes make a delete file")
    assert [partial for _, partial in delete_files()] == [True]  # it takes over those that were in the catalog
    deliver_until("many once more, over both")
    ((count, partial),) = delete_files()
    assert partial
    assert count > 2500
    deliver_until("everything goes")
    assert mirror.ask("SELECT count(*) FROM lake.public.orders") == [(0,)]
    assert mirror.ask("SELECT * FROM lake.public.orders") == []
    mirror.assert_equal("orders", "pairs")


def fed(mirror: Mirror, table: str, since: int) -> Feeds:
    """Of every range of snapshots. Not of one that a rewrite is part of: its rows are shown as changes there."""
    rewrites = {
        id_
        for id_, changes in mirror.ask("SELECT snapshot_id, changes FROM lake.snapshots()")
        if "rewrite_delete" in changes
    }
    found = feeds(mirror.ask, "lake", TableName("public", table), since)
    return {(first, last): rows for (first, last), rows in found.items() if not rewrites & {*range(first, last + 1)}}


def test_the_change_feed_is_right_after_files_were_merged(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT i, 0 FROM generate_series(0, 4) i"
    )
    mirror.start()
    first = newest(mirror)
    mirror.execute("INSERT INTO t SELECT i, 0 FROM generate_series(5, 2999) i")
    mirror.sync()
    mirror.execute("UPDATE t SET v = 1 WHERE id = 2")
    mirror.sync()
    mirror.execute("INSERT INTO t SELECT i, 0 FROM generate_series(3000, 4499) i")
    mirror.sync()
    before = fed(mirror, "t", first)
    mirror.ask(MAINTENANCE["merge"])
    assert_same_feeds(before, fed(mirror, "t", first))
    start = mirror.ask("SELECT rowid, * FROM lake.public.t")
    mirror.execute("DELETE FROM t WHERE id >= 10")
    mirror.sync()
    last = newest(mirror)
    deleted = mirror.ask(f"SELECT * FROM ducklake_table_changes('lake', 'public', 't', {last}, {last})")
    assert {(snapshot, kind) for snapshot, _, kind, *_ in deleted} == {(last, "delete")}
    assert len(deleted) == 4490
    assert replayed(mirror, "t", start, last, last) == held(mirror, "t")
    assert replayed(mirror, "t", [], first, last) == held(mirror, "t")


@pytest.mark.long
def test_delivery_goes_on_after_every_kind_of_maintenance(filled: Mirror) -> None:
    mirror = filled
    number = 0
    for turn in range(2):
        since = newest(mirror)
        for step in ("merge", "flush", "rewrite", "expire", "cleanup"):
            # Before each: a file of inserts, inlined deletes, and in the second round a delete file
            base = 20000 + 1000 * number
            number += 1
            mirror.transaction(
                f"INSERT INTO orders SELECT i, 'fresh', 1 FROM generate_series({base}, {base + 20}) i",
                f"INSERT INTO orders VALUES ({base + 500}, 'one more', NULL)",
                f"UPDATE orders SET item = 'u{number}' WHERE id % 500 = {number} OR id = {base}",
                f"DELETE FROM orders WHERE id % 500 = {100 + number} OR id = {base + 1}",
                f"UPDATE pairs SET b = b + 1000 WHERE b % 12 = {number % 12}",
            )
            if turn and step == "rewrite":
                mirror.execute("DELETE FROM orders WHERE id BETWEEN 1000 AND 3000")
            mirror.sync()
            positions = {oid: each.position for oid, each in mirror.m.sink.standings().items()}
            shown = {table: fed(mirror, table, since) for table in ("orders", "pairs")}
            mirror.ask(MAINTENANCE[step])
            mirror.assert_equal("orders", "pairs")
            if step == "expire":  # nothing but the newest snapshot is left, and what it changed went with the others
                since = newest(mirror) + 1
            elif step != "flush":  # its own flush shows updates of rows in the catalog as inserts: never use it
                for table, before in shown.items():
                    assert_same_feeds(before, fed(mirror, table, since))
            assert {oid: each.position for oid, each in mirror.m.sink.standings().items()} == positions
            go_on(mirror, base)
    mirror.stop_capture()
    assert [each.ok for each in mirror.verify()] == [True, True]


def go_on(mirror: Mirror, base: int) -> None:
    """Touch rows old and new, moved by the maintenance or not; the feed of that delivery is exact."""
    before = {row[1]: row for row in mirror.ask("SELECT rowid, * FROM lake.public.orders")}
    mirror.transaction(
        f"UPDATE orders SET item = 'after' WHERE id IN (7, {base}, {base + 2})",
        f"DELETE FROM orders WHERE id IN ({base + 3}, {base + 500})",
        f"UPDATE orders SET id = {base + 600} WHERE id = {base + 4}",
        f"INSERT INTO orders VALUES ({base + 601}, 'new', 1)",
    )
    mirror.sync()
    mirror.assert_equal("orders", "pairs")
    last = newest(mirror)
    start = list(before.values())
    assert replayed(mirror, "orders", start, last, last) == held(mirror, "orders")
    after = {row[1]: row[0] for row in mirror.ask("SELECT rowid, id FROM lake.public.orders")}
    assert all(after[id] == before[id][0] for id in (7, base, base + 2))
    assert len(set(after.values())) == len(after)


def test_a_lake_with_nothing_but_its_newest_snapshot_still_knows_its_position(filled: Mirror) -> None:
    mirror = filled
    mirror.execute("UPDATE orders SET item = 'x' WHERE id < 10")
    mirror.sync()
    for step in ("flush", "expire", "cleanup"):
        mirror.ask(MAINTENANCE[step])
    assert mirror.ask("SELECT count(*) FROM lake.snapshots()") == [(1,)]
    assert mirror.sync() == []  # nothing is delivered again
    mirror.execute("UPDATE orders SET item = 'y' WHERE id < 20", "DELETE FROM orders WHERE id = 5")
    (done,) = mirror.sync()
    (landed,) = done.landed.values()
    assert (landed.inserted, landed.updated, landed.deleted) == (0, 18, 1)
    mirror.assert_equal("orders")


def test_rows_are_found_in_every_row_group_of_a_file_that_duckdb_has_written(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE large (id int PRIMARY KEY, v int)",
        "INSERT INTO large SELECT i, 0 FROM generate_series(1, 250000) i",
    )
    mirror.start()
    mirror.execute("DELETE FROM large WHERE id % 50000 = 1")
    mirror.sync()
    for step in ("flush", "rewrite", "merge"):
        mirror.ask(MAINTENANCE[step])
    mirror.execute("UPDATE large SET v = 1 WHERE id % 10000 = 0", "DELETE FROM large WHERE id % 10000 = 5000")
    (done,) = mirror.sync()
    assert [(each.updated, each.deleted, each.inserted) for each in done.landed.values()] == [(25, 25, 0)]
    total = "SELECT count(*), count(DISTINCT id), sum(id::bigint), sum(id::bigint * v), sum(v) FROM {}large"
    assert mirror.ask(total.format("lake.public.")) == mirror.rows_of(total.format(""))
    ((groups,),) = mirror.ask(
        f"SELECT max(row_group_id) FROM parquet_metadata('{mirror.folder}/lake/public/large/*.parquet')"
    )
    assert groups > 0
