"""Every replica identity: what a change has of the row it replaces is enough, or the table is refused."""

from __future__ import annotations

import psycopg
import pytest
from tests.mirror import Mirror

from headwater.checks import check

CHANGES = (
    "INSERT INTO t VALUES (10, 'ten', 1), (11, NULL, 2)",
    "UPDATE t SET name = 'changed' WHERE id % 2 = 0",
    "UPDATE t SET id = id + 100 WHERE id = 3",
    "DELETE FROM t WHERE id = 5",
    "INSERT INTO t VALUES (5, 'again', 3)",
)
SHAPES = {
    "default": "ALTER TABLE t ADD PRIMARY KEY (id)",
    "full, with a primary key": "ALTER TABLE t ADD PRIMARY KEY (id), REPLICA IDENTITY FULL",
    "index": "CREATE UNIQUE INDEX i ON t (n, id); ALTER TABLE t ALTER n SET NOT NULL, ALTER id SET NOT NULL,"
    " REPLICA IDENTITY USING INDEX i",
    "full, without a key": "ALTER TABLE t REPLICA IDENTITY FULL",
    "full, with a deferrable key": "ALTER TABLE t ADD PRIMARY KEY (id) DEFERRABLE, REPLICA IDENTITY FULL",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_updates_and_deletes_arrive_under(mirror: Mirror, shape: str) -> None:
    mirror.execute("CREATE TABLE t (id int, name text, n int)", shape)
    mirror.execute("INSERT INTO t SELECT i, 'row ' || i, i FROM generate_series(1, 9) i")
    mirror.start()
    mirror.execute(*CHANGES)
    mirror.sync()
    mirror.assert_equal("t")
    mirror.execute("DELETE FROM t WHERE id > 9")
    mirror.sync()
    mirror.assert_equal("t")


def test_of_identical_rows_as_many_go_as_were_deleted(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (a int, b text, c double precision)", "ALTER TABLE t REPLICA IDENTITY FULL")
    mirror.execute(
        "INSERT INTO t SELECT 1, 'same', 0.5 FROM generate_series(1, 5)", "INSERT INTO t VALUES (NULL, NULL, NULL)"
    )
    mirror.execute("INSERT INTO t VALUES (1, '', '-0'), (1, NULL, '0'), (1, '', 'NaN')")
    mirror.start()
    one = "ctid = (SELECT min(ctid) FROM t WHERE {})"
    mirror.execute(
        f"DELETE FROM t WHERE {one.format('a = 1 AND c = 0.5')}",
        f"DELETE FROM t WHERE {one.format('a = 1 AND c = 0.5')}",
        f"UPDATE t SET b = 'other' WHERE {one.format('a = 1 AND c = 0.5')}",
        "INSERT INTO t VALUES (NULL, NULL, NULL), (NULL, NULL, NULL)",
        "DELETE FROM t WHERE b = '' AND c = 0",
    )
    mirror.sync()
    mirror.assert_equal("t")
    mirror.execute(
        "UPDATE t SET a = 7 WHERE a IS NULL",
        f"DELETE FROM t WHERE {one.format('a = 7')}",
        "DELETE FROM t WHERE b = 'same'",
    )
    mirror.sync()
    mirror.assert_equal("t")
    mirror.execute("TRUNCATE t", "INSERT INTO t VALUES (1, 'last', 1)")
    mirror.sync()
    mirror.assert_equal("t")


def test_a_key_that_is_updated_all_along_a_deferrable_constraint(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, v text)", "ALTER TABLE t REPLICA IDENTITY FULL")
    mirror.execute("INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 10) i")
    mirror.start()
    mirror.execute("UPDATE t SET id = id + 1")  # each row takes the next one's key, for a moment twice
    mirror.sync()
    mirror.assert_equal("t")


@pytest.mark.parametrize("identity", ["DEFAULT", "NOTHING"])
def test_a_table_that_only_grows_needs_no_identity(mirror: Mirror, identity: str) -> None:
    mirror.execute("CREATE TABLE t (a int, b text)", f"ALTER TABLE t REPLICA IDENTITY {identity}")
    mirror.execute("INSERT INTO t VALUES (1, 'same'), (1, 'same'), (NULL, NULL)")
    mirror.start({"table": "public.t", "append_only": True})
    assert check(mirror.config, {}) == []
    mirror.execute("INSERT INTO t VALUES (1, 'same'), (2, NULL)")
    mirror.sync()
    mirror.assert_equal("t")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="replica identity"):
        mirror.execute("UPDATE t SET a = 3")
    mirror.execute("ALTER TABLE t ADD c int DEFAULT 5", "INSERT INTO t VALUES (1, 'same', 6)")
    mirror.settle()
    mirror.assert_equal("t")
    mirror.execute("TRUNCATE t", "INSERT INTO t VALUES (4, 'new')")
    mirror.sync()
    mirror.assert_equal("t")
    assert [each.ok for each in mirror.verify()] == [True]


def test_identity_is_changed_while_running(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    mirror.start()
    mirror.execute(
        "UPDATE t SET v = 'c' WHERE id = 1", "ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET v = 'd' WHERE id = 2"
    )
    mirror.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT", "DELETE FROM t WHERE id = 1")
    mirror.sync()
    mirror.assert_equal("t")


def test_a_key_that_older_rows_did_not_have_yet(mirror: Mirror) -> None:
    """A file still holds a row from before its column was filled; that row is gone, the others are found."""
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY, code text)", "INSERT INTO t VALUES (1, NULL), (2, 'x')")
    mirror.start()
    mirror.execute("UPDATE t SET code = 'y' WHERE id = 1")
    mirror.sync()
    mirror.execute(
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code)", "UPDATE t SET id = id + 10 WHERE code = 'x'"
    )
    mirror.sync()
    mirror.assert_equal("t")
    assert mirror.ask("SELECT count(*) FROM lake.public.t") == [(2,)]
