"""A copy that was broken off goes on with what is done: the log makes up for ranges of different positions."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from tests.brokenoff import beside, break_off
from tests.mirror import Mirror

from headwater import flow
from headwater.state import TableRow
from headwater.state.copies import KeptRange

BODY = "md5(i::text) || repeat('x', 400)"


def first_half(done: KeptRange) -> bool:
    return done.first_page < 10


def go_on(mirror: Mirror) -> None:
    mirror.m.sink.look_again()
    with beside(mirror) as m:
        assert flow.copy(m)


def row_of(mirror: Mirror, name: str = "t") -> TableRow:
    return next(row for row in mirror.m.state.tables("g") if row.source.name == name)


def went_on(log: pytest.LogCaptureFixture) -> bool:
    return any("goes on:" in each.message for each in log.records)


@pytest.fixture
def table(mirror: Mirror, caplog: pytest.LogCaptureFixture) -> Mirror:
    """A table of some twenty pages, captured and not yet copied."""
    caplog.set_level(logging.INFO)
    mirror.execute(
        "CREATE TABLE t (id int PRIMARY KEY, body text, big text)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        f"INSERT INTO t SELECT i, {BODY}, repeat('b', 3000) FROM generate_series(1, 320) i",
    )
    mirror.start(copy=False)
    return mirror


def finished(mirror: Mirror) -> None:
    mirror.m.sink.look_again()
    mirror.settle()
    mirror.assert_equal("t")
    row = row_of(mirror)
    assert row.state == "STREAMING"
    ((rows,),) = mirror.rows_of("SELECT count(*) FROM t")
    assert row.copied_rows + row.inserted - row.deleted == rows
    assert [each.ok for each in mirror.verify()] == [True]
    assert mirror.m.state.kept_copies("g") == {}


def test_only_the_rest_is_read_again(table: Mirror, caplog: pytest.LogCaptureFixture) -> None:
    break_off(table, first_half)
    before = table.m.state.kept_copies("g")[row_of(table).oid]
    assert len(before.ranges) == 5
    table.execute("UPDATE t SET body = 'in the log' WHERE id IN (1, 320)", "INSERT INTO t VALUES (1000, 'in the log')")
    table.captured()
    go_on(table)
    assert went_on(caplog)
    row = row_of(table)
    assert row.position == before.ranges[0].lsn
    assert row.copy_lsn is not None
    assert row.copy_lsn > before.ranges[0].lsn
    finished(table)
    table.m.sink.collect_copies()
    table.m.sink.collect_copies()
    assert table.m.sink.lost(every_file=True) == {}


def test_rows_that_moved_to_other_pages_meanwhile_are_there_once(
    table: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    break_off(table, first_half)
    table.execute(
        "DELETE FROM t WHERE id BETWEEN 1 AND 40",
        "VACUUM t",
        "UPDATE t SET body = body || 'moved to the front' WHERE id > 300",
        f"UPDATE t SET body = {BODY.replace('i::text', 'id::text')} || 'moved to the end' WHERE id BETWEEN 50 AND 90",
        "UPDATE t SET id = id + 5000 WHERE id BETWEEN 100 AND 110",
        "DELETE FROM t WHERE id BETWEEN 310 AND 315",
        "INSERT INTO t SELECT i, 'new', 'new' FROM generate_series(1, 20) i",
    )
    table.captured()
    go_on(table)
    assert went_on(caplog)
    finished(table)


def test_large_values_that_are_nowhere_but_in_rows_that_moved_are_copied_again(table: Mirror) -> None:
    """The update that moved the row to a page that was done does not have them."""
    break_off(table, lambda each: each.first_page < 4)
    table.execute(
        "DELETE FROM t WHERE id < 30",
        "VACUUM t",
        "UPDATE t SET body = 'moved to a page that is done' WHERE id > 300",
    )
    table.captured()
    go_on(table)
    table.m.sink.look_again()
    table.sync()
    assert "has no row to take it from" in (row_of(table).resync or "")
    finished(table)


def test_a_truncate_meanwhile_leaves_what_came_after_it(table: Mirror, caplog: pytest.LogCaptureFixture) -> None:
    break_off(table, first_half)
    table.transaction("TRUNCATE t", "INSERT INTO t VALUES (1, 'after')")
    table.execute("INSERT INTO t VALUES (2, 'after')")
    table.captured()
    go_on(table)
    assert not went_on(caplog)  # its pages are in another file now
    finished(table)


@pytest.mark.parametrize(
    "change",
    ["ALTER TABLE t ADD COLUMN more int", "VACUUM FULL t", "ALTER TABLE t RENAME TO s"],
    ids=["another column", "rewritten", "another name"],
)
def test_a_copy_of_what_has_changed_since_starts_over(
    table: Mirror, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    break_off(table, first_half)
    table.execute(change)
    if "RENAME" in change:
        table.execute("ALTER TABLE s RENAME TO u")
    table.captured()
    go_on(table)
    assert not went_on(caplog)
    if "RENAME" not in change:
        finished(table)


@pytest.mark.parametrize("options", [{"mode": "history"}, {"append_only": True}], ids=str)
def test_a_copy_starts_over_if_rows_are_not_known_by_a_key(
    mirror: Mirror, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    caplog.set_level(logging.INFO)
    mirror.execute(
        "CREATE TABLE t (id int, body text)", f"INSERT INTO t SELECT i, {BODY} FROM generate_series(1, 320) i"
    )
    if "mode" in options:
        mirror.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    mirror.start({"table": "public.t", **options}, copy=False)
    break_off(mirror, first_half)
    go_on(mirror)
    assert not went_on(caplog)
    assert mirror.ask("SELECT count(*), count(DISTINCT id) FROM lake.public.t") == [(320, 320)]


def test_a_copy_that_was_asked_for_later_starts_over(table: Mirror, caplog: pytest.LogCaptureFixture) -> None:
    break_off(table, first_half)
    table.m.state.request_resync("g", row_of(table).oid, "a test asks for it")
    assert table.m.state.kept_copies("g") == {}
    go_on(table)
    assert not went_on(caplog)
    finished(table)


def test_a_copy_for_which_the_log_is_gone_starts_over(table: Mirror, caplog: pytest.LogCaptureFixture) -> None:
    break_off(table, first_half)
    table.execute("INSERT INTO t VALUES (1000)")
    table.captured()
    table.m.log.trim(table.m.log.end())
    go_on(table)
    assert not went_on(caplog)
    finished(table)


def test_a_copy_that_landed_before_a_crash_is_not_made_again(table: Mirror) -> None:
    """Though it was asked for: the state had only no time to note it."""
    break_off(table, first_half)
    go_on(table)
    finished(table)
    table.m.state.request_resync("g", row_of(table).oid, "a test asks for it")
    before = table.m.state.kept_copies

    class Killed(Exception):
        pass

    with beside(table) as m:
        state: Any = _Dying(m.state, Killed)
        with pytest.raises(Killed):
            flow.copy(replace(m, state=state))
    assert row_of(table).resync == "a test asks for it"
    assert before("g")
    table.execute("INSERT INTO t VALUES (2000)")
    table.captured()
    table.m.sink.look_again()
    assert flow.copy(table.m) == {}
    assert (row_of(table).state, row_of(table).resync) == ("CATCHUP", None)
    finished(table)


class _Dying:
    """The state of a process that dies before it has noted what landed."""

    def __init__(self, state: Any, error: type[Exception]) -> None:
        self._state, self._error = state, error

    def __getattr__(self, name: str) -> Any:
        if name == "record_delivery":
            raise self._error
        return getattr(self._state, name)


def late_range(mirror: Mirror) -> tuple[int, KeptRange]:
    """What a task has written for a copy that was broken off, and has not noted yet."""
    break_off(mirror, first_half)
    ((oid, kept),) = mirror.m.state.kept_copies("g").items()
    late = kept.ranges[-1]
    with mirror.m.state.transaction() as connection:
        connection.execute("DELETE FROM headwater.copied_ranges WHERE first_page = %s", (late.first_page,))
    return oid, late


def test_a_task_that_outlived_its_driver_cannot_note_a_range_whose_file_may_be_deleted(table: Mirror) -> None:
    oid, late = late_range(table)
    flow.collect_copies(table.m)
    table.m.state.keep_range("g", oid, late)
    assert late not in table.m.state.kept_copies("g")[oid].ranges

    def note() -> None:
        table.m.state.keep_range("g", oid, late)

    with beside(table, note) as m:  # nor while another copy is under way
        assert flow.copy(m)
    finished(table)


def test_a_task_notes_its_range_as_long_as_its_copy_is_under_way(table: Mirror) -> None:
    oid, late = late_range(table)
    before = row_of(table).copied_rows
    table.m.state.keep_range("g", oid, late)
    table.m.state.keep_range("g", oid, late)
    assert late in table.m.state.kept_copies("g")[oid].ranges
    assert row_of(table).copied_rows == before + late.rows
