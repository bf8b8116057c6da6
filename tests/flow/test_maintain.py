"""`headwater maintain` on Spark, beside deliveries, killed at each step, and from the command line."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.mirror import IcebergMirror, Mirror
from tests.proof.processes import Run, headwater, headwater_json, wait_for

from headwater import flow
from headwater.change import TableName
from headwater.commands.cli import cli
from headwater.config import Config, Maintenance
from headwater.errors import CommitConflict
from headwater.lake.maintenance import Chores, MaintenancePolicy
from headwater.lake.maintenance import Maintenance as LakeMaintenance
from headwater.supervise.maintaining import allowed_at, policy_of
from headwater.supervise.precedence import Precedence
from headwater.supervise.upkeep import GroupMaintenance

ORDERS = TableName("public", "orders")
ALL = MaintenancePolicy(expire=timedelta(microseconds=1), orphans=timedelta(days=1))


@pytest.fixture
def orders(iceberg_mirror: IcebergMirror) -> IcebergMirror:
    """A table of many small files, with deletes in all of them and a column that is newer than most."""
    mirror = iceberg_mirror
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, item text)",
        "INSERT INTO orders SELECT i, 'copied' FROM generate_series(1, 1000) i",
    )
    mirror.start()
    for turn in range(6):
        mirror.execute(
            f"INSERT INTO orders SELECT i, 'new' FROM generate_series({2000 + 10 * turn}, {2009 + 10 * turn}) i",
            f"UPDATE orders SET item = 'changed' WHERE id % 50 = {turn}",
            f"DELETE FROM orders WHERE id % 50 = {turn + 10}",
        )
        if turn == 3:
            mirror.execute("ALTER TABLE orders ADD COLUMN note text", "UPDATE orders SET note = 'x' WHERE id % 9 = 0")
        mirror.sync()
    return mirror


def maintenance(mirror: Mirror) -> LakeMaintenance:
    found = mirror.m.sink.maintenance()
    assert found is not None
    return found


def maintained(mirror: Mirror, policy: MaintenancePolicy = ALL) -> Chores:
    return flow.maintain(lambda: mirror.spark, maintenance(mirror), ORDERS, policy)


def command(mirror: Mirror, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["-c", str(mirror.file), "maintain", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def test_a_table_is_maintained_on_spark_and_deliveries_go_on(orders: IcebergMirror) -> None:
    done = maintained(orders)
    assert done.merged_files >= 7
    assert done.written_files == 1
    assert done.expired_snapshots >= 7
    orders.assert_equal("orders")
    orders.execute("UPDATE orders SET item = 'after' WHERE id % 3 = 0", "DELETE FROM orders WHERE id % 7 = 0")
    orders.sync()
    orders.assert_equal("orders")
    assert [each.verdict for each in orders.verify()] == ["equal"]


KILLED = """
import os, sys
from pathlib import Path
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from tests.flow.test_maintain import ALL, ORDERS
from headwater import flow
from headwater.config import Config
from headwater.supervise.opening import mirroring, open_state

