"""Tables that are dropped, replaced under their names, or swap them: each is its own matter, in one snapshot."""

from __future__ import annotations

from typing import Any

import pytest
from tests.mirror import Mirror

from headwater import flow
from headwater.state import TableRow

OLD = ("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT i, 'old' FROM generate_series(1, 9) i")
OTHER = ("CREATE TABLE other (id int PRIMARY KEY)",)
NEW = "CREATE TABLE t_new (id bigint PRIMARY KEY, w int)", "INSERT INTO t_new VALUES (100, 1)"
REPLACED = {
    "renamed over": ("ALTER TABLE t RENAME TO t_old", "ALTER TABLE t_new RENAME TO t"),
    "dropped, then renamed over": ("DROP TABLE t", "ALTER TABLE t_new RENAME TO t"),
    "dropped and created again": (
        "DROP TABLE t",
        "DROP TABLE t_new",
        "CREATE TABLE t (id bigint PRIMARY KEY, w int)",
        "INSERT INTO t VALUES (100, 1)",
    ),
}


def rows(mirror: Mirror) -> dict[str, TableRow]:
    return {row.configured.name: row for row in mirror.m.state.tables("g")}


def begun(mirror: Mirror, *tables: str | dict[str, Any]) -> None:
    mirror.execute(*OLD, *OTHER)
    mirror.start(*(tables or ("public.t", "public.other")))
    mirror.sync()


