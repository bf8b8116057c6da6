"""A source's tables change their shape, and the lake follows, in the snapshot of the data around the change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from tests.mirror import Mirror

from headwater import flow
from headwater.errors import ConfigError
from headwater.state import TableRow
from headwater.state.transitions import Failed, Retried
from headwater.supervise.opening import open_log

START = (
    "CREATE TABLE t (id int PRIMARY KEY, a text, b int, gone text)",
    "INSERT INTO t SELECT i, 'a' || i, i, 'x' FROM generate_series(1, 9) i",
)


def begun(mirror: Mirror) -> Mirror:
    mirror.execute(*START)
    mirror.start()
    return mirror


class Change(NamedTuple):
    """What changes the shape, the data that is written afterwards, and whether only a new copy can follow.

    Older rows get a default, which Iceberg's format 2 shows only in a new copy.
    """

    ddl: str
    data: str
    copied: bool = False
    default: bool = False

    def copied_into(self, mirror: Mirror) -> bool:
        return self.copied or (self.default and mirror.kind == "iceberg")


CHANGES = {
    "a column is added": Change("ALTER TABLE t ADD c text", "INSERT INTO t (id, c) VALUES ({}, 'new')"),
    "with a default": Change("ALTER TABLE t ADD d int DEFAULT 7", "UPDATE t SET d = 8 WHERE id = 2", default=True),
    "with the default of a moment": Change(
        "ALTER TABLE t ADD e timestamptz DEFAULT now()", "INSERT INTO t (id) VALUES ({})", default=True
    ),
    "with defaults of many types": Change(
        "ALTER TABLE t ADD f1 numeric(10,3) DEFAULT 1.5, ADD f2 text DEFAULT '', ADD f3 date DEFAULT '2026-01-02',"
        " ADD f4 uuid DEFAULT '00000000-0000-0000-0000-000000000001', ADD f5 bytea DEFAULT '\\x00ff',"
        " ADD f6 varchar(5) DEFAULT 'ab', ADD f7 boolean DEFAULT true, ADD f8 real DEFAULT 'NaN'",
        "UPDATE t SET b = 0 WHERE id = 3",
        default=True,
    ),
    "a column is dropped": Change("ALTER TABLE t DROP gone", "UPDATE t SET b = 1 WHERE id = 4"),
    "a column is renamed": Change("ALTER TABLE t RENAME a TO word", "UPDATE t SET word = 'w' WHERE id = 5"),
    "a dropped name comes back": Change(
        "ALTER TABLE t DROP word; ALTER TABLE t ADD word text",
        "UPDATE t SET word = 'again' WHERE id = 6",
    ),
    "two names change places": Change(
        "ALTER TABLE t RENAME b TO tmp; ALTER TABLE t RENAME c TO b; ALTER TABLE t RENAME tmp TO c",
        "INSERT INTO t (id, b, c) VALUES ({}, 'text', 5)",
    ),
    "a type is widened": Change("ALTER TABLE t ALTER c TYPE bigint", "INSERT INTO t (id, c) VALUES ({}, 5000000000)"),
    "the key's type is widened": Change(
        "ALTER TABLE t ALTER id TYPE bigint", "INSERT INTO t (id) VALUES (50000000000 + {})"
    ),
    "a decimal is widened": Change(
        "ALTER TABLE t ALTER f1 TYPE numeric(20,5)", "INSERT INTO t (id, f1) VALUES ({}, 123456789.12345)", copied=True
    ),
    "not null comes and goes": Change(
        "UPDATE t SET c = 0 WHERE c IS NULL; ALTER TABLE t ALTER c SET NOT NULL; ALTER TABLE t ALTER c DROP NOT NULL",
        "INSERT INTO t (id) VALUES ({})",
    ),
    "a type the lake cannot follow": Change(
        "ALTER TABLE t ALTER c TYPE text", "INSERT INTO t (id, c) VALUES ({}, 'words')", copied=True
    ),
    "a type is narrowed": Change(
        "ALTER TABLE t ALTER d TYPE smallint", "INSERT INTO t (id, d) VALUES ({}, 3)", copied=True
    ),
    "values of their own for older rows": Change(
        "ALTER TABLE t ADD g double precision DEFAULT random()", "INSERT INTO t (id) VALUES ({})", copied=True
    ),
    "a serial": Change("ALTER TABLE t ADD h bigserial", "INSERT INTO t (id) VALUES ({})", copied=True),
    "another key": Change(
        "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (d, id)",
        "UPDATE t SET id = -id WHERE id % 2 = 0",
    ),
}


FOLLOWED = [change for change in CHANGES.values() if not change.copied]


def played(changes: Iterable[Change] = CHANGES.values()) -> Iterator[Change]:
    """The changes, with data under keys of their own."""
    for number, change in enumerate(changes, 100):
        yield change._replace(data=change.data.format(number))


def of(mirror: Mirror) -> TableRow:
    (row,) = [row for row in mirror.m.state.tables("g") if row.source.name == "t"]
    return row


def test_a_table_that_went_through_all_of_them_is_copied_right(mirror: Mirror) -> None:
    mirror.execute(*START)
    for change in played():
        mirror.execute(change.ddl, change.data)
    mirror.start()
    mirror.assert_equal("t")
    mirror.execute("UPDATE t SET b = 'after' WHERE h % 3 = 0")
    mirror.sync()
    mirror.assert_equal("t")


@pytest.mark.parametrize("lake", ["mirror", pytest.param("iceberg_mirror", marks=pytest.mark.long)])
def test_each_change_with_data_after_it(request: pytest.FixtureRequest, lake: str) -> None:
    mirror: Mirror = begun(request.getfixturevalue(lake))
    for change in played():
        mirror.execute(change.ddl, change.data)
        assert mirror.settle() is change.copied_into(mirror), change
        mirror.assert_equal("t")


@pytest.mark.long
def test_each_change_alone_with_a_restart_before_the_data(mirror: Mirror) -> None:
    begun(mirror)
    for change in played():
        mirror.execute(change.ddl)
        mirror.stop_capture()
        mirror.reopen()
        mirror.capture()
        mirror.looked()
        assert mirror.settle() is change.copied_into(mirror), change
        mirror.assert_equal("t")
        mirror.execute(change.data)
        assert not mirror.settle()
        mirror.assert_equal("t")


@pytest.mark.parametrize(
    "changes", [pytest.param(CHANGES.values(), id="all", marks=pytest.mark.long), pytest.param(FOLLOWED, id="followed")]
)
def test_all_changes_between_two_deliveries(mirror: Mirror, changes: Iterable[Change]) -> None:
    begun(mirror)
    for change in played(changes):
        mirror.execute(change.ddl, change.data)
        mirror.captured()  # it was looked at before the next one came
    assert mirror.settle() is any(change.copied_into(mirror) for change in changes)
    mirror.assert_equal("t")


def test_changes_made_while_capture_is_down(mirror: Mirror) -> None:
    begun(mirror)
    mirror.stop_capture()
    for change in played():
        mirror.execute(change.ddl, change.data)
    mirror.capture()
    mirror.settle()
    mirror.assert_equal("t")


def test_changes_that_were_read_once_and_could_not_be_written_then(mirror: Mirror) -> None:
    """Their shapes are known already when they are read again."""
    begun(mirror).stop_capture()
    log = open_log(mirror.config, mirror.m.state, "g")
    mirror.execute("UPDATE t SET b = 1 WHERE id = 1", "ALTER TABLE t ALTER b TYPE bigint")
    mirror.execute("ALTER TABLE t RENAME gone TO here", "ALTER TABLE t ADD c int")
    mirror.execute("INSERT INTO t VALUES (50, 'a', 5000000000, 'x', 1)")
    segments = mirror.folder / "log" / "segments"
    aside = segments.rename(segments.with_name("aside"))
    segments.write_text("where a folder should be")
    with pytest.raises(ConfigError, match="cannot be written"):
        mirror.capture_with(log)
    segments.unlink()
    aside.rename(segments)
    mirror.capture()
    mirror.sync()
    mirror.assert_equal("t")
    assert mirror.rows_of("SELECT seen FROM headwater.relations ORDER BY id") == [("catalog",), *[("ddl",)] * 3]
    assert mirror.rows_of("SELECT quarantined, resync FROM headwater.tables") == [(0, None)]


def test_several_changes_in_one_transaction_with_data_between_land_in_one_snapshot(mirror: Mirror) -> None:
    begun(mirror)
    mirror.transaction(
        "INSERT INTO t VALUES (20, 'before', 1, 'x')",
        "ALTER TABLE t ADD c text DEFAULT 'given'",
        "INSERT INTO t VALUES (21, 'between', 2, 'x', 'own')",
        "ALTER TABLE t DROP gone",
        "UPDATE t SET c = 'changed' WHERE id IN (1, 20)",
        "ALTER TABLE t RENAME a TO word",
        "DELETE FROM t WHERE id = 2",
    )
    assert mirror.settle() is (mirror.kind == "iceberg")
    mirror.assert_equal("t")
    before = mirror.ask(f"SELECT * FROM {mirror.at('t', mirror.snapshots('t')[-2])} ORDER BY id")
    assert before[0] == (1, "a1", 1, "x")  # the old shape
    assert mirror.ask("SELECT word, b, c FROM lake.public.t WHERE id IN (1, 3, 20) ORDER BY id") == [
        ("a1", 1, "changed"),
        ("a3", 3, "given"),
        ("before", 1, "changed"),
    ]


def test_a_column_added_without_any_data_is_there(mirror: Mirror) -> None:
    begun(mirror)
    mirror.execute("ALTER TABLE t ADD c int DEFAULT 5")
    mirror.looked()
    mirror.settle()
    mirror.assert_equal("t")
    assert mirror.ask("SELECT DISTINCT c FROM lake.public.t") == [(5,)]


@pytest.mark.parametrize(
    "change", ["ALTER TYPE mood RENAME VALUE 'good' TO 'better'", "ALTER TYPE pair ADD ATTRIBUTE c date"]
)
def test_a_type_whose_values_are_spelled_otherwise_from_now_on(mirror: Mirror, change: str) -> None:
    mirror.execute("CREATE TYPE mood AS ENUM ('good', 'bad')", "CREATE TYPE pair AS (a int, b text)")
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY, m mood, ms mood[], p pair)")
    mirror.execute("INSERT INTO t VALUES (1, 'good', '{good,bad}', '(1,x)'), (2, 'bad', NULL, NULL)")
    mirror.start()
    first = len(mirror.snapshots("t"))
    mirror.execute("ALTER TYPE mood ADD VALUE 'new' BEFORE 'good'", "INSERT INTO t VALUES (3, 'new', '{new}')")
    mirror.looked()
    assert not mirror.settle()
    assert len(mirror.snapshots("t")) == first + 1
    mirror.execute(change)
    mirror.looked()
    mirror.settle()
    texts = "SELECT id, m::text, ms::text[], p::text FROM {} ORDER BY id"
    assert mirror.ask(texts.format("lake.public.t")) == mirror.rows_of(texts.format("t"))
    mirror.execute("INSERT INTO t VALUES (4, 'bad')", "UPDATE t SET ms = '{bad}' WHERE id = 2")
    mirror.sync()
    assert not flow.copy(mirror.m)  # once was enough
    assert mirror.ask(texts.format("lake.public.t")) == mirror.rows_of(texts.format("t"))


def test_a_renamed_table_is_followed_into_another_schema(mirror: Mirror) -> None:
    begun(mirror)
    mirror.execute(
        "CREATE SCHEMA elsewhere", "ALTER TABLE t SET SCHEMA elsewhere", "ALTER TABLE elsewhere.t RENAME TO u"
    )
    mirror.execute("INSERT INTO elsewhere.u (id) VALUES (30)")
    mirror.sync()
    assert mirror.ask("SELECT count(*) FROM lake.elsewhere.u") == [(10,)]
    if mirror.kind == "ducklake":  # a table of Iceberg has its new name in its older snapshots, too
        assert mirror.ask("SELECT count(*) FROM lake.public.t AT (VERSION => 1)") == [(9,)]
    mirror.execute("ALTER SCHEMA elsewhere RENAME TO there", "DELETE FROM there.u WHERE id = 30")
    mirror.sync()
    assert mirror.ask("SELECT count(*) FROM lake.there.u") == [(9,)]
    mirror.execute("ALTER SCHEMA there RENAME TO nowhere")  # and no data after it
    mirror.looked()
    mirror.sync()
    assert mirror.ask("SELECT count(*) FROM lake.nowhere.u") == [(9,)]


STOP = {"table": "public.t", "schema_changes": "stop"}


@pytest.mark.parametrize("change", ["ALTER TABLE t ADD c int", "ALTER TABLE t ALTER b TYPE text"])
def test_a_table_that_is_to_stop_stops_until_it_may_follow_and_the_others_go_on(mirror: Mirror, change: str) -> None:
    mirror.execute(*START, "CREATE TABLE other (id int PRIMARY KEY)")
    mirror.start(STOP, "public.other")
    mirror.execute(change, "INSERT INTO t (id, a) VALUES (50, 'kept')", "INSERT INTO other VALUES (1)")
    assert not mirror.settle()
    mirror.assert_equal("other")
    assert of(mirror).state == "ERRORED"
    assert "`schema_changes" in (of(mirror).error or "")
    assert mirror.ask("SELECT count(*) FROM lake.public.t") == [(9,)]
    mirror.reopen({**STOP, "schema_changes": "follow"}, "public.other")
    retry_now(mirror)
    mirror.settle()
    mirror.assert_equal("t", "other")
    assert of(mirror).state == "STREAMING"


def retry_now(mirror: Mirror) -> None:
    mirror.m.state.record("g", of(mirror).oid, Failed("for the test", datetime.now(UTC)))
    flow.retry(mirror.m)


def test_a_table_that_stopped_goes_on_when_the_change_is_undone(mirror: Mirror) -> None:
    mirror.execute(*START, "CREATE TABLE other (id int PRIMARY KEY)")
    mirror.start(STOP, "public.other")
    mirror.execute("ALTER TABLE t RENAME a TO word", "INSERT INTO t (id, word) VALUES (49, 'kept')")
    mirror.sync()
    assert of(mirror).state == "ERRORED"
    mirror.execute("ALTER TABLE t RENAME word TO a", "INSERT INTO t (id, a) VALUES (50, 'kept')")
    mirror.sync()  # the other table is past it
    retry_now(mirror)
    assert not mirror.settle()
    mirror.assert_equal("t")
    assert of(mirror).state == "STREAMING"


@pytest.mark.ducklake_only  # has views, and a reserved name
def test_a_name_that_cannot_be_had_stops_its_table_alone(mirror: Mirror) -> None:
    names = ("twice", "reserved", "one", "two", "three", "four", "a", "b", "other")
    mirror.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in names))
    mirror.start()
    mirror.ask("CREATE VIEW lake.public.viewed AS SELECT 1")
    mirror.execute(
        'ALTER TABLE twice ADD "ID" int',
        'ALTER TABLE reserved ADD "RowId" int',
        "ALTER TABLE one RENAME TO viewed",
        "ALTER TABLE two RENAME TO one",  # which `one` does not give up
        'ALTER TABLE three RENAME TO "Other"',
        'CREATE SCHEMA "Public"',
        'ALTER TABLE four SET SCHEMA "Public"',
        "ALTER TABLE a RENAME TO c",
        "ALTER TABLE b RENAME TO a",
        "ALTER TABLE c RENAME TO b",
        *(
            f"INSERT INTO {name} VALUES (1)"
            for name in ("twice", "reserved", "viewed", "one", '"Other"', '"Public".four')
        ),
        *(f"INSERT INTO {name} VALUES (1)" for name in ("a", "b", "other")),
    )
    mirror.sync()
    mirror.assert_equal("a", "b", "other")
    reported = {row.lake.name: row.error or "" for row in mirror.m.state.tables("g") if row.state == "ERRORED"}
    assert "keeps for itself" in reported.pop("reserved")
    assert reported.keys() == {"twice", "one", "two", "three", "four"}
    assert all("already" in reported[name] for name in ("one", "two"))
    assert all("differ in case only" in reported[name] for name in ("twice", "three", "four"))
    mirror.ask("DROP VIEW lake.public.viewed")
    for row in mirror.m.state.tables("g"):
        if row.lake.name in ("one", "two"):
            mirror.m.state.record("g", row.oid, Retried())
    mirror.sync()
    mirror.assert_equal("viewed", "one")


@pytest.mark.ducklake_only
def test_a_table_that_failed_goes_on_once_it_is_altered_again_though_no_other_table_changes(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY)")
    mirror.start()
    mirror.execute('ALTER TABLE t ADD "ID" int', "INSERT INTO t VALUES (1, 2)", "INSERT INTO other VALUES (1)")
    mirror.sync()

    def states() -> dict[str, str]:
        return {row.source.name: row.state for row in mirror.m.state.tables("g")}

    assert states() == {"t": "ERRORED", "other": "STREAMING"}
    mirror.execute('ALTER TABLE t RENAME "ID" TO more')
    mirror.captured()
    (failed,) = [row.oid for row in mirror.m.state.tables("g") if row.state == "ERRORED"]
    mirror.m.state.record("g", failed, Retried())
    mirror.sync()
    mirror.assert_equal("t", "other")
    mirror.execute("INSERT INTO t VALUES (3, 4)", "INSERT INTO other VALUES (2)")
    mirror.sync()
    mirror.assert_equal("t", "other")
    assert states() == {"t": "STREAMING", "other": "STREAMING"}
    assert len({row.position for row in mirror.m.state.tables("g")}) == 1


def test_names_are_swapped_also_if_one_of_them_is_heard_of_later(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    mirror.start()
    mirror.sync()
    mirror.stop_capture()  # so that nothing looks at the catalog before the insert is staged
    mirror.transaction("ALTER TABLE a RENAME TO c", "ALTER TABLE b RENAME TO a", "ALTER TABLE c RENAME TO b")
    mirror.execute("INSERT INTO b VALUES (1)")
    mirror.capture()
    mirror.sync()
    mirror.assert_equal("a", "b")
    mirror.execute("INSERT INTO a VALUES (2)")
    mirror.sync()
    mirror.assert_equal("a", "b")
    assert {(str(row.source), str(row.lake)) for row in mirror.m.state.tables("g")} == {
        ("public.a", "public.a"),
        ("public.b", "public.b"),
    }


def test_a_table_that_is_to_stop_does_not_give_up_its_name_when_others_want_it(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    mirror.start({"table": "public.a", "schema_changes": "stop"}, "public.b")
    mirror.transaction("ALTER TABLE a RENAME TO c", "ALTER TABLE b RENAME TO a", "ALTER TABLE c RENAME TO b")
    mirror.execute("INSERT INTO a VALUES (2)", "INSERT INTO b VALUES (1)")
    mirror.sync()
    assert {str(row.lake): row.state for row in mirror.m.state.tables("g")} == {
        "public.a": "ERRORED",
        "public.b": "ERRORED",
    }
    assert mirror.ask("SELECT count(*) FROM lake.public.a UNION ALL SELECT count(*) FROM lake.public.b") == [(0,), (0,)]
