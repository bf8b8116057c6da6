"""Tables by pattern on the whole path: they join, are left out, renamed in and out, dropped, and never stop others."""

from __future__ import annotations

import logging

import pytest
from tests.mirror import Mirror

from headwater import flow
from headwater.checks import check
from headwater.commands.statusview import coloured
from headwater.state import TableRow
from headwater.status import GroupStatus, open_status

A, B = (f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in "ab")
JOINED = "INSERT INTO {0} SELECT i, 'old' FROM generate_series(1, 9) i"


def rows(mirror: Mirror) -> dict[str, TableRow]:
    return {row.source.name: row for row in mirror.m.state.tables("g")}


def states(mirror: Mirror) -> dict[str, str]:
    return {name: row.state for name, row in rows(mirror).items()}


def begun(mirror: Mirror, *tables: str) -> None:
    mirror.execute(A, B, JOINED.format("a"))
    mirror.start(*(tables or ["public.*"]))
    mirror.sync()


def again(mirror: Mirror) -> None:
    """As a new run begins, or a running one that looks at its patterns again; then everything is delivered."""
    mirror.reopen()
    mirror.looked()
    mirror.settle()


def asked(mirror: Mirror) -> GroupStatus:
    with open_status(mirror.config, {}) as ask:
        (group,) = ask().groups
        return group


