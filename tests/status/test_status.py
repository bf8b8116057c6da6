"""The status says where everything stands, in numbers that are true, and the same to people and to programs."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from tests.mirror import Mirror

from headwater import flow
from headwater.change import Lsn
from headwater.commands.cli import cli
from headwater.commands.statusview import coloured, json_of, show
from headwater.config import Config
from headwater.errors import CheckFailed, ConfigError
from headwater.state import State
from headwater.state.processes import announced
from headwater.state.transitions import Failed, Paused
from headwater.status import GroupStatus, OldestChange, PartStatus, Status, TableStatus, open_status
from headwater.status.lag import source_view
from headwater.status.slots import slot_warning
from headwater.supervise.opening import open_state
from headwater.supervise.readying import make_ready
from headwater.testing.postgres import EmbeddedPostgres


def asked(mirror: Mirror) -> Status:
    with open_status(mirror.config, {}) as ask:
        return ask()


def tables(status: Status) -> dict[str, TableStatus]:
    (group,) = status.groups
    return {each.table: each for each in group.tables}


@contextmanager
def running(mirror: Mirror) -> Iterator[None]:
    """Hold the locks that a `headwater run` and its processes hold, as they do."""
    with closing(open_state(mirror.config)) as state, ExitStack() as held:
        held.enter_context(state.lock("run:g"))
        for part, name in (("capture", "capture:g"), ("delivery", "deliver:g")):
            lock = held.enter_context(state.lock(name))
            held.enter_context(announced(state, "g", part, lock))  # type: ignore[arg-type]
        until(lambda: {the(mirror).capture.state, the(mirror).delivery.state} == {"RUNNING"})
        yield


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def the(mirror: Mirror) -> GroupStatus:
    """The only group, now."""
    (group,) = asked(mirror).groups
    return group


def run_status(mirror: Mirror, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-c", str(mirror.file), "status", *arguments])


@pytest.fixture
def shop(mirror: Mirror) -> Mirror:
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, placed timestamptz)",
        "CREATE TABLE quiet (id int PRIMARY KEY)",
        "INSERT INTO orders SELECT i, now() FROM generate_series(1, 100) i",
    )
    return mirror


def test_the_numbers_follow_a_table_through_its_life(shop: Mirror) -> None:
    shop.start(copy=False)
    before = asked(shop)
    assert {name: (each.state, each.rows, each.position) for name, each in tables(before).items()} == {
        "public.orders": ("PENDING", 0, None),
        "public.quiet": ("PENDING", 0, None),
    }
    (group,) = before.groups
    assert (group.name, group.lake, group.delivered_lsn, group.snapshot_id) == ("g", "main", None, None)
    assert [group.lag_seconds, *(each.lag_seconds for each in group.tables)] == [None, None, None]

    flow.copy(shop.m)
    copied = tables(asked(shop))
    orders = copied["public.orders"]
    assert (orders.state, orders.rows, orders.copied_rows, orders.inserted) == ("CATCHUP", 100, 100, 0)
    assert (orders.lake, orders.lake_table) == ("main", "public.orders")
    assert orders.position == copied["public.quiet"].position is not None

    shop.execute(
        "INSERT INTO orders SELECT i, now() FROM generate_series(101, 110) i",
        "UPDATE orders SET placed = NULL WHERE id <= 5",
        "DELETE FROM orders WHERE id BETWEEN 6 AND 8",
    )
    shop.captured()
    (group,) = asked(shop).groups
    assert group.staged_rows == group.captured_changes == 18
    assert group.staged_segments >= 1
    assert (group.lag_seconds or 0) > 0
    assert group.slot_active is True

    (done,) = shop.sync()
    status = asked(shop)
    (group,) = status.groups
    orders = tables(status)["public.orders"]
    assert (orders.state, orders.rows, orders.inserted, orders.updated, orders.deleted) == ("STREAMING", 107, 10, 5, 3)
    assert (group.staged_segments, group.staged_rows, group.delivery.lag_seconds) == (0, 0, 0)
    number = done.snapshot_id if shop.kind == "ducklake" else None  # in Iceberg, each table has its own
    assert (group.delivered_lsn, group.snapshot_id) == (str(done.position), number)
    assert orders.position == tables(status)["public.quiet"].position == group.delivered_lsn
    assert group.captured_lsn is not None
    assert Lsn.parse(group.captured_lsn) >= done.position
    assert Lsn.parse(status.source_lsn or "0/0") >= done.position
    assert group.wal_bytes is not None
    assert group.wal_bytes > 0
    assert shop.ask("SELECT count(*) FROM lake.public.orders") == [(orders.rows,)]

    shop.execute("TRUNCATE orders", "INSERT INTO orders VALUES (1, NULL)")
    shop.captured()
    (staged,) = asked(shop).groups
    assert staged.delivered_at == group.delivered_at  # what is only captured is not delivered
    shop.execute("CREATE TABLE late (id int PRIMARY KEY)")
    make_ready(shop.configure("public.orders", "public.quiet", "public.late"), shop.m.state)
    flow.copy(shop.m)
    (ahead,) = asked(shop).groups
    assert ahead.delivered_lsn == group.delivered_lsn  # one table is ahead, the others are where they were
    assert shop.kind == "iceberg" or ahead.snapshot_id != group.snapshot_id
    assert ahead.staged_rows > 0
    shop.sync()
    (done_now,) = asked(shop).groups
    orders = tables(asked(shop))["public.orders"]
    assert (orders.rows, orders.inserted, orders.deleted) == (1, 11, 110)
    assert group.delivered_at is not None
    assert done_now.delivered_at is not None
    assert done_now.delivered_at > group.delivered_at
    assert done_now.delivered_lsn == orders.position


def in_trouble(shop: Mirror) -> Status:
    """One table cannot go on, the other one can."""
    shop.start()
    shop.ask("ALTER TABLE lake.public.orders ADD COLUMN f DOUBLE")
    shop.ask("ALTER TABLE lake.public.orders SET PARTITIONED BY (f)")  # which we cannot compute
    shop.execute("INSERT INTO orders VALUES (200, now())", "INSERT INTO quiet VALUES (1), (2)")
    shop.sync()
    return asked(shop)


def test_a_table_that_cannot_go_on_is_reported_with_its_reason_and_its_next_try(shop: Mirror) -> None:
    status = in_trouble(shop)
    assert not status.healthy
    orders, quiet = tables(status)["public.orders"], tables(status)["public.quiet"]
    assert orders.state == "ERRORED"
    assert "another client has partitioned" in (orders.error or "")
    assert (orders.error_kind, quiet.error_kind) == ("configuration", None)
    assert orders.retry_at is not None
    assert orders.retry_at > datetime.now(UTC)
    assert orders.rows == 100
    assert (quiet.state, quiet.rows, quiet.error) == ("STREAMING", 2, None)


def test_values_in_quarantine_are_counted_and_a_copy_that_is_to_come_is_reported(
    shop: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.execute("ALTER TABLE orders ADD total numeric", "UPDATE orders SET total = 'NaN' WHERE id = 1")
    shop.start()
    shop.execute("INSERT INTO orders VALUES (200, '294276-01-01', 'Infinity')")
    shop.sync()
    orders = tables(asked(shop))["public.orders"]
    assert (orders.state, orders.quarantined, orders.mode, orders.resync) == ("STREAMING", 3, "mirror", None)
    shop.execute("ALTER TABLE orders ALTER id TYPE text", "INSERT INTO orders VALUES ('a', NULL, 1)")
    shop.sync()
    status = asked(shop)
    orders = tables(status)["public.orders"]
    assert (orders.state, orders.error) == ("PENDING", None)
    assert "'id' became" in (orders.resync or "")
    show(lambda: status, as_json=False, watch=False)
    assert f"public.orders: is to be copied again: {orders.resync}" in capsys.readouterr().out
    assert json.loads(json_of(status))["groups"][0]["tables"][0]["resync"] == orders.resync
    flow.copy(shop.m)
    orders = tables(asked(shop))["public.orders"]
    assert (orders.state, orders.rows, orders.resync) == ("CATCHUP", 102, None)
    shop.execute("DELETE FROM orders WHERE id = 'a'")
    shop.sync()
    assert tables(asked(shop))["public.orders"].rows == 101


def test_the_group_tells_its_own_trouble_and_a_slot_that_is_gone(shop: Mirror) -> None:
    shop.start()
    shop.sync()
    shop.m.state.record_error("g", "delivery", "the lake does not answer")
    (group,) = asked(shop).groups
    assert group.error == group.delivery.error == "the lake does not answer"
    assert "group 'g': delivery: the lake does not answer" in asked(shop).problems
    shop.stop_capture()
    until(lambda: the(shop).slot_active is False)  # the server needs a moment to notice
    shop.execute("SELECT pg_drop_replication_slot('headwater_g')")
    (group,) = asked(shop).groups
    assert (group.slot_active, group.wal_bytes) == (None, None)
    assert "group 'g': its slot 'headwater_g' is gone" in asked(shop).problems
    # Whether anything waits cannot be read any more: then it is as old as it can be.
    before = the(shop).lag_seconds or 0
    assert 0 < before < (the(shop).lag_seconds or 0)


def test_json_and_text_say_the_same(shop: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    status = in_trouble(shop)
    said = json.loads(json_of(status))
    assert said["healthy"] is False
    assert said["problems"] == list(status.problems)
    assert said["source_lsn"] == status.source_lsn
    (group,) = said["groups"]
    assert (group["name"], group["snapshot_id"]) == ("g", status.groups[0].snapshot_id)
    orders, quiet = group["tables"]
    assert (orders["table"], orders["state"], orders["rows"]) == ("public.orders", "ERRORED", 100)
    assert datetime.fromisoformat(orders["retry_at"]) == tables(status)["public.orders"].retry_at
    assert (quiet["table"], quiet["state"], quiet["inserted"], quiet["error"]) == ("public.quiet", "STREAMING", 2, None)
    assert "\n" not in json_of(status, indent=None)

    assert show(lambda: status, as_json=True, watch=False) is status
    assert json.loads(capsys.readouterr().out) == said
    assert show(lambda: status, as_json=False, watch=False) is status
    text = capsys.readouterr().out
    assert text.startswith("group g → lake main: STOPPED, lag ")
    snapshot = f"snapshot {group['snapshot_id']} " if shop.kind == "ducklake" else ""
    assert f", {snapshot}at {group['delivered_lsn']}\n" in text
    (line,) = [line for line in text.splitlines() if line.startswith("public.quiet ")]
    assert line.split()[:4] == ["public.quiet", "STREAMING", "2", "2"]
    assert "public.orders: ERROR: another client has partitioned" in text


def test_a_group_is_running_while_its_processes_hold_their_locks(shop: Mirror) -> None:
    shop.start()
    shop.sync()
    before = asked(shop)
    assert (before.healthy, before.groups[0].state) == (False, "STOPPED")
    assert before.groups[0].capture == PartStatus(state="STOPPED", lag_bytes=0, lag_seconds=0.0, error=None)
    with running(shop):
        until(lambda: asked(shop).problems == ())
        group = the(shop)
        assert (group.state, asked(shop).healthy) == ("RUNNING", True)
        for part in (group.capture, group.delivery):
            assert (part.host, part.pid) == (socket.gethostname(), os.getpid())
            assert part.started_at is not None
            assert part.stopped_at is None
            assert part.heartbeat_seconds is not None
            assert part.heartbeat_seconds < 10
    after = the(shop)
    assert (after.state, after.capture.state, after.delivery.state) == ("STOPPED", "STOPPED", "STOPPED")
    assert after.capture.pid == os.getpid()  # the last one
    assert after.capture.heartbeat_seconds is None
    assert after.capture.stopped_at is not None


def test_a_process_that_lost_its_lock_is_stopped_at_once(shop: Mirror) -> None:
    shop.start()
    with running(shop):
        shop.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'headwater lock deliver:g' AND datname = current_database()"
        )
        group = the(shop)
        assert (group.capture.state, group.delivery.state, group.state) == ("RUNNING", "STARTING", "STARTING")
        assert group.delivery.stopped_at is None  # it did not stop in order
        assert "group 'g': delivery is STARTING" in asked(shop).problems
        shop.m.state.record_error("g", "delivery", "the lake does not answer")
        assert the(shop).delivery.state == "STOPPED"  # it is not just starting


def test_verify_holds_the_lock_of_delivery_and_is_not_taken_for_it(shop: Mirror) -> None:
    shop.start()
    with shop.m.state.lock("deliver:g"):
        assert the(shop).delivery.state == "STOPPED"


def test_a_heartbeat_writes_nothing(shop: Mirror) -> None:
    shop.start()
    with running(shop):
        written = shop.rows_of("SELECT xmin::text, ctid::text FROM headwater.processes")
        until(lambda: (the(shop).capture.heartbeat_seconds or 0.0) > 2)
        until(lambda: (the(shop).capture.heartbeat_seconds or 9.0) < 2)  # there was another one
        assert shop.rows_of("SELECT xmin::text, ctid::text FROM headwater.processes") == written


def test_a_process_that_hangs_shows_how_old_its_heartbeat_is(shop: Mirror) -> None:
    shop.start()
    shop.sync()
    with running(shop):
        until(lambda: asked(shop).healthy)
        status = asked(shop)
    (group,) = status.groups
    hung = replace(status, groups=(replace(group, capture=replace(group.capture, heartbeat_seconds=95.0)),))
    assert hung.problems == (
        f"group 'g': capture (pid {os.getpid()} on {socket.gethostname()}) has had no heartbeat for 95 s",
    )
    assert not hung.healthy


def test_the_lag_is_true_while_nothing_runs(shop: Mirror) -> None:
    shop.start()
    shop.sync()
    shop.stop_capture()
    idle = the(shop)
    assert (idle.lag_bytes, idle.lag_seconds) == (0, 0.0)  # what moved the WAL is the state's own
    shop.execute("CREATE TABLE unrelated (id int)", "INSERT INTO unrelated SELECT generate_series(1, 1000)")
    assert (the(shop).lag_bytes, the(shop).lag_seconds) == (0, 0.0)
    (begun,) = shop.rows_of("SELECT clock_timestamp()")[0]
    shop.execute("INSERT INTO orders VALUES (200, now())")
    time.sleep(1.2)
    shop.execute("INSERT INTO orders VALUES (201, now())")
    group = the(shop)
    (now,) = shop.rows_of("SELECT clock_timestamp()")[0]
    assert group.lag_seconds is not None
    assert 1.2 <= group.lag_seconds <= (now - begun).total_seconds()
    assert group.capture.lag_seconds == group.lag_seconds
    assert group.delivery.lag_seconds == 0
    assert group.lag_bytes is not None
    assert group.lag_bytes > 0
    assert [each.lag_seconds for each in group.tables] == [group.lag_seconds] * 2
    assert shop.rows_of("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()") == [
        ("headwater_g",)
    ]
    shop.capture()
    shop.sync()
    assert the(shop).lag_bytes == the(shop).lag_seconds == 0


def test_what_the_log_has_is_not_behind_even_if_the_slot_is_not_confirmed(shop: Mirror) -> None:
    shop.start()
    shop.sync()
    shop.stop_capture()
    shop.execute("INSERT INTO orders VALUES (200, now())")
    assert (the(shop).capture.lag_seconds or 0) > 0
    shop.execute("UPDATE headwater.groups SET captured_lsn = pg_current_wal_insert_lsn()")  # as before a kill -9
    assert (the(shop).capture.lag_bytes, the(shop).capture.lag_seconds) == (0, 0)
    shop.execute("INSERT INTO orders VALUES (201, now())")
    assert (the(shop).capture.lag_seconds or 0) > 0


def test_what_is_staged_is_as_old_as_its_oldest_commit(shop: Mirror) -> None:
    shop.start()
    shop.sync()
    shop.stop_capture()
    (begun,) = shop.rows_of("SELECT clock_timestamp()")[0]
    shop.execute("INSERT INTO orders VALUES (200, now())")
    time.sleep(1.5)
    shop.capture()  # its segment is younger than its commit
    shop.captured()
    group = the(shop)
    (now,) = shop.rows_of("SELECT clock_timestamp()")[0]
    assert group.delivery.lag_seconds is not None
    assert 1.5 <= group.delivery.lag_seconds <= (now - begun).total_seconds()
    assert group.delivery.lag_bytes is not None
    assert group.delivery.lag_bytes > 0
    orders, quiet = group.tables
    assert orders.lag_seconds == group.delivery.lag_seconds
    assert quiet.lag_seconds is not None
    assert quiet.lag_seconds < orders.lag_seconds
    shop.sync()
    assert (the(shop).delivery.lag_bytes, the(shop).delivery.lag_seconds) == (0, 0)


def test_a_large_transaction_is_as_old_as_its_commit(shop: Mirror) -> None:
    shop.start()
    shop.sync()
    with shop.source.transaction():
        shop.execute("INSERT INTO orders SELECT i, now() FROM generate_series(1000, 200000) i")
        time.sleep(1.5)  # it is streamed meanwhile
        (committing,) = shop.rows_of("SELECT clock_timestamp()")[0]
    shop.captured()
    group = the(shop)
    (now,) = shop.rows_of("SELECT clock_timestamp()")[0]
    assert group.delivery.lag_seconds is not None
    assert 0 < group.delivery.lag_seconds <= (now - committing).total_seconds()


def test_a_table_that_cannot_go_on_has_a_lag_of_its_own(shop: Mirror) -> None:
    group = in_trouble(shop).groups[0]
    orders, quiet = group.tables
    assert orders.lag_seconds is not None
    assert orders.lag_seconds > 0
    assert (quiet.lag_bytes, quiet.lag_seconds) == (0, 0)
    assert group.lag_seconds == orders.lag_seconds


def test_the_oldest_change_that_waits_is_shown_with_the_table_that_it_waits_for(shop: Mirror) -> None:
    shop.start()
    shop.sync()
    assert the(shop).oldest_change is None
    assert the(shop).log_needed_bytes == 0
    oid = next(row.oid for row in shop.m.state.tables("g") if row.source.name == "orders")
    shop.m.state.record("g", oid, Failed("it cannot", datetime.now(UTC) + timedelta(hours=1)))
    shop.execute("INSERT INTO quiet VALUES (1)")
    shop.sync()
    shop.execute("INSERT INTO orders VALUES (-1, now())")
    shop.captured()
    ((first,),) = shop.m.state.query("SELECT max(last_lsn) FROM headwater.segments")
    time.sleep(0.5)
    shop.execute("INSERT INTO quiet VALUES (2)", "INSERT INTO orders VALUES (-2, now())")
    shop.captured()
    group = the(shop)
    assert group.oldest_change is not None
    assert (group.oldest_change.held_by, group.oldest_change.state) == ("table public.orders", "ERRORED")
    assert group.oldest_change.lsn == str(first)
    assert group.oldest_change.seconds > 0.5
    assert 0 < group.log_needed_bytes <= group.log_bytes == shop.m.log.size()
    assert group.log_segments == len(list((shop.folder / "log" / "segments").rglob("*.parquet")))
    shop.m.state.record("g", oid, Paused("asked for"))
    assert (the(shop).log_needed_bytes, the(shop).log_bytes) < (group.log_needed_bytes, group.log_bytes + 1)
    oldest = the(shop).oldest_change
    assert oldest is not None
    assert oldest.state == "PAUSED"
    shop.m.state.request_resync("g", oid, "its changes were deleted", shop.m.log.end())
    shop.sync()
    assert the(shop).oldest_change is None


def test_an_idle_source_shows_no_lag_while_capture_runs(shop: Mirror) -> None:
    shop.start()
    shop.sync()
    with running(shop):
        for _ in range(5):
            until(lambda: (the(shop).lag_bytes, the(shop).lag_seconds) == (0, 0))
            shop.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000))")


def test_check_exits_with_what_is_wrong(shop: Mirror) -> None:
    shop.start()
    shop.sync()
    assert run_status(shop).exit_code == 0  # it could be shown
    stopped = run_status(shop, "--check")
    assert stopped.exit_code == 1
    assert "error: not healthy:\ngroup 'g': capture is STOPPED\ngroup 'g': delivery is STOPPED\n" in stopped.stderr
    assert stopped.stdout.startswith("group g → lake main: STOPPED, lag 0.0 s, snapshot ")
    with running(shop):
        until(lambda: asked(shop).healthy)
        assert run_status(shop, "--check", "--json").exit_code == 0
        assert run_status(shop, "--check", "--max-lag", "30s").exit_code == 0
        shop.execute("INSERT INTO orders VALUES (200, now())")
        shop.captured()
        time.sleep(0.3)
        late = run_status(shop, "--check", "--max-lag", "200ms")
        assert late.exit_code == 1
        assert "group 'g': its lag is " in late.stderr
        assert run_status(shop, "--check").exit_code == 0
        much_later = datetime.now(UTC) + timedelta(hours=1)
        shop.m.state.record("g", shop.m.state.tables("g")[0].oid, Failed("the copy failed", much_later))
        waiting = run_status(shop, "--check")
        assert (waiting.exit_code, "table public.orders is ERRORED: the copy failed" in waiting.stderr) == (1, True)
    assert run_status(shop, "--max-lag", "1s").exit_code == 2
    assert run_status(shop, "--check", "--max-lag", "soon").exit_code == 2


def test_a_group_that_has_never_run_is_stopped(shop: Mirror) -> None:
    shop.start("public.orders")
    text = shop.file.read_text().replace("groups:\n", "groups:\n  more: {lake: main, tables: [public.quiet]}\n")
    shop.file.write_text(text)
    shop.config = Config.load(shop.file, {})
    more = asked(shop).groups[0]
    assert (more.name, more.state, more.slot, more.lag_seconds, more.tables) == ("more", "STOPPED", None, None, ())
    assert "group 'more': capture is STOPPED" in asked(shop).problems
    with pytest.raises(CheckFailed, match="group 'more': its lag is not known"):
        asked(shop).check(timedelta(hours=1))


def test_without_the_source_the_state_says_what_it_knows(shop: Mirror, other_database: str, tmp_path: Path) -> None:
    source = EmbeddedPostgres(tmp_path / "source", settings={"fsync": "off"}).start()
    shop.url, text = source.url(), ""
    try:
        with psycopg.connect(source.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        shop.configure("public.orders")
        text = shop.file.read_text().replace("log: ./log", f"state: {other_database}\nlog: ./log")
        shop.file.write_text(text)
        shop.config = Config.load(shop.file, {})
        with closing(open_state(shop.config)) as state:
            make_ready(shop.config, state)
        there = asked(shop)
        assert (there.source_error, there.groups[0].slot_active) == (None, False)
    finally:
        source.stop()
    away = asked(shop)
    assert "cannot reach database 'postgres'" in (away.source_error or "")
    assert away.source_lsn is None
    (group,) = away.groups
    assert (group.lag_bytes, group.lag_seconds, group.wal_bytes) == (None, None, None)
    assert [each.table for each in group.tables] == ["public.orders"]
    assert run_status(shop).exit_code == 0
    assert run_status(shop).stdout.startswith("ERROR: the source is unreachable: cannot reach")
    checked = run_status(shop, "--check")
    assert checked.exit_code == 3
    assert "error: the source is unreachable: cannot reach" in checked.stderr


SHOWN = GroupStatus(
    name="shop",
    lake="main",
    state="RUNNING",
    lag_bytes=12_345,
    lag_seconds=1.25,
    slot="headwater_shop",
    slot_active=True,
    wal_status="reserved",
    wal_bytes=16 << 20,
    captured_lsn="0/1A2B3C4",
    delivered_lsn="0/1A2B3C0",
    delivered_at=datetime(2026, 11, 16, 12, tzinfo=UTC),
    snapshot_id=42,
    staged_segments=1,
    staged_rows=1,
    capture=PartStatus(
        state="RUNNING",
        host="db-1",
        pid=4711,
        started_at=datetime(2026, 11, 16, 12, tzinfo=UTC),
        heartbeat_seconds=1.0,
        lag_bytes=0,
        lag_seconds=0.0,
        error=None,
    ),
    delivery=PartStatus(
        state="STOPPED", host="db-1", pid=4712, stopped_at=None, lag_bytes=12_345, lag_seconds=1.25, error=None
    ),
    error=None,
)


def a_table(name: str, **other: Any) -> TableStatus:
    plain: dict[str, Any] = {
        "group": "shop", "table": name, "lake": "main", "lake_table": name, "state": "STREAMING", "rows": 1234567,
        "inserted": 1234567, "updated": 23456, "deleted": 0, "copied_rows": 0, "copy_total": None,
        "position": "0/1A2B3C0", "lag_bytes": 0, "lag_seconds": 0.0, "mode": "mirror", "quarantined": 0,
        "resync": None, "error": None, "retry_at": None,
    }  # fmt: skip
    return TableStatus(**(plain | other))


def shown(group: GroupStatus, capsys: pytest.CaptureFixture[str]) -> str:
    show(lambda: Status("0/1A2B3C4", None, (group,), ()), as_json=False, watch=False)
    return capsys.readouterr().out


def test_ordinary_tables_fit_into_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    orders = a_table("public.orders", rows=1, lag_seconds=754.0, updated=0)
    group = replace(SHOWN, tables=(a_table("public.order_items"), orders))
    assert shown(group, capsys).splitlines() == [
        "group shop → lake main: RUNNING, lag 1.2 s (12 kB), snapshot 42 at 0/1A2B3C0",
        "  capture RUNNING, pid 4711 on db-1; slot keeps 16 MB of WAL",
        "  delivery STOPPED, pid 4712 on db-1 was killed; 1 change staged",
        "  2 tables STREAMING",
        "",
        "table                    rows   inserted  updated     lag",
        "------------------  ---------  ---------  -------  ------",
        "public.order_items  1,234,567  1,234,567   23,456   0.0 s",
        "public.orders               1  1,234,567        0  12 min",
        "",
    ]


def test_the_states_are_counted_and_shown_where_they_differ(capsys: pytest.CaptureFixture[str]) -> None:
    states = ["STREAMING", "ERRORED", "STREAMING"]
    text = shown(replace(SHOWN, tables=tuple(a_table(f"public.t{n}", state=s) for n, s in enumerate(states))), capsys)
    assert "\n  3 tables: 2 STREAMING, 1 ERRORED\n" in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("public.")] == states
    assert "\n  1 table PENDING\n" in shown(replace(SHOWN, tables=(a_table("public.t", state="PENDING"),)), capsys)


def test_what_does_not_fit_is_left_out_but_for_names(capsys: pytest.CaptureFixture[str]) -> None:
    wide = a_table("warehouse.order_items_archive", deleted=9_876_543, quarantined=3, position="0/1", rows=10**9)
    named = a_table("public.orders", lake_table="raw.orders")
    group = replace(SHOWN, name="a_name_of_forty_characters_for_a_group_00", lake="an_archive_in_the_cloud")
    lines = shown(replace(group, tables=(wide, named)), capsys).splitlines()
    assert max(map(len, lines)) <= 80
    (heading,) = [line for line in lines if line.startswith("table")]
    assert heading.split() == ["table", "rows", "quarantined", "lag", "lake", "table"]
    status = Status("0/1A2B3C4", None, (replace(group, tables=(wide, named)),), ())
    assert "deleted" in coloured(status, 200).plain


def test_generated_columns_that_the_mirror_lacks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    tables = a_table("public.a", not_mirrored=["total"]), a_table("public.b", not_mirrored=["x", "y"])
    text = shown(replace(SHOWN, tables=tables), capsys)
    assert "\npublic.a: not mirrored: generated column total\n" in text
    assert "\npublic.b: not mirrored: generated columns x, y\n" in text


def test_before_the_first_snapshot_there_is_no_lag_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    copied = a_table("public.orders", state="SNAPSHOT", rows=1, copied_rows=1, position=None)
    group = replace(SHOWN, lag_bytes=None, lag_seconds=None, snapshot_id=None, delivered_lsn=None, tables=(copied,))
    text = shown(group, capsys)
    assert text.startswith("group shop → lake main: RUNNING, no snapshot yet\n")
    assert "\npublic.orders: copied 1 row\n" in text


def test_a_copy_shows_how_far_it_is_how_fast_and_how_long_it_will_take(capsys: pytest.CaptureFixture[str]) -> None:
    copied = a_table("public.orders", state="SNAPSHOT", copied_rows=5_000, copy_total=20_000, copy_seconds=10.0)
    text = shown(replace(SHOWN, tables=(copied,)), capsys)
    said = "copied 5,000 of about 20,000 rows so far: 500 rows/s, about 30.0 s left"
    assert f"\npublic.orders: █████░░░░░░░░░░░░░░░ 25%, {said}\n" in text


def test_a_lake_whose_snapshots_are_of_single_tables_shows_the_lsn_alone(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(replace(SHOWN, snapshot_id=None), capsys)
    assert text.startswith("group shop → lake main: RUNNING, lag 1.2 s (12 kB), at 0/1A2B3C0\n")


def test_what_is_not_ordinary_gets_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    odd = a_table("public.orders", quarantined=3, position="0/1", lake_table="raw.orders")
    group = replace(SHOWN, tables=(a_table("public.notes", inserted=0, updated=0), replace(odd, inserted=0, updated=0)))
    heading = shown(group, capsys).splitlines()[5]
    assert heading.split() == ["table", "rows", "quarantined", "lag", "position", "lake", "table"]


def test_the_log_shows_its_size_and_who_is_behind_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    oldest = OldestChange("0/1A2B3C2", 200.0, "table public.orders", "ERRORED")
    group = replace(SHOWN, log_bytes=3 << 20, log_max_bytes=1 << 30, oldest_change=oldest)
    assert (
        "\n  log 3 MB of at most 1 GB; its oldest change, 3 min 20 s old at 0/1A2B3C2,\n    waits for table"
        in shown(group, capsys)
    )
    alone = replace(SHOWN, log_bytes=3 << 20, oldest_change=replace(oldest, held_by="route r", state=None))
    assert "\n  log 3 MB; its oldest change, 3 min 20 s old at 0/1A2B3C2, waits for route r\n" in shown(alone, capsys)
    assert "\n  log 3 MB\n" in shown(replace(SHOWN, log_bytes=3 << 20), capsys)


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (replace(SHOWN, wal_status="lost"), "has lost WAL that it needs"),
        (replace(SHOWN, wal_status="unreserved", wal_limit_bytes=1 << 30), "will lose WAL that it needs at the next"),
        (
            replace(SHOWN, wal_status="extended", wal_limit_bytes=1 << 30, wal_safe_bytes=200 << 20),
            "is about to lose WAL that it needs: 200 MB of max_slot_wal_keep_size (1 GB) are left",
        ),
        (replace(SHOWN, wal_status="extended", wal_limit_bytes=1 << 30, wal_safe_bytes=-5), "0 B of max_slot"),
        (replace(SHOWN, log_bytes=9, log_needed_bytes=8, log_max_bytes=8), "its log is full"),
        (replace(SHOWN, log_bytes=9, log_needed_bytes=7, log_max_bytes=8), None),  # the rest goes when room is needed
        (replace(SHOWN, wal_status="extended", wal_limit_bytes=1 << 30, wal_safe_bytes=300 << 20), None),
        (replace(SHOWN, wal_status="extended"), None),
    ],
)
def test_what_is_about_to_go_wrong_is_a_warning_and_a_problem(
    group: GroupStatus, said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    healthy = replace(group, delivery=replace(group.capture))
    problems = Status("0/1A2B3C4", None, (healthy,), ()).problems
    text = " ".join(shown(healthy, capsys).split())
    if said is None:
        assert problems == ()
        assert "WARNING" not in text
        return
    (problem,) = problems
    assert said in problem
    assert f"WARNING: its {problem.partition(': its ')[2]}" in text


def test_the_source_says_how_much_wal_a_slot_may_still_keep(own_postgres: EmbeddedPostgres) -> None:
    with (
        psycopg.connect(own_postgres.url(), autocommit=True) as source,
        closing(State.connect(own_postgres.url())) as view,
    ):
        source.execute("SELECT pg_create_logical_replication_slot('kept', 'pgoutput')")
        before = source_view(view, ["kept"])
        assert (before.wal_limit, before.slots["kept"].safe_bytes) == (None, None)
        source.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '128MB'")
        source.execute("SELECT pg_reload_conf()")
        until(lambda: source_view(view, ["kept"]).wal_limit == 128 << 20)
        warned = []
        for _ in range(10):
            source.execute("SELECT pg_logical_emit_message(false, 'test', 'x'), pg_switch_wal()")
            now = source_view(view, ["kept"])
            slot = now.slots["kept"]
            assert slot.unconfirmed_bytes is not None
            assert slot.wal_bytes is not None
            assert slot.unconfirmed_bytes <= slot.wal_bytes
            warned.append(slot_warning(slot.wal_status, slot.safe_bytes, now.wal_limit))
        assert warned[0] is None
        assert "is about to lose WAL" in " ".join(map(str, warned))
        assert "at the next checkpoint" in (warned[-1] or "")
        source.execute("SELECT pg_drop_replication_slot('kept')")


def test_a_terminal_gets_colours_and_a_pipe_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    status = Status("0/1A2B3C4", None, (replace(SHOWN, tables=(a_table("public.orders"),)),), ())
    terminal = Console(force_terminal=True, width=200, color_system="standard", no_color=False)
    with terminal.capture() as captured:
        terminal.print(coloured(status))
    assert "\x1b[32mRUNNING\x1b[0m" in captured.get()
    assert "\x1b" not in shown(status.groups[0], capsys)


def test_without_a_run_there_is_nothing_to_tell(shop: Mirror) -> None:
    shop.config = shop.configure("public.orders")
    with pytest.raises(ConfigError, match="nothing has run"):
        asked(shop)
