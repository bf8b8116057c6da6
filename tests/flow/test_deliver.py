"""The path of a row, step by step, on a real PostgreSQL, a real Spark and a real lake read by DuckDB."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.mirror import Mirror

from headwater import flow
from headwater.state.transitions import Failed, Retried

ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, item text, amount numeric(10,2))"


def filled(mirror: Mirror, rows: int = 100) -> Mirror:
    mirror.execute(ORDERS, f"INSERT INTO orders SELECT i, 'item ' || i, i * 1.5 FROM generate_series(1, {rows}) i")
    mirror.start()
    return mirror


def test_a_first_copy_brings_every_row_in_one_snapshot(mirror: Mirror) -> None:
    filled(mirror)
    mirror.assert_equal("orders")
    (snapshot,) = mirror.snapshots("orders")
    assert mirror.ask(f"SELECT count(*) FROM {mirror.at('orders', snapshot)}") == [(100,)]


def test_an_empty_table_is_created_and_then_filled(mirror: Mirror) -> None:
    mirror.execute(ORDERS)
    mirror.start()
    assert mirror.ask("SELECT count(*) FROM lake.public.orders") == [(0,)]
    mirror.execute("INSERT INTO orders VALUES (1, 'a', 1)")
    mirror.sync()
    mirror.assert_equal("orders")


def test_changes_committed_during_the_first_copy_are_neither_lost_nor_doubled(mirror: Mirror) -> None:
    mirror.execute(ORDERS, "INSERT INTO orders VALUES (1, 'before', 1), (2, 'before', 2)")
    mirror.start(copy=False)
    mirror.execute("UPDATE orders SET item = 'between' WHERE id = 1", "INSERT INTO orders VALUES (3, 'between', 3)")
    mirror.execute("DELETE FROM orders WHERE id = 2")
    mirror.captured()  # the log has them, and so has the copy
    flow.copy(mirror.m)
    mirror.execute("UPDATE orders SET item = 'after' WHERE id = 3", "INSERT INTO orders VALUES (2, 'after', 2)")
    mirror.sync()
    mirror.assert_equal("orders")
    assert mirror.ask("SELECT count(*) FROM lake.public.orders") == [(3,)]


def test_inserts_updates_and_deletes_land_in_one_snapshot(mirror: Mirror) -> None:
    filled(mirror)
    mirror.execute(
        "INSERT INTO orders VALUES (1000, 'new', 1)",
        "UPDATE orders SET item = 'changed' WHERE id % 10 = 0",
        "DELETE FROM orders WHERE id % 7 = 0",
    )
    (done,) = mirror.sync()
    (landed,) = done.landed.values()
    assert (landed.inserted, landed.updated, landed.deleted) == (1, 9, 14)
    assert len(mirror.snapshots("orders")) == 2
    mirror.assert_equal("orders")


@pytest.mark.ducklake_only
def test_an_update_keeps_the_row_id_so_that_the_change_feed_shows_an_update(mirror: Mirror) -> None:
    filled(mirror, 3)
    before = dict(mirror.ask("SELECT id, rowid FROM lake.public.orders"))
    mirror.execute("UPDATE orders SET item = 'changed' WHERE id = 2", "DELETE FROM orders WHERE id = 3")
    mirror.execute("INSERT INTO orders VALUES (4, 'new', 4)")
    mirror.sync()
    after = dict(mirror.ask("SELECT id, rowid FROM lake.public.orders"))
    assert after[2] == before[2]
    feed = mirror.ask("SELECT change_type, id, item FROM ducklake_table_changes('lake', 'public', 'orders', 2, 2)")
    assert sorted(feed) == [
        ("delete", 3, "item 3"),
        ("insert", 4, "new"),
        ("update_postimage", 2, "changed"),
        ("update_preimage", 2, "item 2"),
    ]


def test_an_update_that_changes_the_key_moves_the_row(mirror: Mirror) -> None:
    filled(mirror, 5)
    mirror.execute("UPDATE orders SET id = id + 100 WHERE id IN (2, 4)")
    mirror.transaction(  # a swap through a free key, and a chain
        "UPDATE orders SET id = -1 WHERE id = 1",
        "UPDATE orders SET id = 1 WHERE id = 3",
        "UPDATE orders SET id = 3 WHERE id = -1",
        "UPDATE orders SET id = 7 WHERE id = 5",
        "UPDATE orders SET id = 8 WHERE id = 7",
    )
    mirror.sync()
    mirror.assert_equal("orders")


def test_many_changes_of_one_key_in_a_batch_amount_to_the_last(mirror: Mirror) -> None:
    filled(mirror, 2)
    mirror.execute(
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO orders VALUES (1, 'again', 1)",
        "UPDATE orders SET item = 'and again' WHERE id = 1",
        "INSERT INTO orders VALUES (9, 'short life', 1)",
        "DELETE FROM orders WHERE id = 9",
        "DELETE FROM orders WHERE id = 2",
    )
    mirror.sync()
    mirror.assert_equal("orders")


def test_a_composite_key_and_a_table_of_nothing_but_its_key(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE pairs (a int, b text, PRIMARY KEY (b, a))",
        "INSERT INTO pairs SELECT i, chr(97 + i % 5) FROM generate_series(1, 50) i",
    )
    mirror.start()
    mirror.execute(
        "DELETE FROM pairs WHERE a < 10", "UPDATE pairs SET b = 'zz' WHERE a > 40", "INSERT INTO pairs VALUES (1, '')"
    )
    mirror.sync()
    mirror.assert_equal("pairs")


def test_a_truncate_takes_what_came_before_it_and_leaves_what_came_after(mirror: Mirror) -> None:
    filled(mirror)
    mirror.transaction(
        "INSERT INTO orders VALUES (1000, 'gone', 1)", "TRUNCATE orders", "INSERT INTO orders VALUES (1, 'left', 1)"
    )
    mirror.sync()
    mirror.assert_equal("orders")
    first, *_ = mirror.snapshots("orders")
    assert mirror.ask(f"SELECT count(*) FROM {mirror.at('orders', first)}") == [(100,)]


def test_all_tables_of_a_group_move_in_the_same_snapshot(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE TABLE c (id int PRIMARY KEY)",
    )
    mirror.start()
    mirror.transaction("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1), (2)")
    (done,) = mirror.sync()
    assert len(done.landed) == 2
    assert len(done.upto) == 3  # the quiet table's position moves along
    assert len(mirror.snapshots("a")) == len(mirror.snapshots("b")) == 2
    mirror.assert_equal("a", "b", "c")


@pytest.mark.parametrize("updated", [False, True])  # what is only inserted takes another way
def test_a_key_the_lake_cannot_hold_stops_its_table_alone(mirror: Mirror, updated: bool) -> None:
    mirror.execute(
        "CREATE TABLE good (id int PRIMARY KEY, at timestamptz)",
        "CREATE TABLE bad (id numeric PRIMARY KEY, v text)",
    )
    mirror.start()
    mirror.execute("INSERT INTO good VALUES (1, now())", "INSERT INTO bad VALUES (1, 'a'), ('NaN', 'b')")
    if updated:
        mirror.execute("UPDATE good SET at = now()")
    mirror.sync()
    mirror.assert_equal("good")
    states = {row.source.name: row for row in mirror.m.state.tables("g")}
    assert states["good"].state == "STREAMING"
    assert states["bad"].state == "ERRORED"
    assert "'NaN'" in (states["bad"].error or "")
    assert mirror.ask("SELECT count(*) FROM lake.public.bad") == [(0,)]


def test_delivering_again_after_a_lost_answer_changes_nothing(mirror: Mirror) -> None:
    filled(mirror)
    mirror.execute("UPDATE orders SET item = 'x' WHERE id < 10")
    before = mirror.m.state.tables("g")
    mirror.sync()
    for row in before:  # as if we had died before telling the state
        mirror.m.state.query(
            "UPDATE headwater.tables SET position = %s WHERE source_oid = %s RETURNING 1", (row.position, row.oid)
        )
    assert mirror.sync() == []
    mirror.assert_equal("orders")
    assert mirror.m.state.tables("g")[0].position == mirror.m.sink.standings()[before[0].oid].position


def test_a_table_that_is_ahead_of_the_batch_does_not_go_back(mirror: Mirror) -> None:
    """Two tables come up to the third from different places, and the first batch ends before the second one's."""
    mirror.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in "abc"))
    mirror.start()
    mirror.sync()
    oids = {row.source.name: row.oid for row in mirror.m.state.tables("g")}
    for absent, grows in ("a", "a"), ("a", "b"), ("b", "c"):  # each in a segment of its own
        much_later = datetime.now(UTC) + timedelta(hours=1)
        mirror.m.state.record("g", oids[absent], Failed("away", much_later))
        mirror.execute(f"INSERT INTO {grows} SELECT count(*) FROM {grows}")
        mirror.sync()
    for name in "ab":
        mirror.m.state.record("g", oids[name], Retried())
    mirror.m = replace(mirror.m, max_rows=1)
    first, *_ = mirror.sync()
    mirror.assert_equal("a", "b", "c")
    assert first.upto.keys() == {oids["a"]}


def test_a_lost_state_leaves_no_gap(mirror: Mirror) -> None:
    """What was committed between the old slot's end and the new slot is in no log: the tables are copied again."""
    filled(mirror, 3)
    mirror.sync()
    mirror.stop_capture()
    mirror.execute("INSERT INTO orders VALUES (4, 'in no log', 1)", "DELETE FROM orders WHERE id = 1")
    mirror.m.state.close()
    mirror.execute("DROP SCHEMA headwater CASCADE", "SELECT pg_drop_replication_slot('headwater_g')")
    mirror.start()
    mirror.execute("UPDATE orders SET item = 'after' WHERE id = 2")
    mirror.sync()
    mirror.assert_equal("orders")
