"""`headwater run` as a process: it copies, follows, drains, and goes on after whatever is done to it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from click.testing import CliRunner

from headwater.change import Lsn
from headwater.commands.cli import cli
from headwater.config import Config
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.opening import open_lake
from headwater.ducklake.url import parse_lake_url
from headwater.errors import Unreachable
from headwater.log import Log
from headwater.source.server import wal_target
from headwater.state import State
from headwater.state.waiting import ask_for
from headwater.status import Status, open_status
from headwater.status.fresh import wait_until_fresh
from headwater.supervise.children import Child, stopped_by_signals, watch
from headwater.testing.postgres import EmbeddedPostgres
from tests.proof.processes import Run, gone, headwater, wait_for

CONFIG = """
source: {source}
log: ./log
lakes:
  near: {{ducklake: "sqlite:///near.sqlite", data_path: ./near}}
  far: {{ducklake: "{catalog}", data_path: ./far}}
groups:
  near: {{lake: near, flush: {{interval: 10s}}, tables: [public.orders, public.ledger]}}
  far: {{lake: far, flush: {{interval: 200ms}}, tables: [public.notes]}}
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1"}}}}
"""
TABLES = {"orders": "near", "ledger": "near", "notes": "far"}
SECRETS = ("s3cret-source", "s3cret-lake")
JVM = "org.apache.spark.deploy.SparkSubmit"
FAST = {"fsync": "off", "full_page_writes": "off"}


class World:
    """A source, two lakes (catalogs: SQLite; a PostgreSQL of its own), and a `headwater run` between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = EmbeddedPostgres(folder / "source", settings=FAST).start()
        self.catalog = EmbeddedPostgres(folder / "catalog", settings=FAST).start()
        self.url = _as_role(self.source, "app", SECRETS[0])
        self.file = folder / "headwater.yaml"
        self.file.write_text(CONFIG.format(source=self.url, catalog=_as_role(self.catalog, "lake", SECRETS[1])))
        self.config = Config.load(self.file, {})
        self.run: Run | None = None
        self.execute(
            "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text, amount numeric(10,2))",
            "CREATE TABLE ledger (id bigint PRIMARY KEY, n int)",
            "CREATE TABLE notes (id bigint PRIMARY KEY, note text)",
            "INSERT INTO orders (item, amount) SELECT 'old', i FROM generate_series(1, 1000) i",
        )

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def started(self) -> Run:
        """A run that delivers; a new one if there was none."""
        if self.run is None or not self.run.alive:
            self.run = Run(self.file)
        run = self.run
        wait_for(lambda: self.fresh() or not run.alive, "the lakes are fresh", 150)
        assert run.alive, run.said()
        return run

    def status(self) -> Status:
        with open_status(self.config, {}) as ask:
            return ask()

    def now(self) -> Lsn:
        return wal_target(self.url)

    def bring(self, group: str, patience: float) -> None:
        """One group's lake to where the source is now, or Unreachable."""
        with closing(State.connect(self.url)) as state:
            ask_for(state, group, self.now(), patience)

    def captured(self) -> None:
        """Wait until the logs have everything committed so far."""
        now = self.now()
        with closing(State.connect(self.url)) as state:
            logs = [Log(state, group, self.config.log.path) for group in self.config.groups]
            wait_for(lambda: all(log.end() >= now for log in logs), f"the log has {now}")

    def fresh(self) -> bool:
        """Whether the lakes get everything committed by now, soon."""
        with suppress(Unreachable):  # nothing delivers: it is starting, or waits before it tries again
            wait_until_fresh(self.config, 5)
            return True
        return False

    def caught_up(self) -> None:
        """Wait until the lakes have everything committed so far; then they are what the source is."""
        wait_for(self.fresh, "the lakes are fresh", 120)
        self.assert_equal()

    def assert_equal(self) -> None:
        with psycopg.connect(self.url) as source, connect() as lakes:
            for name, lake in self.config.ducklakes.items():
                attach(lakes, parse_lake_url(lake.catalog), name, read_only=True)
            for table, lake_name in TABLES.items():
                theirs = source.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
                ours = lakes.execute(f"SELECT * FROM {lake_name}.public.{table} ORDER BY id").fetchall()
                assert ours == theirs, f"{table}: {len(ours)} rows in the lake, {len(theirs)} in the source"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Inserts, updates and deletes in all tables while the block runs, through whatever happens to the server."""
        stop = threading.Event()
        writer = threading.Thread(target=self._write, args=(stop,))
        writer.start()
        try:
            yield
        finally:
            stop.set()
            writer.join()

    def _write(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with suppress(psycopg.OperationalError), psycopg.connect(self.url) as connection:
                while not stop.wait(0.02):
                    row = connection.execute("INSERT INTO orders (item, amount) VALUES ('new', 1) RETURNING id")
                    ((number,),) = row.fetchall()
                    connection.execute("INSERT INTO ledger VALUES (%s, 1)", (number,))
                    connection.execute("INSERT INTO notes VALUES (%s, 'noted')", (number,))
                    connection.execute("UPDATE ledger SET n = n + 1 WHERE id %% 7 = %s %% 7", (number,))
                    connection.execute("DELETE FROM orders WHERE id = %s - 3", (number,))
                    connection.execute("DELETE FROM notes WHERE id = %s - 5", (number,))
                    connection.commit()

    def close(self) -> None:
        if self.run is not None and self.run.alive:
            self.run.kill()
        self.source.stop()
        self.catalog.stop()


def _as_role(server: EmbeddedPostgres, role: str, password: str) -> str:
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD '{password}'")
    return server.url().replace("postgres@", f"{role}:{password}@")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    # Not tmp_path: the servers' own user must be able to reach it when we run as root.
    with tempfile.TemporaryDirectory(prefix="headwater-run-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with closing(World(Path(folder))) as made:
            yield made


@pytest.fixture
def live(world: World) -> Iterator[World]:
    """The one world of all these tests, its run running: each test leaves it so that it can go on."""
    world.started()
    yield world
    for log in world.folder.glob("*.log"):
        assert not any(secret in log.read_text() for secret in SECRETS), f"a password is in {log}"


def running(live: World) -> Run:
    assert live.run is not None
    return live.run


def ask(file: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["-c", str(file), *arguments])
    assert not any(secret in result.output for secret in SECRETS)
    return result.exit_code, result.output


def ask_json(file: Path, *arguments: str) -> tuple[int, Any]:
    """What a script gets: standard output, while log lines go to standard error."""
    result = CliRunner().invoke(cli, ["-c", str(file), *arguments, "--json"])
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.long
def test_a_killed_python_worker_costs_one_delivery(live: World) -> None:
    run = running(live)
    delivery = run.member("_deliver")
    with live.writing():
        for _ in range(2):
            run.member("pyspark.daemon").kill()
            wait_for(live.fresh, "the lakes are fresh", 120)
    live.caught_up()
    assert not gone(delivery)


@pytest.mark.long
def test_a_killed_jvm_is_replaced(live: World) -> None:
    run = running(live)
    jvm, delivery = run.member(JVM), run.member("_deliver")
    with live.writing():
        jvm.kill()
        wait_for(lambda: gone(delivery), "the delivery process ends")
        live.started()
    live.caught_up()
    assert not gone(run.member(JVM))
    assert "spark is gone" in run.said()
    assert all(map(json.loads, run.said().splitlines()))  # no bare traceback of a library's


@pytest.mark.long
def test_a_restart_of_the_source_is_survived(live: World) -> None:
    run = running(live)
    children = [run.process, *run.process.children()]
    with live.writing():
        live.source.restart()
        wait_for(live.fresh, "the lakes are fresh", 120)
        live.source.stop()
        time.sleep(2)  # longer than one look of the supervisor's
        live.source.start()
    live.caught_up()
    assert not any(gone(child) for child in children), run.said()


def test_a_catalog_that_is_away_holds_up_its_own_group_only(live: World) -> None:
    with live.writing():
        live.catalog.stop()
        try:
            wait_for(lambda: not live.status().healthy, "the trouble is known")
            live.bring("near", 60)
            code, said = ask(live.file, "status", "--check")
        finally:
            live.catalog.start()
    assert code == 1
    assert "ERROR: the catalog postgresql://lake@" in said
    live.caught_up()
    wait_for(lambda: live.status().healthy, "all is well again")


LOCKER = """
import sqlite3, sys
catalog = sqlite3.connect(sys.argv[1], isolation_level=None)
catalog.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_a_locked_catalog_is_waited_for(live: World) -> None:
    locker = [sys.executable, "-c", LOCKER, str(live.folder / "near.sqlite")]
    with live.writing(), subprocess.Popen(locker, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        assert held.stdout is not None
        assert held.stdin is not None
        held.stdout.readline()
        live.bring("far", 30)
        with pytest.raises(Unreachable, match="did not reach"):
            live.bring("near", 3)
        held.stdin.close()
    live.caught_up()


def test_everything_committed_before_a_fresh_query_is_seen(live: World) -> None:
    live.execute("INSERT INTO notes VALUES (-1, 'fresh')")
    answer = ask_json(live.file, "query", "--fresh", "SELECT note FROM far.public.notes WHERE id = -1")
    assert answer == (0, [{"note": "fresh"}])
    live.execute("DELETE FROM notes WHERE id = -1")


def test_a_wait_in_sql_ends_when_the_lakes_have_what_was_committed_before(live: World) -> None:
    live.caught_up()
    with psycopg.connect(live.url, autocommit=True) as source, connect() as lakes:
        near = parse_lake_url(live.config.ducklakes["near"].catalog)
        attach(lakes, near, "near", read_only=True)
        for number in range(3):
            assert source.execute("SELECT headwater.wait_for()").fetchone() == (True,)  # the source is idle
            begun = time.monotonic()
            source.execute("INSERT INTO ledger VALUES (%s, 0)", (-1 - number,))
            assert source.execute("SELECT headwater.wait_for(group_name => 'near')").fetchone() == (True,)
            seen = lakes.execute("SELECT count(*) FROM near.public.ledger WHERE id < 0").fetchone()
            assert seen == (number + 1,)
            assert time.monotonic() - begun < 10  # the interval of deliveries that nothing hurries
        with live.writing():
            for _ in range(3):
                ((newest,),) = source.execute("SELECT coalesce(max(id), 0) FROM ledger").fetchall()
                assert source.execute("SELECT headwater.wait_for()").fetchone() == (True,)
                ((seen,),) = lakes.execute("SELECT coalesce(max(id), 0) FROM near.public.ledger").fetchall()
                assert seen >= newest
        assert source.execute("SELECT headwater.wait_for('FFFF/0', '0.5s')").fetchone() == (False,)
    live.execute("DELETE FROM ledger WHERE id < 0")
    live.caught_up()


def test_status_tells_how_far_everything_is(live: World) -> None:
    live.caught_up()
    code, found = ask_json(live.file, "status")
    assert code == 0
    assert found["healthy"] is True
    near, far = found["groups"]
    assert (near["name"], near["lake"], near["slot"]) == ("near", "near", "headwater_near")
    assert (near["slot_active"], near["wal_status"], near["error"]) == (True, "reserved", None)
    assert near["snapshot_id"] > 0
    assert Lsn.parse(near["delivered_lsn"]) <= Lsn.parse(near["captured_lsn"]) <= Lsn.parse(found["source_lsn"])
    assert [(each["table"], each["state"]) for each in (*near["tables"], *far["tables"])] == [
        ("public.ledger", "STREAMING"),
        ("public.orders", "STREAMING"),
        ("public.notes", "STREAMING"),
    ]
    with psycopg.connect(live.url) as source:
        counted = source.execute("SELECT (SELECT count(*) FROM ledger), (SELECT count(*) FROM orders)").fetchone()
    assert tuple(each["rows"] for each in near["tables"]) == counted
    code, said = ask(live.file, "status")
    assert code == 0
    assert "group near → lake near: RUNNING, lag " in said
    assert "public.orders" in said


def capture_of(run: Run, group: str) -> psutil.Process:
    (found,) = [each for each in run.process.children() if each.cmdline()[-2:] == ["_capture", group]]
    return found


def test_status_knows_the_processes_and_what_becomes_of_them(live: World) -> None:
    live.caught_up()
    run = running(live)
    wait_for(lambda: live.status().healthy, "all is well")
    near, far = live.status().groups
    capture = capture_of(run, "near")
    assert near.capture.pid == capture.pid
    assert near.delivery.pid == far.delivery.pid == run.member("_deliver").pid
    assert near.capture.host == socket.gethostname()
    code, said = ask(live.file, "status", "--check", "--max-lag", "1h")
    assert code == 0, said

    def heartbeat() -> float:
        return live.status().groups[0].capture.heartbeat_seconds or 0.0

    capture.suspend()
    try:
        wait_for(lambda: heartbeat() > 6, "the heartbeat gets old")
        assert live.status().groups[0].capture.state == "RUNNING"  # it hangs, and its age says so
    finally:
        capture.resume()
    wait_for(lambda: heartbeat() < 4, "the heart beats again")
    capture.kill()
    wait_for(lambda: live.status().groups[0].capture.state == "STARTING", "its end is known", 30)
    wait_for(lambda: live.status().healthy, "it was started again")
    assert live.status().groups[0].capture.pid == capture_of(run, "near").pid != capture.pid
    live.caught_up()


def test_a_second_run_on_the_same_groups_is_refused(live: World) -> None:
    code, said = headwater(live.file, "run")
    assert code == 4, said
    assert re.search(r"error: another headwater holds the lock 'lead:/.*/log': PostgreSQL pid \d", said), said
    assert "hint: stop that headwater" in said
    live.caught_up()


def test_a_run_that_is_asked_to_stop_drains_and_leaves_no_process_behind(live: World) -> None:
    run = running(live)
    live.execute("INSERT INTO orders (item, amount) SELECT 'many', i FROM generate_series(1, 5000) i")
    live.captured()
    family = run.family()
    assert len(family) > 5  # the run, two captures, delivery, a JVM, workers
    said = len(run.said().splitlines())  # tests before this one may have made it complain
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(60) == 0, run.said()
    wait_for(lambda: all(map(gone, family)), "no process is left behind", 30)
    live.assert_equal()
    levels = [json.loads(line)["level"] for line in run.said().splitlines()[said:]]
    assert set(levels) <= {"info", "warning"}, run.said()
    live.execute("UPDATE orders SET amount = amount + 1 WHERE id % 10 = 0")
    live.started()
    live.caught_up()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_both_signals_tell_a_run_to_stop(how: signal.Signals) -> None:
    with stopped_by_signals() as stop:
        assert not stop.is_set()
        signal.raise_signal(how)
        assert stop.is_set()


@pytest.mark.long
def test_everything_killed_under_load_goes_on_and_verify_agrees_while_writes_go_on(live: World) -> None:
    run = running(live)
    with live.writing():
        live.execute("INSERT INTO orders (item, amount) SELECT 'bulk', i FROM generate_series(1, 20000) i")
        with pytest.raises(Unreachable, match="did not reach"):
            live.bring("near", 0.5)  # in the middle of it
        run.kill()
        live.started()
        code, said = headwater(live.file, "verify")
    assert code == 0, said
    assert "verify: OK (3 tables" in said
    live.caught_up()


@pytest.mark.long
def test_a_killed_supervisor_takes_its_children_along_and_the_next_run_waits_for_them(live: World) -> None:
    run = running(live)
    family = run.family()
    with live.writing():
        run.process.kill()
        run.process.wait()
        live.started()
        wait_for(lambda: all(map(gone, family)), "the old processes end by themselves", 60)
    live.caught_up()


@pytest.mark.long
def test_a_run_until_caught_up_ends_when_everything_is_there(database: str, tmp_path: Path) -> None:
    file = tmp_path / "headwater.yaml"
    lakes = '{main: {ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}'
    jvm = '{master: "local[2]", conf: {spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1"}}'
    group = "{tables: [public.orders, {table: public.empty, as: raw.nothing}]}"
    file.write_text(f"source: {database}\nlog: ./log\nlakes: {lakes}\ngroups: {{g: {group}}}\nspark: {jvm}\n")
    with psycopg.connect(database, autocommit=True) as source, connect() as lake:
        source.execute("CREATE TABLE orders (id int PRIMARY KEY, item text); CREATE TABLE empty (id uuid PRIMARY KEY)")
        source.execute("INSERT INTO orders SELECT i, 'item ' || i FROM generate_series(1, 3000) i")

        def run() -> int:
            code, said = headwater(file, "run", "--until-caught-up")
            assert code == 0, said
            theirs = source.execute("SELECT * FROM orders ORDER BY id").fetchall()
            assert lake.execute("SELECT * FROM lake.public.orders ORDER BY id").fetchall() == theirs
            assert lake.execute("SELECT count(*) FROM lake.raw.nothing").fetchall() == [(0,)]
            ((newest,),) = lake.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()
            return int(newest)

        code, printed = ask(file, "check")
        assert (code, printed.splitlines()[-1]) == (0, "check: OK")
        open_lake(f"sqlite:///{tmp_path}/lake.sqlite", str(tmp_path / "lake")).close()
        attach(lake, parse_lake_url(f"sqlite:///{tmp_path}/lake.sqlite"), "lake")
        first = run()
        source.execute("DELETE FROM orders WHERE id % 2 = 0")
        source.execute("UPDATE orders SET item = 'changed', id = id + 10000 WHERE id % 3 = 0")
        code, said = headwater(file, "verify")
        assert code == 3, said
        assert "the source is ahead, and nothing delivers" in said
        assert "headwater run --until-caught-up" in said
        assert run() > first
        lake.execute("UPDATE lake.public.orders SET item = 'forged' WHERE id = 1")
        lake.execute("DELETE FROM lake.public.orders WHERE id = 5")
        lake.execute("INSERT INTO lake.public.orders VALUES (-7, 'smuggled')")
        code, said = headwater(file, "verify")
        assert code == 1, said
        assert "public.orders: DIFFERS at" in said
        assert "public.empty → raw.nothing: OK, 0 rows" in said
        assert "verify: 1 of 2 tables differ" in said
        for key, theirs, ours in (
            ("1", '{"id":"1","item":"item 1"}', '{"id":"1","item":"forged"}'),
            ("5", '{"id":"5","item":"item 5"}', "(missing)"),
            ("-7", "(missing)", '{"id":"-7","item":"smuggled"}'),
        ):
            assert f'  key {{"id":"{key}"}}\n    source  {theirs}\n    lake    {ours}\n' in said


@pytest.mark.parametrize(("all_needed", "expected"), [(True, 0), (False, 3)])
def test_a_child_that_no_restart_can_mend_ends_a_run_that_needs_all(all_needed: bool, expected: int) -> None:
    doomed = Child("doomed", ["-c", "/nowhere/headwater.yaml", "check"], 1)
    other = Child("other", ["--version"], 1)
    looks = 0

    def done() -> bool:
        nonlocal looks
        looks += doomed.gave_up is not None
        return looks > 2

    assert watch([[doomed, other]], threading.Event(), done, all_needed=all_needed) == 2
    assert looks == expected
    while other.process is not None:
        other.wait(time.monotonic() + 10)
        other.look()
