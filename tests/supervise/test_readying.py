"""What a start makes of the config, the state and the source, before anything is captured or copied."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.change import Lsn, TableName
from headwater.checks import check
from headwater.commands.statusview import show
from headwater.config import Config
from headwater.errors import ConfigError, OperatorMustAct
from headwater.postgres.connect import connect
from headwater.source.publications import ALTERED, publication_tables
from headwater.state import State, TableRow
from headwater.state.transitions import CaughtUp, Copied
from headwater.status import open_status
from headwater.supervise.groups import drop_group
from headwater.supervise.readying import make_ready
from headwater.supervise.running import ready

WHOLE = "publish = 'insert, update, delete, truncate'"


class Place:
    """A source with tables a and b, and a state."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.run(*(f"CREATE TABLE {name} (id int PRIMARY KEY, x int, y numeric)" for name in "ab"))
        self.state = State.connect(url)
        self.state.migrate()

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def config(self, *tables: str, group: str = "shop") -> Config:
        file = self.folder / "headwater.yaml"
        lake = "{ducklake: 'sqlite:///lake.sqlite', data_path: ./lake}"
        groups = f"{{{group}: {{tables: [{', '.join(tables)}]}}}}"
        file.write_text(f"source: {self.url}\nlog: ./log\nlakes: {{main: {lake}}}\ngroups: {groups}\n")
        return Config.load(file, {})

    def ready(self, *tables: str, copied: bool = True) -> dict[str, TableRow]:
        make_ready(self.config(*tables), self.state)
        if copied:
            for row in self.state.tables("shop"):
                if row.position is None:
                    self.state.record("shop", row.oid, Copied(Lsn(1)))
                    self.state.record("shop", row.oid, CaughtUp())
        return self.rows()

    def rows(self) -> dict[str, TableRow]:
        return {row.configured.name: row for row in self.state.tables("shop")}

    def lists(self) -> dict[str, set[str] | None]:
        with connect(self.url) as connection:
            found = publication_tables(connection, "headwater_shop") or {}
        return {each.table.name: None if each.columns is None else set(each.columns) for each in found.values()}


@pytest.fixture
def place(database: str, tmp_path: Path) -> Iterator[Place]:
    place = Place(database, tmp_path)
    yield place
    place.state.close()


def test_a_table_left_out_of_the_config_pauses_and_is_copied_again_when_it_comes_back(place: Place) -> None:
    place.ready("public.a", "public.b")
    rows = place.ready("public.a")
    assert (rows["a"].state, rows["b"].state) == ("STREAMING", "REMOVED")
    assert place.lists() == {"a": None}
    rows = place.ready("public.a", "public.b")
    assert (rows["b"].state, rows["b"].resync) == ("PENDING", "it was left out of the config for a while")
    assert rows["a"].resync is None


@pytest.mark.parametrize(
    "tampering",
    [
        ["ALTER PUBLICATION headwater_shop DROP TABLE a"],
        ["ALTER PUBLICATION headwater_shop DROP TABLE a", "ALTER PUBLICATION headwater_shop ADD TABLE a"],
        ["ALTER PUBLICATION headwater_shop SET (publish = 'insert')"],
        ["ALTER PUBLICATION headwater_shop SET (publish = '')", f"ALTER PUBLICATION headwater_shop SET ({WHOLE})"],
        ["DROP PUBLICATION headwater_shop"],
    ],
    ids=["taken out", "taken out and put back", "sends less", "sent less", "dropped"],
)
def test_tables_whose_publication_was_altered_are_copied_again(place: Place, tampering: list[str]) -> None:
    assert place.ready("public.a", "public.b")["a"].resync is None
    place.run("ALTER TABLE a RENAME TO z", "ALTER TABLE z RENAME TO a", "CREATE TABLE c ()")
    place.run("ALTER PUBLICATION headwater_shop ADD TABLE c")
    assert place.ready("public.a", "public.b")["a"].resync is None
    place.run(*tampering)
    rows = place.ready("public.a", "public.b")
    assert (rows["a"].state, rows["a"].resync) == ("PENDING", ALTERED)
    assert rows["b"].resync == (None if "TABLE" in tampering[0] else ALTERED)
    assert place.lists() == {"a": None, "b": None}


def test_a_table_that_paused_before_its_copy_was_noted_is_copied_again(place: Place) -> None:
    place.ready("public.a", "public.b", copied=False)
    place.ready("public.a", copied=False)
    rows = place.ready("public.a", "public.b", copied=False)
    assert (rows["b"].state, rows["b"].resync) == ("PENDING", "it was left out of the config for a while")
    assert rows["a"].resync is None