gateway = launch_gateway()  # PYSPARK_GATEWAY_PORT: one that runs already
java = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
context = SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()))
config = Config.load(Path(sys.argv[1]), {})
m = mirroring(config, {}, open_state(config), "g", SparkSession(context))
flow.maintain(lambda: m.spark, m.sink.maintenance(), ORDERS, ALL)
"""


@pytest.mark.parametrize(
    "failpoint",
    ["maintain.merged", *(pytest.param(f"maintain.{each}", marks=pytest.mark.long) for each in ("written", "expired"))],
)
def test_maintenance_that_was_killed_leaves_a_right_table_and_nothing_that_stays(
    failpoint: str, orders: IcebergMirror
) -> None:
    gateway = orders.spark.sparkContext._gateway
    assert gateway is not None
    environment = os.environ | {
        "HEADWATER_FAILPOINT": failpoint,
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
    }
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(orders.file)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    orders.assert_equal("orders")
    orders.execute("UPDATE orders SET item = 'after' WHERE id % 3 = 0")
    with suppress(CommitConflict):  # it was planned on the files of before, and is planned again
        orders.sync()
    orders.sync()
    orders.assert_equal("orders")
    maintenance(orders).collect()
    maintained(orders)
    orders.assert_equal("orders")
    for path in files_of(orders):
        long_ago = path.stat().st_mtime - 2 * 24 * 3600
        os.utime(path, (long_ago, long_ago))
    maintained(orders)
    orders.assert_equal("orders")
    assert {path for path in files_of(orders) if path.suffix == ".parquet"} == known_files(orders)


def files_of(mirror: Mirror) -> list[Path]:
    folder = Path(table_of(mirror).metadata.location)
    return [path for path in folder.rglob("*") if path.is_file()]


def table_of(mirror: Mirror):  # type: ignore[no-untyped-def]
    return next(iter(mirror.m.sink.standings().values())).table  # type: ignore[attr-defined]


def known_files(mirror: Mirror) -> set[Path]:
    table = table_of(mirror).refresh()
    return {
        Path(entry.data_file.file_path)
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def test_a_worker_that_was_killed_leaves_files_that_the_next_maintenance_collects(orders: IcebergMirror) -> None:
    merging = maintenance(orders).merging(ORDERS, MaintenancePolicy())
    assert merging is not None
    merging.writer.write(merging.bins[0])
    assert maintenance(orders).collect() == 1
    assert maintained(orders).written_files == 1
    orders.assert_equal("orders")


@pytest.mark.long
def test_the_command_says_what_it_would_do_and_does_it(orders: IcebergMirror) -> None:
    before = files_of(orders)
    code, said = command(orders, "--dry-run")
    assert code == 0
    assert "public.orders: would merge 7 files" in said
    assert "main.headwater_quarantine: nothing to do" in said
    assert files_of(orders) == before
    code, (done,) = headwater_json(orders.file, "maintain", "public.orders")  # it has a Spark of its own
    assert code == 0
    assert (done["table"], done["merged_files"], done["written_files"]) == ("public.orders", 7, 1)
    assert (done["ok"], done["note"]) == (True, "")
    code, said = command(orders)
    assert (code, said) == (0, "public.orders: nothing to do\nmain.headwater_quarantine: nothing to do\n")
    orders.assert_equal("orders")


def test_a_table_that_is_not_mirrored_is_a_usage_error(orders: IcebergMirror) -> None:
    result = CliRunner().invoke(cli, ["-c", str(orders.file), "maintain", "public.order"])
    assert result.exit_code == 2
    assert "table 'public.order' is not mirrored\nhint: did you mean public.orders" in result.stderr


@pytest.mark.ducklake_only
def test_a_ducklake_is_maintained_on_spark_and_deliveries_go_on(mirror: Mirror) -> None:
    mirror.inline = "off"  # a file for each delivery
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, item text)",
        "INSERT INTO orders SELECT i, 'copied' FROM generate_series(1, 100) i",
    )
    mirror.start()
    for turn in range(6):
        mirror.execute(f"UPDATE orders SET item = 'changed' WHERE id % 20 = {turn}")
        mirror.sync()
    code, said = command(mirror, "--dry-run")
    assert code == 0
    assert "public.orders: would merge 7 files" in said
    assert "main.headwater_quarantine: nothing to do" in said
    done = maintained(mirror)
    assert (done.merged_files, done.expired_snapshots) == (7, 8)
    mirror.assert_equal("orders")
    mirror.execute("UPDATE orders SET item = 'after' WHERE id % 3 = 0", "DELETE FROM orders WHERE id % 7 = 0")
    mirror.sync()
    mirror.assert_equal("orders")
    assert [each.verdict for each in mirror.verify()] == ["equal"]


def maintaining(
    mirror: Mirror, stop: threading.Event | None = None, precedence: Precedence | None = None
) -> GroupMaintenance:
    """What `run` starts beside the deliveries of the mirror's group."""
    stop, precedence = stop or threading.Event(), precedence or Precedence()
    return GroupMaintenance(mirror.config, Maintenance(), {}, "g", mirror.spark, stop, precedence, first=0)


def test_a_run_maintains_a_lake_in_small_steps(orders: IcebergMirror) -> None:
    thread = maintaining(orders)
    while thread.step(orders.m.state, orders.m.sink):
        pass
    assert maintained(orders, MaintenancePolicy()) == Chores()  # it has nothing left to merge
    assert len(table_of(orders).refresh().inspect.data_files()) == 1
    orders.execute("UPDATE orders SET item = 'after' WHERE id % 3 = 0")
    orders.sync()
    orders.assert_equal("orders")


def test_beside_a_copy_on_few_cores_nothing_is_merged_for_now(orders: IcebergMirror) -> None:
    def become(state: str) -> None:
        with orders.m.state.transaction() as connection:
            connection.execute("UPDATE headwater.tables SET state = %s", (state,))

    files, thread = len(files_of(orders)), maintaining(orders)
    become("SNAPSHOT")
    while thread.step(orders.m.state, orders.m.sink):
        pass
    crowded = orders.spark.sparkContext.defaultParallelism <= 2
    assert (len(files_of(orders)) == files) is crowded
    become("STREAMING")
    thread = maintaining(orders)
    while thread.step(orders.m.state, orders.m.sink):
        pass
    assert len(table_of(orders).refresh().inspect.data_files()) == 1