def test_a_table_that_is_created_later_joins_and_the_log_says_so(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    begun(mirror)
    caplog.set_level(logging.INFO)
    mirror.execute("CREATE TABLE c (id int PRIMARY KEY)", "INSERT INTO c VALUES (1)", "INSERT INTO a VALUES (10, '')")
    before = {name: row.oid for name, row in rows(mirror).items()}
    again(mirror)
    mirror.execute("INSERT INTO c VALUES (2)", "UPDATE a SET v = 'new' WHERE id = 1")
    mirror.sync()
    mirror.assert_equal("a", "b", "c")
    assert states(mirror) == dict.fromkeys("abc", "STREAMING")
    assert before.items() <= {name: row.oid for name, row in rows(mirror).items()}.items()
    assert "copy public.c to public.c: it matches public.*" in caplog.text
    assert all(row.resync is None for row in rows(mirror).values())
    assert {each.table for each in asked(mirror).tables} == {"public.a", "public.b", "public.c"}


def test_a_table_without_a_key_is_named_with_the_remedy_and_the_others_go_on(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    mirror.execute("CREATE TABLE keyless (id int)")
    begun(mirror)
    assert states(mirror) == {"a": "STREAMING", "b": "STREAMING"}
    assert check(mirror.config, {}) == []
    said = "table 'public.keyless' matches a pattern of group 'g', and is not mirrored: has no primary key"
    assert said in caplog.text
    (skipped,) = asked(mirror).skipped
    assert skipped.table == "public.keyless"
    assert skipped.hint.startswith("ALTER TABLE public.keyless REPLICA IDENTITY FULL;")
    with open_status(mirror.config, {}) as ask:
        assert "public.keyless is not mirrored: has no primary key" in coloured(ask()).plain
    mirror.execute("INSERT INTO keyless VALUES (1)", "UPDATE keyless SET id = 2")  # it is not published
    mirror.execute("ALTER TABLE keyless ADD PRIMARY KEY (id)")
    again(mirror)
    mirror.assert_equal("a", "keyless")
    assert asked(mirror).skipped == ()


def test_a_mirrored_table_that_loses_its_key_is_left_out_until_it_has_one(mirror: Mirror) -> None:
    begun(mirror)
    mirror.execute("ALTER TABLE a DROP CONSTRAINT a_pkey")
    again(mirror)
    assert states(mirror) == {"a": "REMOVED", "b": "STREAMING"}
    assert rows(mirror)["a"].error == "it cannot be mirrored as it is any more, see `headwater check`"
    mirror.execute("UPDATE a SET v = 'of the source' WHERE id = 1", "ALTER TABLE a ADD PRIMARY KEY (id)")
    again(mirror)
    mirror.assert_equal("a", "b")


def test_a_renamed_table_goes_on_under_its_new_name_if_that_matches(mirror: Mirror) -> None:
    begun(mirror)
    oid = rows(mirror)["a"].oid
    mirror.stop_capture()
    mirror.execute("ALTER TABLE a RENAME TO a2", "INSERT INTO a2 VALUES (10, 'renamed')")
    mirror.reopen()
    mirror.capture()
    mirror.looked()
    assert not mirror.settle()  # nothing is copied
    mirror.assert_equal("a2", "b")
    row = rows(mirror)["a2"]
    assert (row.oid, row.state, str(row.configured), str(row.lake)) == (oid, "STREAMING", "public.a2", "public.a2")


def test_a_table_may_take_the_name_that_another_had(mirror: Mirror) -> None:
    begun(mirror)
    old = rows(mirror)["a"].oid
    mirror.stop_capture()
    mirror.execute("ALTER TABLE a RENAME TO old_a", A, "INSERT INTO a VALUES (1, 'new table')")
    mirror.reopen()
    mirror.capture()
    mirror.looked()
    mirror.settle()
    mirror.assert_equal("a", "old_a", "b")
    assert rows(mirror)["old_a"].oid == old


def test_a_table_that_is_renamed_out_of_the_pattern_is_removed_and_comes_back_with_a_copy(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    begun(mirror, "public.?")
    mirror.execute("ALTER TABLE a RENAME TO tmp_a", "INSERT INTO tmp_a VALUES (10, 'outside')")
    again(mirror)
    assert {row.state for row in rows(mirror).values() if row.oid != rows(mirror)["b"].oid} == {"REMOVED"}
    assert "it is called public.tmp_a in the source now, which no pattern of the config matches" in caplog.text
    mirror.execute("ALTER TABLE tmp_a RENAME TO a")
    again(mirror)
    mirror.assert_equal("a", "b")
    assert states(mirror) == {"a": "STREAMING", "b": "STREAMING"}


@pytest.mark.parametrize("running", [True, False])
def test_a_table_that_is_dropped_leaves_after_its_last_changes(
    mirror: Mirror, caplog: pytest.LogCaptureFixture, running: bool
) -> None:
    begun(mirror)
    mirror.execute("DELETE FROM a WHERE id > 3")
    mirror.captured()
    if not running:
        mirror.stop_capture()
    mirror.execute("DROP TABLE a", "INSERT INTO b VALUES (1, '')")
    if not running:
        mirror.reopen()
        mirror.capture()
    mirror.looked()
    mirror.sync()
    mirror.reopen()
    assert states(mirror) == {"a": "REMOVED", "b": "STREAMING"}
    assert (rows(mirror)["a"].error or "").startswith("it was dropped in the source before ")
    assert mirror.ask("SELECT count(*) FROM lake.public.a") == [(3,)]
    mirror.assert_equal("b")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    mirror.execute(A, "INSERT INTO a VALUES (77, 'again')")  # it takes the place of the mirror that was left
    again(mirror)
    mirror.assert_equal("a", "b")
    assert states(mirror) == {"a": "STREAMING", "b": "STREAMING"}


def test_a_table_that_is_dropped_before_it_was_copied_leaves_at_once(mirror: Mirror) -> None:
    mirror.execute(A, B)
    mirror.start("public.*", copy=False)
    mirror.execute("DROP TABLE a")
    mirror.reopen()
    assert states(mirror) == {"a": "REMOVED", "b": "PENDING"}


def test_a_dropped_table_whose_name_another_mirrored_table_takes_is_not_an_error_for_ever(mirror: Mirror) -> None:
    begun(mirror)
    mirror.stop_capture()
    mirror.execute("DROP TABLE a", "ALTER TABLE b RENAME TO a", "INSERT INTO a VALUES (1, 'was b')")
    mirror.reopen()
    mirror.capture()
    mirror.looked()
    mirror.settle()
    mirror.reopen()
    mirror.assert_equal("a")
    assert [row.state for row in mirror.m.state.tables("g") if row.state != "REMOVED"] == ["STREAMING"]


def test_tables_that_swap_their_names_swap_them_in_the_lake(mirror: Mirror) -> None:
    begun(mirror)
    mirror.stop_capture()
    mirror.transaction("ALTER TABLE a RENAME TO x", "ALTER TABLE b RENAME TO a", "ALTER TABLE x RENAME TO b")
    mirror.execute("INSERT INTO a VALUES (1, 'was b')")
    mirror.reopen()
    mirror.capture()
    mirror.looked()
    mirror.settle()
    mirror.assert_equal("a", "b")
    assert states(mirror) == {"a": "STREAMING", "b": "STREAMING"}


def test_a_group_without_tables_captures_and_waits_for_the_first_one(mirror: Mirror) -> None:
    mirror.start("public.*")
    mirror.looked()
    assert mirror.settle() is False
    assert rows(mirror) == {}
    assert asked(mirror).tables == ()
    mirror.execute(A, JOINED.format("a"))
    again(mirror)
    mirror.execute("DELETE FROM a WHERE id < 4")
    mirror.sync()
    mirror.assert_equal("a")
    mirror.execute("DROP TABLE a")
    again(mirror)
    assert states(mirror) == {"a": "REMOVED"}
    flow.tidy(mirror.m)


@pytest.mark.ducklake_only
def test_a_name_that_the_lake_has_already_is_a_warning_and_the_tables_own_error(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    begun(mirror, "public.b")
    mirror.ask("CREATE TABLE lake.public.a (someone_elses int)")
    mirror.config = mirror.configure("public.*")
    assert check(mirror.config, {}) == []
    assert "table public.a will not be copied: " in caplog.text
    again(mirror)
    assert states(mirror) == {"a": "ERRORED", "b": "STREAMING"}
    mirror.assert_equal("b")
