"""No value is lost silently: what a lake type cannot hold is null, and kept in full beside it."""

from __future__ import annotations

import json

from tests.mirror import Mirror

from headwater import flow

OPEN = (
    "SELECT table_name, key, column_name, value FROM lake.headwater_quarantine WHERE resolved_lsn IS NULL"
    " ORDER BY key, column_name"
)


def test_values_that_do_not_fit_are_kept_and_marked_when_they_are_gone(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n numeric, at timestamp)",
        "INSERT INTO t VALUES (1, 'NaN', '294276-01-01'), (2, 1.5, now()), (3, 1e30, NULL)",
    )
    mirror.start()
    found = [(name, json.loads(key)["id"], column, value) for name, key, column, value in mirror.ask(OPEN)]
    assert found == [
        ("public.t", 1, "at", "294276-01-01 00:00:00"),
        ("public.t", 1, "n", "NaN"),
        ("public.t", 3, "n", "1000000000000000000000000000000"),
    ]
    assert mirror.ask("SELECT n FROM lake.public.t WHERE n IS NULL ORDER BY id") == [(None,), (None,)]
    mirror.execute("INSERT INTO t VALUES (4, 'Infinity', NULL), (5, 0.1234567890123456789, NULL)")
    mirror.execute("UPDATE t SET n = 7 WHERE id = 1", "UPDATE t SET id = 30 WHERE id = 3")
    mirror.sync()
    left = [(json.loads(key)["id"], column, value) for _, key, column, value in mirror.ask(OPEN)]
    assert left == [
        (1, "at", "294276-01-01 00:00:00"),
        (30, "n", "1000000000000000000000000000000"),
        (4, "n", "Infinity"),
        (5, "n", "0.1234567890123456789"),
    ]
    mirror.execute("DELETE FROM t WHERE id = 30", "UPDATE t SET n = NULL WHERE id = 4")
    mirror.sync()
    assert len(mirror.ask(OPEN)) == 2
    mirror.execute("TRUNCATE t")
    mirror.sync()
    assert mirror.ask(OPEN) == []
    resolved = "SELECT column_name, value FROM lake.headwater_quarantine WHERE resolved_lsn > lsn ORDER BY ALL"
    assert mirror.ask(resolved) == [  # two were sent again by updates of something else in their rows
        ("at", "294276-01-01 00:00:00"),
        ("at", "294276-01-01 00:00:00"),
        ("n", "0.1234567890123456789"),
        ("n", "1000000000000000000000000000000"),
        ("n", "1000000000000000000000000000000"),
        ("n", "Infinity"),
        ("n", "NaN"),
    ]
    (row,) = mirror.m.state.tables("g")
    assert row.quarantined == 7


def test_a_large_value_in_quarantine_that_an_update_leaves_alone_stays_there(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n numeric, note text)",
        "ALTER TABLE t ALTER n SET STORAGE EXTERNAL",
        "INSERT INTO t VALUES (1, (repeat('123456789', 1000))::numeric, 'a')",
    )
    mirror.start()
    mirror.execute("UPDATE t SET note = 'b'")
    mirror.sync()
    assert mirror.ask("SELECT n, note FROM lake.public.t") == [(None, "b")]
    ((_, _, column, value),) = mirror.ask(OPEN)
    assert (column, value) == ("n", "123456789" * 1000)
    mirror.execute("ALTER TABLE t RENAME n TO amount", "UPDATE t SET note = 'c'")
    mirror.sync()
    assert mirror.ask("SELECT amount, note FROM lake.public.t") == [(None, "c")]
    assert len(mirror.ask(OPEN)) == 1
    mirror.execute(
        "INSERT INTO t VALUES (2, 1, 'd')", "ALTER TABLE t DROP amount", "UPDATE t SET note = 'e' WHERE id = 2"
    )
    mirror.sync()
    assert mirror.ask(OPEN) == []


def test_a_column_can_be_asked_to_be_another_type(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY, a numeric, b numeric, c numeric)")
    mirror.execute("INSERT INTO t VALUES (1, 'NaN', 1.25, 'NaN')")
    mirror.start({"table": "public.t", "types": {"a": "varchar", "b": "decimal(20,4)", "c": "double"}})
    mirror.execute("INSERT INTO t VALUES (2, 1e100, 2.5, 1e100)")
    mirror.sync()
    assert mirror.ask("SELECT a, b::varchar, c FROM lake.public.t ORDER BY id")[1] == ("1" + "0" * 100, "2.5000", 1e100)
    assert mirror.ask(OPEN) == []


def test_values_of_a_table_without_a_key_are_settled_after_it_got_another_column(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE bag (item text, n numeric)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag VALUES ('a', 'NaN'), ('b', 'NaN')",
    )
    mirror.start()
    mirror.execute("ALTER TABLE bag ADD more int", "DELETE FROM bag WHERE item = 'a'")
    mirror.sync()
    flow.copy(mirror.m)
    mirror.sync()
    assert [value for *_, value in mirror.ask(OPEN)] == ["NaN"]
    assert mirror.verify()[0].ok