@pytest.mark.ducklake_only
def test_small_deliveries_beside_maintenance_make_no_files_of_their_own(mirror: Mirror) -> None:
    mirror.inline = "{rows: 20}"
    mirror.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    mirror.start()
    thread = maintaining(mirror)
    for turn in range(6):  # seven rows each: two deliveries fit, and the third would make them more than twenty
        mirror.execute(f"INSERT INTO orders SELECT {7 * turn} + i, 'new' FROM generate_series(1, 7) i")
        mirror.sync()
        written = maintenance(mirror).figures()[ORDERS].files
        while thread.step(mirror.m.state, mirror.m.sink):
            pass
        assert written == turn // 2  # the files of earlier turns, which maintenance has made of the catalog's rows
        thread = maintaining(mirror)
    mirror.assert_equal("orders")


@pytest.mark.ducklake_only
def test_files_are_merged_beside_deliveries_that_change_them_all_the_time(mirror: Mirror) -> None:
    mirror.inline = "off"
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, item text)",
        "INSERT INTO orders SELECT i, 'copied' FROM generate_series(1, 1000) i",
    )
    mirror.start()
    for turn in range(6):
        mirror.execute(f"INSERT INTO orders SELECT {2000 + 10 * turn} + i, 'new' FROM generate_series(1, 10) i")
        mirror.sync()
    code, said = command(mirror, "--explain")
    assert code == 0
    assert said.startswith("public.orders: 7 files (7 small, ")
    assert "\n  merge 6 files into 1, reading " in said
    assert said.endswith("main.headwater_quarantine: 0 files (0 B)\n  nothing is worth doing\n")
    stop, precedence = threading.Event(), Precedence()
    thread = maintaining(mirror, stop, precedence)

    def delivered() -> bool:
        """A delivery from all files, which is never planned again; whether they have become fewer."""
        mirror.execute(f"UPDATE orders SET item = '{time.monotonic()}' WHERE id % 5 = {random.randrange(5)}")
        mirror.captured()
        with precedence.delivery("main"):
            flow.deliver(mirror.m)
        (figures,) = (each for name, each in maintenance(mirror).figures().items() if name == ORDERS)
        return figures.files < 6

    thread.start()
    try:
        wait_for(delivered, "fewer files", 120)
    finally:
        stop.set()
        thread.join(60)
    mirror.sync()
    mirror.assert_equal("orders")
    shown = CliRunner().invoke(cli, ["-c", str(mirror.file), "status", "--json"])
    (table,) = json.loads(shown.stdout)["groups"][0]["tables"]
    assert table["figures"]["files"] == maintenance(mirror).figures()[ORDERS].files
    assert table["last_maintenance"]["done"]["merged_files"] >= 2
    shown = CliRunner().invoke(cli, ["-c", str(mirror.file), "status"])
    assert "last maintenance" in shown.stdout
    assert "public.orders, merged" in shown.stdout


@pytest.mark.long
def test_a_run_delivers_and_maintains_beside_it(orders: IcebergMirror) -> None:
    orders.stop_capture()
    orders.maintenance = "{expire: 1s, orphans: 10m}"
    orders.configure("public.orders")
    before = known_files(orders)
    run, turn = Run(orders.file), 0

    def merged() -> bool:
        nonlocal turn
        turn += 1
        orders.transaction(
            f"INSERT INTO orders VALUES ({5000 + turn}, 'beside')",
            f"UPDATE orders SET item = 'beside' WHERE id % 100 = {turn % 100}",
            f"DELETE FROM orders WHERE id = {2000 + turn}",
        )
        time.sleep(1)
        return not any(path.exists() for path in before)  # they are merged, and the snapshots that had them are expired

    try:
        wait_for(merged, "maintenance beside deliveries", 180)
        run.process.terminate()
        assert run.process.wait(60) == 0, run.said()
    finally:
        if run.alive:
            run.kill()
    assert '"level": "error"' not in run.said().lower()
    code, said = headwater(orders.file, "run", "--until-caught-up")
    assert code == 0, said
    orders.assert_equal("orders")
    assert orders.known_files() <= orders.files()
    code, said = headwater(orders.file, "verify")
    assert code == 0, said


