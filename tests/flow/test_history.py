"""History mode: every change is a row, exactly once."""

from __future__ import annotations

import json

import pytest
from tests.mirror import Mirror

ALL = "SELECT _op, id, v, _old, _unchanged FROM lake.public.t ORDER BY _commit_lsn, _seq"


def started(mirror: Mirror, identity: str = "DEFAULT") -> Mirror:
    mirror.execute(f"CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t REPLICA IDENTITY {identity}")
    mirror.execute("INSERT INTO t VALUES (1, 'copied')", "CREATE TABLE other (id int PRIMARY KEY)")
    mirror.start({"table": "public.t", "mode": "history"}, "public.other")
    return mirror


def test_every_change_is_appended_with_what_is_reported_of_the_old_row(mirror: Mirror) -> None:
    started(mirror)
    mirror.execute("INSERT INTO t VALUES (2, 'new')", "UPDATE t SET v = 'changed' WHERE id = 2")
    mirror.execute(
        "UPDATE t SET id = 3 WHERE id = 2", "DELETE FROM t WHERE id = 3", "TRUNCATE t", "INSERT INTO other VALUES (1)"
    )
    mirror.sync()
    assert [(*row[:3], row[3] and json.loads(row[3])) for row in mirror.ask(ALL)] == [
        ("copy", 1, "copied", None),
        ("insert", 2, "new", None),
        ("update", 2, "changed", None),
        ("update", 3, "changed", {"id": "2"}),
        ("delete", 3, None, {"id": "3"}),
        ("truncate", None, None, None),
    ]
    assert mirror.ask("SELECT * FROM lake.public.other") == [(1,)]
    assert mirror.ask("SELECT count(*) FROM lake.public.t WHERE _commit_ts IS NULL OR _xid IS NULL") == [(1,)]


def test_a_full_identity_tells_the_whole_old_row(mirror: Mirror) -> None:
    started(mirror, "FULL")
    mirror.execute("UPDATE t SET v = 'second' WHERE id = 1", "DELETE FROM t WHERE id = 1")
    mirror.sync()
    rows = mirror.ask(ALL)[1:]
    assert [(*row[:3], json.loads(row[3])) for row in rows] == [
        ("update", 1, "second", {"id": "1", "v": "copied"}),
        ("delete", 1, "second", {"id": "1", "v": "second"}),
    ]


def test_a_large_value_that_was_left_alone_is_named(mirror: Mirror) -> None:
    started(mirror)
    mirror.execute("ALTER TABLE t ALTER v SET STORAGE EXTERNAL", "INSERT INTO t VALUES (5, repeat('x', 9000))")
    mirror.execute("ALTER TABLE t ADD n int", "UPDATE t SET n = 1 WHERE id = 5")
    mirror.sync()
    *_, (op, id, value, _, unchanged) = mirror.ask(ALL)
    assert (op, id, value, json.loads(unchanged)) == ("update", 5, None, ["v"])


@pytest.mark.ducklake_only  # a column with a default copies an Iceberg table again, and its history starts over
def test_the_history_follows_new_columns(mirror: Mirror) -> None:
    started(mirror)
    mirror.execute(
        "ALTER TABLE t ADD n int DEFAULT 4", "INSERT INTO t VALUES (2, 'b', 5)", "ALTER TABLE t RENAME v TO w"
    )
    mirror.execute("INSERT INTO t VALUES (3, 'c', 6)")
    mirror.sync()
    assert mirror.ask("SELECT _op, id, w, n FROM lake.public.t ORDER BY _commit_lsn, _seq") == [
        ("copy", 1, "copied", 4),
        ("insert", 2, "b", 5),
        ("insert", 3, "c", 6),
    ]