def test_a_dropped_table_is_noticed_after_its_last_changes_and_the_others_go_on(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    begun(mirror)
    mirror.execute("DELETE FROM t WHERE id > 3", "DROP TABLE t", "INSERT INTO other VALUES (1)")
    mirror.looked()
    mirror.sync()
    assert (rows(mirror)["t"].state, rows(mirror)["other"].state) == ("ERRORED", "STREAMING")
    assert "table 'public.t' was dropped in the source" in (rows(mirror)["t"].error or "")
    assert rows(mirror)["t"].retry_at is None
    flow.try_again(mirror.m.state, "g")  # as `run --until-caught-up` does
    assert rows(mirror)["t"].state == "ERRORED"
    assert mirror.ask("SELECT count(*) FROM lake.public.t") == [(3,)]
    mirror.assert_equal("other")
    mirror.reopen()
    mirror.execute("INSERT INTO other VALUES (2)")
    mirror.looked()
    mirror.sync()
    mirror.assert_equal("other")
    assert caplog.text.count("was dropped in the source before") == 1
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (7)")
    mirror.looked()
    mirror.settle()
    mirror.assert_equal("t", "other")


def test_a_dropped_table_does_not_hold_the_log(mirror: Mirror) -> None:
    begun(mirror)
    mirror.execute("INSERT INTO t VALUES (50, '')", "DROP TABLE t", "INSERT INTO other VALUES (1)")
    mirror.looked()
    mirror.sync()
    position = rows(mirror)["t"].position
    mirror.execute("INSERT INTO other VALUES (2)")
    mirror.sync()
    mirror.m.state.query("UPDATE headwater.segments SET created_at = created_at - interval '2 h' RETURNING id")
    flow.tidy(mirror.m)
    group = mirror.m.state.group("g")
    assert group is not None
    assert position is not None
    assert group.trimmed_lsn is not None
    assert group.trimmed_lsn > position


@pytest.mark.parametrize(
    ("how", "running", "together"),
    [
        ("renamed over", True, True),
        ("renamed over", True, False),
        ("renamed over", False, True),
        ("dropped, then renamed over", True, True),
        ("dropped and created again", True, True),
        ("dropped and created again", False, False),
    ],
)
def test_a_replaced_table_is_copied_in_place_of_the_old_mirror(
    mirror: Mirror, how: str, running: bool, together: bool
) -> None:
    begun(mirror)
    old = rows(mirror)["t"].oid
    if not running:
        mirror.stop_capture()
    mirror.execute(*NEW, "UPDATE t SET v = 'last'")
    (mirror.transaction if together else mirror.execute)(*REPLACED[how])
    mirror.execute("INSERT INTO t VALUES (101, 2)", "INSERT INTO other VALUES (1)")
    if how == "renamed over":
        mirror.execute("INSERT INTO t_old VALUES (10, 'after')")
    before = mirror.snapshots("t")[-1]
    if not running:
        mirror.reopen()
        mirror.capture()
    mirror.looked()
    mirror.sync()
    assert mirror.ask("DESCRIBE lake.public.t")[1][0] == "v"  # the old one stays until the new one is there
    mirror.execute("INSERT INTO t VALUES (102, 3)")
    mirror.settle()
    mirror.assert_equal("t", "other")
    found = rows(mirror)
    assert found.keys() == {"t", "other"}
    assert (found["t"].state, found["t"].replaces, found["t"].lake.name) == ("STREAMING", (), "t")
    assert mirror.tables() == ["other", "t"]
    assert old not in mirror.m.sink.standings()
    if mirror.kind == "ducklake":
        assert_replaced_in_one_snapshot(mirror, before)
    mirror.execute("UPDATE t SET w = w + 1", "DELETE FROM t WHERE id = 101")
    mirror.looked()
    assert not mirror.settle()  # nor is it copied a second time
    mirror.assert_equal("t")
    mirror.reopen()
    mirror.execute("INSERT INTO t VALUES (103, 4)")
    assert not mirror.settle()
    mirror.assert_equal("t")
    assert mirror.ask(f"SELECT count(*) FROM {mirror.at('t', before)}") == [(9,)]


def assert_replaced_in_one_snapshot(mirror: Mirror, before: int) -> None:
    created = [
        (snapshot, changes)
        for snapshot, changes in mirror.ask("SELECT snapshot_id, changes FROM lake.snapshots()")
        if snapshot > before and "tables_dropped" in changes
    ]
    assert len(created) == 1
    assert "tables_created" in created[0][1]


def test_a_replaced_table_with_another_name_in_the_lake_takes_that_one(mirror: Mirror) -> None:
    begun(mirror, {"table": "public.t", "as": "raw.things", "exclude": ["secret"]}, "public.other")
    mirror.execute(
        "CREATE TABLE t_new (id int PRIMARY KEY, secret text, z int)", "INSERT INTO t_new VALUES (1, 's', 2)"
    )
    mirror.transaction(*REPLACED["renamed over"])
    mirror.looked()
    mirror.settle()
    mirror.execute("INSERT INTO t VALUES (2, 's', 3)")
    mirror.settle()
    assert mirror.ask("SELECT id, z FROM lake.raw.things ORDER BY id") == [(1, 2), (2, 3)]
    assert [name for name, *_ in mirror.ask("DESCRIBE lake.raw.things")] == ["id", "z"]


def test_the_values_in_quarantine_of_a_replaced_table_are_settled(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric)", "INSERT INTO t VALUES (1, 'NaN')", *OTHER)
    mirror.start()
    mirror.execute("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, n numeric)", "INSERT INTO t VALUES (2, 'NaN')")
    mirror.looked()
    mirror.settle()
    left = mirror.ask("SELECT key FROM lake.headwater_quarantine WHERE resolved_lsn IS NULL")
    assert left == [('{"id": 2}',)]


@pytest.mark.parametrize("entry", [{"replaced": "stop"}, {"mode": "history"}])
def test_a_table_that_is_to_stop_when_it_is_replaced_stops_alone(mirror: Mirror, entry: dict[str, str]) -> None:
    begun(mirror, {"table": "public.t", **entry}, "public.other")
    mirror.execute(*NEW)
    mirror.transaction(*REPLACED["renamed over"])
    mirror.looked()
    mirror.execute("INSERT INTO other VALUES (1)", "INSERT INTO t_old VALUES (10, 'meanwhile')")
    assert not mirror.settle()
    assert rows(mirror)["t"].state == "ERRORED"
    assert "`replaced` is `stop`" in (rows(mirror)["t"].error or "")
    mirror.assert_equal("other")
    assert mirror.ask("SELECT count(*) FROM lake.public.t") == [(9,)]
    mirror.transaction("DROP TABLE t", "ALTER TABLE t_old RENAME TO t")
    mirror.looked()
    assert not mirror.settle()
    assert mirror.ask("SELECT count(*) FROM lake.public.t") == [(10,)]
    assert rows(mirror)["t"].state == "STREAMING"


def test_a_table_renamed_back_before_the_new_one_was_copied_is_copied_again(mirror: Mirror) -> None:
    begun(mirror)
    old = rows(mirror)["t"].oid
    mirror.execute(*NEW)
    mirror.transaction(*REPLACED["renamed over"])
    mirror.looked()
    assert rows(mirror)["t"].replaces == (old,)
    mirror.execute("INSERT INTO t_old VALUES (10, 'unseen')")
    mirror.transaction("ALTER TABLE t RENAME TO t_new", "ALTER TABLE t_old RENAME TO t")
    mirror.looked()
    mirror.settle()
    mirror.assert_equal("t", "other")
    assert mirror.tables() == ["other", "t"]
    assert (rows(mirror)["t"].oid, len(rows(mirror))) == (old, 2)


def test_a_mirrored_table_may_take_the_name_of_one_that_was_dropped(mirror: Mirror) -> None:
    mirror.execute(*OLD, *OTHER, "CREATE TABLE heir (id int PRIMARY KEY)", "INSERT INTO heir VALUES (5)")
    mirror.start()
    mirror.execute("DROP TABLE t", "ALTER TABLE heir RENAME TO t", "INSERT INTO t VALUES (6)")
    mirror.looked()
    mirror.settle()
    mirror.assert_equal("t", "other")
    assert mirror.tables() == ["other", "t"]
    assert {name: row.state for name, row in rows(mirror).items()} == {
        "t": "STREAMING", "other": "STREAMING", "heir": "ERRORED",
    }  # fmt: skip
    mirror.reopen()
    assert rows(mirror)["heir"].state == "ERRORED"
    mirror.execute("INSERT INTO t VALUES (7)", "INSERT INTO other VALUES (7)")
    mirror.settle()
    mirror.assert_equal("t", "other")
    mirror.execute("CREATE TABLE heir (id int PRIMARY KEY)", "INSERT INTO heir VALUES (8)")
    mirror.looked()
    mirror.settle()
    mirror.assert_equal("t", "other", "heir")
    assert {row.state for row in rows(mirror).values()} == {"STREAMING"}


def test_the_old_table_is_mirrored_on_under_its_new_name_and_the_new_one_beside_it(mirror: Mirror) -> None:
    begun(mirror)
    mirror.stop_capture()
    mirror.execute(*NEW)
    mirror.transaction(*REPLACED["renamed over"])
    mirror.execute("INSERT INTO t_old VALUES (10, 'after')", "INSERT INTO t VALUES (101, 2)")
    mirror.reopen("public.t", "public.t_old", "public.other")
    mirror.capture()
    assert len(flow.copy(mirror.m)) == 1  # at once, in the snapshot in which the old one gets its new name
    assert mirror.tables() == ["other", "t", "t_old"]
    mirror.settle()
    mirror.assert_equal("t", "t_old", "other")
    assert {row.lake.name: row.state for row in rows(mirror).values()} == dict.fromkeys(
        ("t", "t_old", "other"), "STREAMING"
    )


SWAPS = {
    "two": ("ALTER TABLE a RENAME TO z", "ALTER TABLE b RENAME TO a", "ALTER TABLE z RENAME TO b"),
    "three": (
        "ALTER TABLE a RENAME TO z",
        "ALTER TABLE b RENAME TO a",
        "ALTER TABLE c RENAME TO b",
        "ALTER TABLE z RENAME TO c",
    ),
}


@pytest.mark.parametrize(
    ("swap", "running", "fixed"),
    [("two", False, False), ("three", True, False), ("three", False, False), ("three", False, True)],
)
def test_tables_that_swap_names_swap_them_in_the_lake_in_one_snapshot(
    mirror: Mirror, swap: str, running: bool, fixed: bool
) -> None:
    mirror.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY, {name}_ int)" for name in "abc"))
    entry: str | dict[str, str] = {"table": "public.c", "as": "public.fixed"} if fixed else "public.c"
    mirror.start("public.a", "public.b", entry)
    mirror.execute(*(f"INSERT INTO {name} VALUES (1)" for name in "abc"))
    mirror.sync()
    if not running:
        mirror.stop_capture()
    mirror.transaction(*SWAPS[swap])
    before = mirror.snapshots("a")[-1]
    if not running:
        mirror.reopen()
        mirror.capture()
    mirror.looked()
    assert not mirror.settle()
    if mirror.kind == "ducklake":
        assert [each > before for each in mirror.snapshots("a")].count(True) == 1
    mirror.execute(*(f"INSERT INTO {name} VALUES (2)" for name in "abc"))
    mirror.reopen()
    assert not mirror.settle()
    called = dict(mirror.rows_of("SELECT oid::bigint, relname FROM pg_class WHERE relname IN ('a', 'b', 'c')"))
    for row in mirror.m.state.tables("g"):
        assert row.lake.name == (called[row.oid] if row.options.followed_name else "fixed")
        ours = mirror.ask(f"SELECT * FROM lake.public.{row.lake.name} ORDER BY id")
        assert ours == mirror.rows_of(f"SELECT * FROM {called[row.oid]} ORDER BY id")
        columns = [name for name, *_ in mirror.ask(f"DESCRIBE lake.public.{row.lake.name}")]
        theirs = f"SELECT attname FROM pg_attribute WHERE attrelid = {row.oid} AND attnum > 0 ORDER BY attnum"
        assert columns == [name for (name,) in mirror.rows_of(theirs)]


