"""Segments of the log that are gone: the tables that need them are copied again, and no others."""

from __future__ import annotations

import logging
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.mirror import Mirror

from headwater import flow
from headwater.change import Lsn
from headwater.checks import check
from headwater.flow.gaps import LOST
from headwater.state import TableRow
from headwater.state.transitions import Failed


@pytest.fixture
def two(mirror: Mirror) -> Mirror:
    """Tables a and b, mirrored; what is staged last is not delivered yet."""
    mirror.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY, t text)" for name in "ab"))
    mirror.execute("INSERT INTO a VALUES (1, 'one')", "INSERT INTO b VALUES (1, 'one')")
    mirror.start("public.a", "public.b")
    mirror.sync()
    return mirror


def rows(mirror: Mirror) -> dict[str, TableRow]:
    return {row.source.name: row for row in mirror.m.state.tables("g")}


def segments(mirror: Mirror) -> set[Path]:
    return set((mirror.folder / "log").rglob("*.parquet"))


def lose_what_this_stages(mirror: Mirror, *statements: str) -> None:
    """Stage the changes of a transaction, and delete their segments."""
    mirror.captured()
    before = segments(mirror)
    mirror.transaction(*statements)
    mirror.captured()
    for lost in segments(mirror) - before:
        lost.unlink()


def equal(mirror: Mirror) -> None:
    mirror.settle()
    mirror.assert_equal("a", "b")
    assert [each.ok for each in mirror.verify()] == [True, True]
    assert mirror.m.log.missing() == []
    assert {row.state for row in rows(mirror).values()} <= {"STREAMING", "CATCHUP"}


def test_only_tables_with_changes_in_the_segments_that_are_gone_are_copied_again(
    two: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    lose_what_this_stages(two, "INSERT INTO a VALUES (2, 'lost')")
    two.execute("INSERT INTO b VALUES (2, 'kept')", "INSERT INTO a VALUES (3, 'kept')")
    two.captured()
    with caplog.at_level(logging.WARNING):
        assert check(two.config, {}) == []
    assert (
        "the log of group g has lost 1 segment: `run` copies again the tables that need what is lost: public.a"
        in caplog.text
    )
    caplog.clear()
    two.sync()
    found = rows(two)
    assert (found["a"].state, found["a"].resync) == ("PENDING", LOST)
    assert (found["b"].state, found["b"].resync) == ("STREAMING", None)
    assert caplog.text.count(f"table public.a will be copied again: {LOST}") == 1
    assert "table public.b will" not in caplog.text
    two.sync()
    two.assert_equal("b")  # which did not wait for the other
    equal(two)
    assert rows(two)["a"].resync is None


def test_a_whole_log_that_is_gone_while_nothing_ran_costs_only_a_copy(two: Mirror) -> None:
    two.execute("UPDATE a SET t = 'lost'", "UPDATE b SET t = 'lost'")
    two.captured()
    two.stop_capture()
    before = two.m.state.group("g")
    shutil.rmtree(two.folder / "log")
    two.execute("INSERT INTO a VALUES (2, 'later')")
    two.reopen()
    flow.mend(two.m)
    assert {row.resync for row in rows(two).values()} == {LOST}
    now = two.m.state.group("g")
    assert before is not None
    assert now is not None
    assert now.log_path == before.log_path
    assert now.log_id != before.log_id
    two.capture()
    equal(two)
    two.execute("INSERT INTO b VALUES (2, 'goes on')")
    equal(two)


def test_a_log_that_is_gone_while_everything_was_delivered_costs_nothing(
    two: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    two.execute("UPDATE a SET t = 'delivered'")
    two.sync()
    assert segments(two)
    shutil.rmtree(two.folder / "log")
    caplog.clear()
    assert check(two.config, {}) == []
    assert ": no table needs it" in caplog.text
    flow.mend(two.m)
    assert {row.resync for row in rows(two).values()} == {None}
    two.execute("UPDATE a SET t = 'after it'")  # capture, which goes on, makes the folder again
    assert not two.settle()
    equal(two)
    flow.mend(two.m)
    assert check(two.config, {}) == []


def test_a_log_that_is_gone_while_it_is_running_is_noticed_by_the_next_delivery(two: Mirror) -> None:
    two.execute("UPDATE a SET t = 'lost'")
    two.captured()
    shutil.rmtree(two.folder / "log")
    two.execute("UPDATE a SET t = 'after it'", "DELETE FROM b")
    two.captured()
    flow.deliver(two.m)
    assert {name: row.resync for name, row in rows(two).items()} == {"a": LOST, "b": None}
    equal(two)


def test_a_part_of_a_large_transaction_that_is_gone_concerns_the_tables_in_it(two: Mirror) -> None:
    two.captured()
    before = segments(two)
    two.transaction(
        "INSERT INTO a SELECT i, repeat('x', 2000) FROM generate_series(10, 6000) i",
        "INSERT INTO b SELECT i, repeat('x', 2000) FROM generate_series(10, 12000) i",
    )
    two.captured()
    files = sorted(segments(two) - before)
    assert len(files) > 1
    parts = {name: {oid for oid, _, _ in two.m.log.changed([name])} for name in (file.name for file in files)}
    oids = {name: row.oid for name, row in rows(two).items()}
    lost = next(file for file in files if parts[file.name] == {oids["b"]})
    lost.unlink()
    two.sync()
    assert {name: row.resync for name, row in rows(two).items()} == {"a": None, "b": LOST}
    equal(two)


def test_a_table_that_is_past_the_gap_goes_on_while_one_before_it_is_copied_again(two: Mirror) -> None:
    much_later = datetime.now(UTC) + timedelta(hours=1)
    two.m.state.record("g", rows(two)["a"].oid, Failed("it waits", much_later))
    lose_later = segments(two)
    two.transaction("INSERT INTO a VALUES (2, 'lost')", "INSERT INTO b VALUES (2, 'delivered')")
    two.sync()
    two.assert_equal("b")
    for file in segments(two) - lose_later:
        file.unlink()
    two.execute("INSERT INTO b VALUES (3, 'goes on')")
    two.captured()
    flow.mend(two.m)
    assert {name: row.resync for name, row in rows(two).items()} == {"a": LOST, "b": None}
    equal(two)


def test_a_copy_that_landed_before_the_gap_and_was_not_noted_is_not_gone_on_from(two: Mirror) -> None:
    lose_what_this_stages(two, "INSERT INTO a VALUES (2, 'lost')")
    with two.m.state.transaction() as connection:  # as a crash after the copy's commit leaves it
        connection.execute("UPDATE headwater.tables SET state = 'SNAPSHOT', position = NULL, copy_lsn = NULL")
    flow.mend(two.m)
    assert {name: row.resync for name, row in rows(two).items()} == {"a": LOST, "b": None}
    equal(two)


def test_a_lake_that_was_restored_from_before_the_log_begins_is_copied_again(two: Mirror) -> None:
    catalog, backup = two.catalog_file, two.folder / "backup.sqlite"
    two.m.close()
    shutil.copy(catalog, backup)
    two.execute("UPDATE a SET t = 'after the backup'")
    two.sync()
    two.m.log.trim(Lsn(2**60))
    for wal in two.folder.glob(f"{catalog.name}-*"):
        wal.unlink()
    shutil.copy(backup, catalog)
    flow.deliver(two.m)
    assert {row.resync for row in rows(two).values()} == {LOST}
    equal(two)
