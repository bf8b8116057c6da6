"""Starting over: `group drop`, then a new copy in place of the old mirrors; and lakes that have lost something."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.captured_group import until
from tests.mirror import Mirror, open_ducklake
from tests.proof.processes import command

from headwater import flow
from headwater.checks import check
from headwater.commands.cli import cli
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.errors import OperatorMustAct
from headwater.state import TableRow
from headwater.supervise.lakes import FILES_GONE, copy_what_is_gone
from headwater.supervise.opening import mirroring, open_state


@pytest.fixture
def orders(mirror: Mirror) -> Mirror:
    """Tables orders and other, mirrored, with something staged that is not delivered."""
    for name in ("orders", "other"):
        mirror.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, t text)", f"INSERT INTO {name} VALUES (1, 'one')")
    mirror.start("public.orders", "public.other")
    mirror.execute("INSERT INTO orders VALUES (2, 'two')")
    mirror.sync()
    mirror.execute("INSERT INTO orders VALUES (3, 'staged')")
    mirror.captured()
    return mirror


def ask(mirror: Mirror, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-c", str(mirror.file), *arguments])


def listed(mirror: Mirror) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(ask(mirror, "group", "list", "--json").stdout)
    return found


def rows(mirror: Mirror) -> dict[str, TableRow]:
    return {row.source.name: row for row in mirror.m.state.tables("g")}


def start_over(mirror: Mirror) -> None:
    """As the next `run` does, with the old mirrors still in the lake."""
    before = dict(mirror.m.sink.standings())
    mirror.reopen()
    mirror.capture()
    assert flow.copy(mirror.m).keys() == before.keys()
    mirror.execute("UPDATE orders SET t = 'goes on' WHERE id = 1", "INSERT INTO other VALUES (2, 'goes on')")
    mirror.settle()
    mirror.assert_equal("orders", "other")
    assert [each.ok for each in mirror.verify()] == [True, True]
    now = mirror.m.sink.standings()
    assert now.keys() == before.keys()
    assert all(now[oid].position > each.position for oid, each in before.items())
    assert mirror.tables() == ["orders", "other"]


def test_a_dropped_group_is_copied_again_in_place_of_its_old_mirrors(orders: Mirror) -> None:
    orders.stop_capture()
    (group,) = listed(orders)
    assert group == {
        "name": "g",
        "lake": "main",
        "tables": 2,
        "slot": "headwater_g",
        "log": str(orders.folder / "log"),
        "origin": "config",
        "disabled": False,
        "waiting": [],
    }
    assert orders.m.indexes is not None
    Path(orders.m.indexes.folder).mkdir(parents=True)
    (Path(orders.m.indexes.folder) / "of a file.keys").write_bytes(b"")  # as a large table has it
    done = ask(orders, "group", "drop", "g", "--yes")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("dropped slot 'headwater_g'\ndropped publication 'headwater_g'\ndropped ")
    assert f" in '{orders.folder}/log'\ngroup 'g' is dropped\n" in done.stdout
    assert orders.rows_of("SELECT FROM pg_replication_slots WHERE database = current_database()") == []
    assert orders.rows_of("SELECT FROM pg_publication") == []
    assert orders.rows_of("SELECT FROM headwater.groups") == []
    assert [path for path in (orders.folder / "log").rglob("*") if path.is_file()] == []
    assert orders.ask("SELECT count(*) FROM lake.public.orders") == [(2,)]
    assert listed(orders)[0]["slot"] is None
    assert check(orders.config, {}) == []
    again = ask(orders, "group", "drop", "g", "--yes")
    assert again.exit_code == 2
    assert "there is no group 'g' to drop" in again.stderr
    orders.execute("DELETE FROM orders WHERE id = 2")
    start_over(orders)


def test_a_group_whose_slot_is_lost_starts_over_as_the_message_says(orders: Mirror) -> None:
    orders.stop_capture()
    active = "SELECT FROM pg_replication_slots WHERE slot_name = 'headwater_g' AND active"
    until(lambda: not orders.rows_of(active))  # the server needs a moment to notice
    orders.execute("SELECT pg_drop_replication_slot('headwater_g')", "INSERT INTO orders VALUES (4, 'in no log')")
    (problem,) = check(orders.config, {})
    assert "slot 'headwater_g' of group 'g' is gone" in problem.message
    assert "`headwater group drop g`, then `headwater run` copies the tables again" in problem.hint
    assert ask(orders, "group", "drop", "g", "--yes").exit_code == 0
    start_over(orders)


def test_a_group_is_not_dropped_without_a_word_or_while_it_is_running(orders: Mirror) -> None:
    done = ask(orders, "group", "drop", "g")
    assert done.exit_code == 2
    assert "error: dropping group 'g' was not confirmed\nhint: add --yes" in done.stderr
    with orders.m.state.lock("run:g"):
        done = ask(orders, "group", "drop", "g", "--yes")
    assert done.exit_code == 4
    assert "another headwater holds the lock 'run:g'" in done.stderr
    done = ask(orders, "group", "drop", "g", "--yes")  # its capture, in a thread of ours, holds no lock
    assert done.exit_code == 4
    assert "slot 'headwater_g' is being read" in done.stderr
    orders.execute("INSERT INTO orders VALUES (5, 'goes on')")
    orders.sync()
    orders.assert_equal("orders", "other")


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", 1), (b"y\n", 0)])
def test_a_terminal_is_asked_before_a_group_is_dropped(orders: Mirror, answer: bytes, left: int) -> None:
    orders.stop_capture()
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        done = subprocess.run(
            command(orders.file, "group", "drop", "g"), stdin=theirs, capture_output=True, timeout=60, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"Drop group 'g'" in done.stdout
    assert done.returncode == left
    assert len(orders.rows_of("SELECT FROM headwater.groups")) == left


def test_a_group_that_left_the_config_is_listed_and_can_be_dropped(orders: Mirror) -> None:
    orders.stop_capture()
    orders.file.write_text(orders.file.read_text().replace("  g: {lake", "  other: {lake"))
    assert [(each["name"], each["origin"], each["tables"]) for each in listed(orders)] == [
        ("other", "config", 2),
        ("g", "state", 2),
    ]
    assert str(listed(orders)[1]["lake"]).endswith(f"sqlite:///{orders.catalog_file}")
    assert ask(orders, "group", "list").stdout.splitlines()[0].split()[:2] == ["group", "lake"]
    assert ask(orders, "group", "drop", "g", "--yes").exit_code == 0
    assert [each["name"] for each in listed(orders)] == ["other"]


def test_the_slot_of_a_group_that_was_captured_elsewhere_is_left_alone(orders: Mirror) -> None:
    orders.stop_capture()
    orders.execute("UPDATE headwater.groups SET source_id = '1/elsewhere'")
    done = ask(orders, "group", "drop", "g", "--yes")
    assert done.exit_code == 0, done.output
    assert "dropped slot" not in done.stdout
    assert len(orders.rows_of("SELECT FROM pg_replication_slots WHERE database = current_database()")) == 1
    assert orders.rows_of("SELECT FROM headwater.groups") == []


def test_a_mirror_that_was_dropped_in_the_lake_is_copied_again_when_asked(orders: Mirror) -> None:
    orders.drop_in_lake("orders")
    orders.execute("INSERT INTO orders VALUES (5, 'not there')")
    orders.sync()
    assert rows(orders)["orders"].state == "ERRORED"
    error = rows(orders)["orders"].error or ""
    assert "the lake has no table public.orders any more\nhint: another client dropped it there" in error
    assert "`headwater run --recopy`" in error
    copy_what_is_gone(orders.config, {}, orders.m.state)
    assert {name: row.state for name, row in rows(orders).items()} == {"orders": "PENDING", "other": "STREAMING"}
    assert "was dropped in the lake" in (rows(orders)["orders"].resync or "")
    orders.settle()
    orders.assert_equal("orders", "other")
    copy_what_is_gone(orders.config, {}, orders.m.state)
    assert {row.resync for row in rows(orders).values()} == {None}


def test_a_lake_that_was_deleted_is_made_again_only_when_asked(orders: Mirror) -> None:
    orders.lake.close()
    orders._lake = None
    for file in orders.folder.glob(f"{orders.catalog_file.name}*"):
        file.unlink()
    with pytest.raises(OperatorMustAct, match=r"is not the one it was: .* and now there is no lake"):
        mirroring(orders.config, {}, orders.m.state, "g", orders.spark)
    assert not orders.catalog_file.exists()
    with closing(open_state(orders.config)) as state:
        copy_what_is_gone(orders.config, {}, state)
    orders.reopen()
    assert {row.state for row in rows(orders).values()} == {"PENDING"}
    orders.settle()
    orders.assert_equal("orders", "other")
    assert [each.ok for each in orders.verify()] == [True, True]
    assert check(orders.config, {}) == []


def test_files_of_a_lake_that_are_gone_are_found_and_their_tables_copied_again_when_asked(orders: Mirror) -> None:
    orders.execute("CREATE TABLE odd (id int PRIMARY KEY, n numeric)", "INSERT INTO odd VALUES (1, 'NaN')")
    orders.reopen("public.orders", "public.other", "public.odd")
    orders.settle()
    quarantined = "SELECT count(*) FROM lake.headwater_quarantine WHERE resolved_lsn IS NULL"
    assert orders.ask(quarantined) == [(1,)]
    assert check(orders.config, {}) == []
    folders = orders.data_folders()
    for name in ("orders", "headwater_quarantine"):
        shutil.rmtree(folders[name])
    (problem,) = check(orders.config, {})
    assert problem.exit_code == 4
    assert "has lost data files: of " in problem.message
    assert {"public.orders", "main.headwater_quarantine"} == set(re.findall(r"\w+\.\w+(?=,)", problem.message))
    assert "`headwater run --recopy` copies these tables anew" in problem.hint
    with pytest.raises(OperatorMustAct, match="has lost data files"):
        mirroring(orders.config, {}, orders.m.state, "g", orders.spark)
    orders.execute("UPDATE orders SET t = 'new'", "INSERT INTO other VALUES (2, 'two')")
    assert check(orders.config, {}, recopy=True) == []
    copy_what_is_gone(orders.config, {}, orders.m.state)
    assert {name: row.resync for name, row in rows(orders).items()} == {
        "orders": FILES_GONE,
        "odd": FILES_GONE,
        "other": None,
    }
    orders.reopen()
    orders.settle()
    orders.assert_equal("orders", "other")
    assert orders.ask(quarantined) == [(1,)]
    assert [each.ok for each in orders.verify()] == [True] * 3
    assert check(orders.config, {}) == []
    orders.execute("DROP TABLE odd")
    orders.stop_capture()  # it would report that the publication no longer has a table
    orders.reopen("public.orders", "public.odd")
    for name in ("other", "odd"):  # which left the config, and which the source has dropped
        shutil.rmtree(orders.data_folders()[name])
    assert check(orders.config, {}) == []
    copy_what_is_gone(orders.config, {}, orders.m.state)
    assert {row.resync for row in rows(orders).values()} == {None}


@pytest.mark.ducklake_only
@pytest.mark.parametrize("prepared", [True, False], ids=["of a group of ours", "of others"])
def test_a_lake_that_is_replaced_while_it_is_written_to_is_not_taken_for_one_with_dropped_tables(
    orders: Mirror, tmp_path: Path, prepared: bool
) -> None:
    orders.lake.close()
    orders._lake = None
    for file in orders.folder.glob("lake.sqlite*"):
        file.unlink()
    if prepared:
        open_ducklake(orders.config).close()
    else:
        with connect() as con:
            attach(con, parse_lake_url(orders.config.ducklakes["main"].catalog), "lake", data_path=str(tmp_path / "x"))
    for step in (flow.copy, flow.deliver):
        with pytest.raises(OperatorMustAct, match=r"replaced|no longer the lake") as caught:
            step(orders.m)
        assert "`headwater run --recopy` copies all its tables anew" in caught.value.hint
    assert {row.state for row in rows(orders).values()} == {"STREAMING"}


def test_the_event_triggers_go_with_the_last_group_of_a_source(orders: Mirror) -> None:
    with closing(open_state(orders.config)) as state:
        (row,) = state.groups()
        state.ensure_group("second", row.source_id, "headwater_second", "headwater_second")
    orders.stop_capture()
    count = "SELECT count(*) FROM pg_event_trigger"
    assert "event triggers" not in ask(orders, "group", "drop", "g", "--yes").output
    assert orders.rows_of(count) == [(3,)]
    assert "the event triggers" in ask(orders, "group", "drop", "second", "--yes").output
    assert orders.rows_of(count) == [(0,)]
