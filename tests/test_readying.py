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

from headwater.capture.published import ALTERED
from headwater.capture.source import publication_tables
from headwater.change import Lsn, TableName
from headwater.checks import check
from headwater.config import Config
from headwater.errors import ConfigError, OperatorMustAct
from headwater.state import State, TableRow, connect
from headwater.status import open_status
from headwater.statusview import show
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
                    self.state.set_state("shop", row.oid, "STREAMING", position=Lsn(1), copy_lsn=Lsn(1))
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
    assert (rows["a"].state, rows["b"].state) == ("STREAMING", "PAUSED")
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
    place.run("DROP TABLE z", "CREATE TABLE z (id int PRIMARY KEY)")
    with pytest.raises(OperatorMustAct, match="is another table now"):
        place.ready("public.z")
    assert ["is another table now" in each.message for each in check(place.config("public.z"), {})] == [True]
    new = place.ready("{table: public.z, as: public.z2}", copied=False)
    assert [row.lake.name for row in place.state.tables("shop")].count("z2") == 1
    assert new


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


def test_the_slot_of_a_group_that_left_the_config_is_told(
    place: Place, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    place.ready("public.a")
    assert check(place.config("public.a"), {}) == []
    assert caplog.text == ""
    other = place.config("public.b", group="other")
    assert check(other, {}) == []
    told = "group 'shop' is not in the config, and its slot 'headwater_shop' keeps "
    drop = "`headwater group drop shop`"
    assert told in caplog.text
    assert drop in caplog.text
    with open_status(other) as ask:
        assert show(ask, as_json=False, watch=False)
        text = capsys.readouterr().out
        assert told in text
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