def test_tables_that_swap_names_while_one_of_them_waits_for_a_copy(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY, v int)")
    mirror.start()
    mirror.sync()
    mirror.stop_capture()
    mirror.transaction(*SWAPS["two"], "INSERT INTO a VALUES (1, 2)", "INSERT INTO b VALUES (3)")
    mirror.reopen()
    mirror.m.state.request_resync("g", rows(mirror)["a"].oid, "for the test")
    assert len(flow.copy(mirror.m)) == 1
    mirror.capture()
    mirror.settle()
    mirror.assert_equal("a", "b")


def test_mirrors_that_were_renamed_with_a_copy_keep_their_names_while_older_changes_are_delivered(
    mirror: Mirror,
) -> None:
    mirror.execute(*OLD, "CREATE TABLE a (id int PRIMARY KEY, v int)", "CREATE TABLE b (id int PRIMARY KEY)")
    mirror.start()
    mirror.sync()
    mirror.execute("INSERT INTO a VALUES (1, 1)", "DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY)")
    mirror.looked()
    mirror.stop_capture()  # so that the new names are not seen before the copy
    mirror.transaction(*SWAPS["two"])
    mirror.execute("INSERT INTO a VALUES (2)")
    assert len(flow.copy(mirror.m)) == 1
    assert mirror.tables() == ["a", "b", "t"]
    mirror.capture()
    mirror.sync()
    mirror.assert_equal("a", "b", "t")
    assert {row.state for row in rows(mirror).values()} <= {"CATCHUP", "STREAMING"}