def test_what_a_table_is_carried_without_is_not_published_and_asking_for_more_copies_it_again(place: Place) -> None:
    rows = place.ready("{table: public.a, exclude: [y]}", "{table: public.b, columns: [id, x]}")
    assert place.lists() == {"a": {"id", "x"}, "b": {"id", "x"}}
    rows = place.ready("{table: public.a, columns: [id]}", "public.b")
    assert place.lists() == {"a": {"id"}, "b": None}
    assert rows["a"].resync is None  # fewer: nothing is missing in the lake
    assert rows["b"].resync == "the config asks for more of its columns: y"


def test_other_types_copy_a_table_again_and_another_mode_is_refused(place: Place) -> None:
    rows = place.ready("public.a", "public.b")
    assert rows["a"].options.types == {}
    rows = place.ready("{table: public.a, types: {y: varchar}}", "public.b")
    assert (rows["a"].state, rows["a"].resync) == ("PENDING", "the config asks for other types")
    assert rows["a"].options.types == {"y": "varchar"}
    with pytest.raises(ConfigError, match="is mirrored with mode 'mirror', the config now says 'history'"):
        place.ready("public.a", "{table: public.b, mode: history}")


def test_a_renamed_table_is_still_found_by_its_name_in_the_config(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    before = place.ready("public.a")["a"]
    place.run("ALTER TABLE a RENAME TO z")
    with caplog.at_level(logging.WARNING):
        after = place.ready("public.a")["a"]
    assert (after.oid, after.source, after.state) == (before.oid, TableName("public", "z"), "STREAMING")
    assert "table public.a is called public.z in the source now" in caplog.text
    assert check(place.config("public.a"), {}) == []
    assert place.ready("public.z")["z"].oid == before.oid


def test_a_table_that_was_dropped_leaves_the_others_alone(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.ready("public.a", "public.b")
    place.run("DROP TABLE a")
    assert check(place.config("public.a", "public.b"), {}) == []
    assert "table 'public.a' was dropped in the source" in caplog.text
    caplog.clear()
    for _ in range(2):
        rows = place.ready("public.a", "public.b")
        assert (rows["a"].state, rows["b"].state) == ("STREAMING", "STREAMING")  # what is staged comes first
        assert rows["a"].dropped_lsn
    assert caplog.text.count("table 'public.a' was dropped in the source before") == 1
    assert place.lists() == {"b": None}
    place.run("DROP TABLE b", "CREATE TABLE c (id int PRIMARY KEY)")
    rows = place.ready("public.a", "public.b", "public.c", copied=False)
    assert rows["c"].state == "PENDING"
    with pytest.raises(ConfigError, match=r"there is no table 'public\.d' in the source"):
        place.ready("public.c", "public.d")


def test_a_table_that_was_dropped_before_its_first_copy_is_errored(place: Place) -> None:
    place.ready("public.a", "public.b", copied=False)
    place.run("DROP TABLE a")
    rows = place.ready("public.a", "public.b", copied=False)
    assert (rows["a"].state, rows["a"].retry_at, rows["b"].state) == ("ERRORED", None, "PENDING")
    assert "was dropped in the source" in (rows["a"].error or "")


@pytest.mark.parametrize("away", ["DROP TABLE a", "ALTER TABLE a RENAME TO a_old"])
def test_a_table_that_took_anothers_name_is_copied_in_its_place(place: Place, away: str) -> None:
    old = place.ready("public.a", "public.b")["a"].oid
    place.run("CREATE TABLE a_new (id int PRIMARY KEY)", away, "ALTER TABLE a_new RENAME TO a")
    assert check(place.config("public.a", "public.b"), {}) == []
    for _ in range(2):
        rows = place.ready("public.a", "public.b", copied=False)
        assert (rows["a"].state, rows["a"].replaces, rows["a"].position) == ("PENDING", (old,), None)
        assert rows["b"].state == "STREAMING"
    assert len(place.state.tables("shop")) == 2
    assert place.lists() == {"a": None, "b": None}
    place.run("CREATE TABLE a_newer (id int PRIMARY KEY)", "DROP TABLE a", "ALTER TABLE a_newer RENAME TO a")
    newer = place.ready("public.a", "public.b", copied=False)["a"]
    assert newer.replaces == (old, rows["a"].oid)


def test_the_old_table_may_be_mirrored_on_under_its_new_name(place: Place) -> None:
    before = place.ready("public.a", "public.b")["a"]
    place.run("ALTER TABLE a RENAME TO a_old", "CREATE TABLE a (id int PRIMARY KEY)")
    rows = place.ready("public.a", "public.a_old", "public.b", copied=False)
    assert (rows["a_old"].oid, rows["a_old"].state, rows["a_old"].resync) == (before.oid, "STREAMING", None)
    assert (rows["a"].state, rows["a"].replaces) == ("PENDING", ())


def test_an_old_table_that_is_wanted_again_before_it_was_replaced_is_copied_again(place: Place) -> None:
    before = place.ready("public.a", "public.b")["a"]
    place.run("ALTER TABLE a RENAME TO a_old", "CREATE TABLE a (id int PRIMARY KEY)")
    assert place.ready("public.a", "public.b", copied=False)["a"].replaces == (before.oid,)
    rows = place.ready("public.a", "public.a_old", "public.b", copied=False)
    assert (rows["a"].replaces, rows["a_old"].oid) == ((), before.oid)
    assert rows["a_old"].resync == "another table had its place for a while"


def test_a_mirrored_table_that_took_the_name_of_a_dropped_one_leaves_its_own_entry_without_a_table(
    place: Place,
) -> None:
    old = place.ready("public.a", "public.b")
    place.run("DROP TABLE a", "ALTER TABLE b RENAME TO a")
    for _ in range(2):
        rows = place.ready("public.b", "public.a", copied=False)
        assert (rows["a"].oid, rows["a"].state, rows["a"].replaces) == (old["b"].oid, "PENDING", (old["a"].oid,))
        assert (rows["b"].oid, rows["b"].state, rows["b"].position) == (old["a"].oid, "ERRORED", None)
        assert check(place.config("public.a", "public.b"), {}) == []
    place.run("CREATE TABLE b (id int PRIMARY KEY)")
    rows = place.ready("public.a", "public.b", copied=False)
    assert (rows["b"].state, rows["b"].replaces) == ("PENDING", (old["a"].oid,))


STOPS = ("{table: public.a, replaced: stop}", "{table: public.a, mode: history}")


@pytest.mark.parametrize("entry", STOPS)
def test_a_table_that_is_to_stop_when_it_is_replaced_stops_alone_until_it_has_its_name_again(
    place: Place, entry: str
) -> None:
    before = place.ready(entry, "public.b")["a"]
    place.run("ALTER TABLE a RENAME TO a_old", "CREATE TABLE a (id int PRIMARY KEY)")
    assert check(place.config(entry, "public.b"), {}) == []
    rows = place.ready(entry, "public.b")
    assert (rows["a"].oid, rows["a"].state, rows["b"].state) == (before.oid, "ERRORED", "STREAMING")
    assert "the one that is mirrored is called 'public.a_old' now, and `replaced` is `stop`" in (rows["a"].error or "")
    assert place.lists() == {"a_old": None, "b": None}
    place.run("DROP TABLE a", "ALTER TABLE a_old RENAME TO a")
    rows = place.ready(entry, "public.b")
    assert (rows["a"].oid, rows["a"].state, rows["a"].error, rows["a"].resync) == (before.oid, "CATCHUP", None, None)


def test_a_history_is_given_up_if_the_config_says_so(place: Place) -> None:
    before = place.ready(STOPS[1])["a"]
    place.run("DROP TABLE a", "CREATE TABLE a (id int PRIMARY KEY)")
    assert place.ready(STOPS[1])["a"].state == "ERRORED"
    rows = place.ready("{table: public.a, mode: history, replaced: copy}", copied=False)
    assert (rows["a"].state, rows["a"].replaces) == ("PENDING", (before.oid,))


def test_a_new_table_that_cannot_be_mirrored_does_not_get_the_name(place: Place) -> None:
    """Published without a replica identity, PostgreSQL would refuse to update it."""
    before = place.ready("public.a", "public.b")["a"]
    place.run("ALTER TABLE a RENAME TO a_old", "CREATE TABLE a (id int)")
    rows = place.ready("public.a", "public.b")
    assert (rows["a"].oid, rows["a"].state, rows["b"].state) == (before.oid, "ERRORED", "STREAMING")
    assert "table 'public.a' has no primary key" in (rows["a"].error or "")
    assert place.lists() == {"a_old": None, "b": None}
    place.run("ALTER TABLE a ADD PRIMARY KEY (id)")
    assert place.ready("public.a", "public.b", copied=False)["a"].replaces == (before.oid,)


def test_tables_that_swap_names_go_on(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    swap = ("ALTER TABLE a RENAME TO c", "ALTER TABLE b RENAME TO a", "ALTER TABLE c RENAME TO b")
    before = place.ready("public.a", "public.b")
    place.run(*swap)
    assert check(place.config("public.a", "public.b"), {}) == []
    after = place.ready("public.a", "public.b")
    assert {after["a"].oid, after["a"].state, after["a"].resync} == {before["b"].oid, "STREAMING", None}
    assert caplog.text == ""
    # Those that are treated otherwise stay what they are, until the config is swapped as well.
    rows = place.ready("{table: public.a, as: public.fixed}", "public.b", copied=False)
    place.run(*swap)
    place.ready("{table: public.a, exclude: [y]}", "public.b")
    old = place.rows()
    place.run(*swap)
    caplog.clear()
    rows = place.ready("{table: public.a, exclude: [y]}", "public.b")
    assert (rows["a"].oid, rows["a"].source) == (old["a"].oid, TableName("public", "b"))
    assert "table public.a is called public.b in the source now" in caplog.text
    caplog.clear()
    rows = place.ready("{table: public.b, exclude: [y]}", "public.a")
    assert (rows["b"].oid, rows["b"].source, rows["b"].resync) == (old["a"].oid, TableName("public", "b"), None)
    assert caplog.text == ""


def test_another_database_is_refused_before_its_tables_are_taken_for_ours(place: Place, other_database: str) -> None:
    before = place.ready("public.a")
    with psycopg.connect(other_database, autocommit=True) as other:
        other.execute("CREATE TABLE a (id int PRIMARY KEY)")
    file = place.folder / "headwater.yaml"
    place.config("public.a")
    file.write_text(file.read_text().replace(f"source: {place.url}", f"source: {other_database}\nstate: {place.url}"))
    with pytest.raises(OperatorMustAct, match="was captured from source"):
        make_ready(Config.load(file, {}), place.state)
    assert place.rows() == before


def test_a_delivery_that_outlived_its_run_is_waited_for(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    config, stop, found = place.config("public.a"), threading.Event(), list[bool]()
    with place.state.lock("deliver:shop"):
        waiting = threading.Thread(target=lambda: found.append(ready(config, place.state, stop)))
        waiting.start()
        while "another headwater holds the lock 'deliver:shop'" not in caplog.text:
            assert waiting.is_alive()
            time.sleep(0.01)
        assert place.rows() == {}
    waiting.join()
    assert found == [True]
    assert list(place.rows()) == ["a"]
    with place.state.lock("deliver:shop"):
        stop.set()
        assert not ready(config, place.state, stop)


def test_a_child_that_does_not_stop_when_its_parent_is_gone_is_ended() -> None:
    program = (
        "import threading, time; from headwater.supervise.children import parent_gone;"
        " parent_gone(threading.Event(), 0.1); time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdin=subprocess.DEVNULL, timeout=30, check=False)
    assert done.returncode == 3


def test_the_slot_of_a_group_that_left_the_config_is_reported(
    place: Place, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    place.ready("public.a")
    assert check(place.config("public.a"), {}) == []
    assert caplog.text == ""
    other = place.config("public.b", group="other")
    assert check(other, {}) == []
    reported = "group 'shop' is not in the config, and its slot 'headwater_shop' keeps "
    drop = "`headwater group drop shop`"
    assert reported in caplog.text
    assert drop in caplog.text
    with open_status(other, {}) as ask:
        assert show(ask, as_json=False, watch=False)
        text = capsys.readouterr().out
        assert reported in text
        assert drop in text
        assert drop_group(other, "shop")[0] == "slot 'headwater_shop'"
        assert ask().leftovers == ()


def test_how_tables_look_is_noted_before_they_are_copied(place: Place) -> None:
    place.run("CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    place.run("CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (9)")
    rows = place.ready("public.a", "public.r", copied=False)
    assert list(place.state.partitions("shop")) == [rows["r"].oid]
    shapes = place.state.query("SELECT oid, seen FROM headwater.relations")
    assert sorted(shapes) == sorted((row.oid, "catalog") for row in rows.values())
    place.ready("public.a", "public.r", copied=False)
    assert len(place.state.query("SELECT FROM headwater.relations")) == 2
