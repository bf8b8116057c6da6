"""An exported snapshot shows exactly what was committed before its position."""

from __future__ import annotations

import threading

import psycopg
import pytest
from tests.captured_group import Group, execute, until

from headwater.copy.snapshot import exported_snapshot
from headwater.postgres.connect import connect


def test_an_exported_snapshot_shows_exactly_what_was_committed_before_its_position(group: Group) -> None:
    execute(group.url, "CREATE TABLE orders (id int PRIMARY KEY)")
    group.prepare("orders")
    with group.capturing():
        execute(group.url, "INSERT INTO orders VALUES (1)", "INSERT INTO orders VALUES (2)")
        with exported_snapshot(group.url) as exported:
            execute(group.url, "INSERT INTO orders VALUES (3)")
            with psycopg.connect(group.url) as reader:
                reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                reader.execute(f"SET TRANSACTION SNAPSHOT '{exported.snapshot_name}'")
                copied = [row[0] for row in reader.execute("SELECT id FROM orders ORDER BY id")]
        group.settle()
    before = [row.new[0] for row in group.rows() if row.new and row.commit_lsn < exported.lsn.value]
    assert copied == [1, 2] == [int(each) for each in before if each]
    with connect(group.url) as connection:
        slots = "SELECT count(*) FROM pg_replication_slots WHERE temporary AND database = current_database()"
        until(lambda: connection.execute(slots).fetchone() == (0,))  # they go with their session


def test_an_export_that_has_to_wait_says_for_whom(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    execute(group.url, "CREATE TABLE orders (id int PRIMARY KEY)")
    with psycopg.connect(group.url, application_name="slow one") as slow:
        slow.execute("INSERT INTO orders VALUES (1)")
        pid = slow.info.backend_pid

        def end() -> None:
            until(lambda: "slow one" in caplog.text)
            slow.commit()

        ender = threading.Thread(target=end)
        ender.start()
        with exported_snapshot(group.url, report_after=0.5) as exported:
            assert exported.lsn.value > 0
        ender.join()
    assert f"PostgreSQL pid {pid} ('slow one'" in caplog.text
