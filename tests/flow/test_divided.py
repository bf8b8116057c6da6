"""A table whose changes are divided among several tasks ends up as it would in one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.mirror import Mirror

from headwater import flow

LONG = "(SELECT string_agg(md5(i::text || n::text), '') FROM generate_series(1, 400) n)"  # TOASTed, and omitted

HISTORY = {
    "rows that are made, changed and deleted": (
        "INSERT INTO t SELECT i, 'new', 'short' FROM generate_series(101, 150) i",
        "UPDATE t SET v = v || '!' WHERE id % 3 = 0",
        "DELETE FROM t WHERE id % 5 = 0",
        "INSERT INTO t SELECT i, 'again', 'short' FROM generate_series(5, 100, 5) i",
    ),
    "keys that change, with a long value that is not sent": (
        "UPDATE t SET id = id + 1000 WHERE id <= 40",
        "UPDATE t SET v = 'moved' WHERE id > 1000",
        "UPDATE t SET id = id - 500 WHERE id > 1020",
    ),
    "a truncate in the middle": (
        "UPDATE t SET v = 'lost'",
        "TRUNCATE t",
        "INSERT INTO t SELECT i, 'kept', 'short' FROM generate_series(1, 30) i",
        "UPDATE t SET id = -id WHERE id < 10",
    ),
}


@pytest.fixture
def mirrored(mirror: Mirror) -> Mirror:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY, v text, long text)", "CREATE TABLE bag (a int, b text)")
    mirror.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    mirror.execute(f"INSERT INTO t SELECT i, 'copied', {LONG} FROM generate_series(1, 100) i")
    mirror.execute("INSERT INTO bag SELECT i % 4, 'x' FROM generate_series(1, 40) i")
    mirror.start()
    return mirror


def test_changes_that_are_divided_among_tasks_arrive(mirrored: Mirror) -> None:
    for what, statements in HISTORY.items():
        mirrored.transaction(*statements, "DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag WHERE a = 1 LIMIT 2)")
        mirrored.captured()
        done = flow.deliver(replace(mirrored.m, split_from=1))
        assert done.upto, what
        assert done.failed == {}, what
        mirrored.assert_equal("t")
        mirrored.assert_equal("bag")