@pytest.mark.long
@pytest.mark.ducklake_only
def test_a_run_under_load_merges_a_ducklake_and_no_delivery_is_planned_again(mirror: Mirror) -> None:
    mirror.inline = "off"
    mirror.maintenance = "on"
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, item text)",
        "INSERT INTO orders SELECT i, 'copied' FROM generate_series(1, 100000) i",
    )
    mirror.start()
    for turn in range(20):
        mirror.execute(f"UPDATE orders SET item = 'changed' WHERE id % 100 = {turn}")
        mirror.sync()
    mirror.stop_capture()
    before, run = maintenance(mirror).figures()[ORDERS].files, Run(mirror.file)

    def merged() -> bool:
        mirror.execute(f"UPDATE orders SET item = '{time.monotonic()}' WHERE id % 100 = {random.randrange(100)}")
        time.sleep(0.05)
        return "maintained public.orders" in run.said() and maintenance(mirror).figures()[ORDERS].files < before / 2

    try:
        wait_for(merged, "fewer files", 240)
        run.process.terminate()
        assert run.process.wait(60) == 0, run.said()
    finally:
        if run.alive:
            run.kill()
    assert "planning again" not in run.said()
    code, said = headwater(mirror.file, "run", "--until-caught-up")
    assert code == 0, said
    mirror.assert_equal("orders")


def test_a_run_leaves_maintenance_alone_while_a_command_does_it(orders: IcebergMirror) -> None:
    thread = maintaining(orders)
    with orders.m.state.lock("maintain:g"):
        assert not thread.step(orders.m.state, orders.m.sink)
    assert thread.step(orders.m.state, orders.m.sink)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", MaintenancePolicy(merge=True, expire=None, orphans=timedelta(days=1))),
        ("on", MaintenancePolicy(orphans=timedelta(days=1))),
        ("{expire: {age: 7d, keep: 100}}", MaintenancePolicy(True, timedelta(days=7), timedelta(days=1), newest=100)),
        (
            "{merge: off, expire: 7d, orphans: off}",
            MaintenancePolicy(merge=False, expire=timedelta(days=7), orphans=None),
        ),
        ("{merge: 'on', expire: 'off', orphans: 12h}", MaintenancePolicy(orphans=timedelta(hours=12))),
    ],
)
def test_the_config_says_what_is_done(text: str, expected: MaintenancePolicy, tmp_path: Path) -> None:
    found = loaded(tmp_path, text).maintenance
    assert found is not None
    assert policy_of(found) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{expire: on}", "expected off, or a duration like 7d"),
        ("{expire: weekly}", "not a duration"),
        ("{expire: {keep: 5}}", "expire.age"),
        ("{expire: {age: 7d, keep: 0}}", "expire.keep"),
        ("{window: nightly}", "not a window: 'nightly' (write '01:00-05:00'"),
        ("{window: '01:00-25:00'}", "not a window"),
        ("{window: '01:00-01:00'}", "longer than 0"),
        ("{window: '01:00-05:00 Mars/Olympus'}", "not a time zone: 'Mars/Olympus'"),
        ("{orphans: 1s}", "shorter than 10m"),
        ("{merge: often}", "maintenance.merge"),
        ("{vacuum: on}", "vacuum"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        loaded(tmp_path, text)
    assert said in "\n".join(map(str, refused.value.exceptions))


def test_a_config_that_says_nothing_about_maintenance_has_it_and_off_switches_it_off(tmp_path: Path) -> None:
    assert loaded(tmp_path, "on").maintenance == Maintenance()
    assert loaded(tmp_path, "off").maintenance is None
    file = tmp_path / "headwater.yaml"
    file.write_text(file.read_text().replace("maintenance: off\n", ""))
    assert Config.load(file, {}).maintenance == Maintenance()


@pytest.mark.parametrize(
    ("window", "clock", "inside"),
    [
        ("01:00-05:00", "01:00", True),
        ("01:00-05:00", "05:00", False),
        ("1:00 - 05:00", "00:59", False),
        ("23:00-02:00", "23:30", True),
        ("23:00-02:00", "01:59", True),
        ("23:00-02:00", "12:00", False),
        ("01:00-05:00 Asia/Tokyo", "16:30", True),
        ("01:00-05:00 Asia/Tokyo", "02:00", False),
    ],
)
def test_outside_its_window_a_run_only_moves_rows_out_of_the_catalog(
    window: str, clock: str, inside: bool, tmp_path: Path
) -> None:
    config = loaded(tmp_path, f"{{expire: 7d, window: '{window}'}}").maintenance
    assert config is not None
    policy = allowed_at(config, datetime.fromisoformat(f"2026-01-01T{clock}:00+00:00"))
    assert policy == (policy_of(config) if inside else MaintenancePolicy(merge=False))
    assert policy.flush is not None


def loaded(folder: Path, text: str) -> Config:
    file = folder / "headwater.yaml"
    file.write_text(
        "source: postgresql://app@db/shop\nlog: ./log\n"
        "lakes: {main: {ducklake: 'sqlite:///lake.sqlite', data_path: ./lake}}\n"
        f"groups: {{g: {{tables: [public.orders]}}}}\nmaintenance: {text}\n"
    )
    return Config.load(file, {})
