"""Killed with SIGKILL at each named step, and started again: the lake equals the source, no row twice, none missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater import flow
from headwater.failpoints import FAILPOINTS
from tests.mirror import IcebergMirror, Mirror
from tests.proof.carried import assert_no_change_twice
from tests.proof.processes import headwater

CAPTURE = [name for name in FAILPOINTS if name.startswith("capture.")]
WORKERS = ["copy.read", "copy.range", "deliver.located", "deliver.decoded"]  # in tests/flow/test_isolate.py
MAINTENANCE = [name for name in FAILPOINTS if name.startswith("maintain.")]  # in tests/flow/test_maintain.py
ROUTES = [name for name in FAILPOINTS if name.startswith(("seed.", "route."))]  # in tests/route/test_route_crash.py
REMOVALS = [name for name in FAILPOINTS if name.startswith("remove.")]  # these have a test of their own
DELIVERY = [name for name in FAILPOINTS if name not in (*CAPTURE, *WORKERS, *MAINTENANCE, *ROUTES, *REMOVALS)]
ICEBERG = [name for name in DELIVERY if name.startswith("iceberg.")]  # these have a test of their own
LAKE = [name for name in DELIVERY if name not in ICEBERG]
BRIEF = ("copy.committed", "deliver.before-commit", "deliver.committed")  # the others: `make prove`

# A delivery process without the supervisor: copy, then deliver until everything staged is in the lake. Its driver is
# its own, and its Python workers; the JVM is the test session's, because starting one takes longer than all the rest.
CHILD = """
import os, sys
from pathlib import Path
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from headwater import flow
from headwater.config import Config
from headwater.supervise.opening import mirroring, open_state

gateway = launch_gateway()  # PYSPARK_GATEWAY_PORT: one that runs already
java = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
workers = {"HEADWATER_FAILPOINT": os.environ["HEADWATER_FAILPOINT"]}
context = SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()), environment=workers)
config = Config.load(Path(sys.argv[1]), {})
m = mirroring(config, {}, open_state(config), "g", SparkSession(context))
flow.copy(m)
while flow.deliver(m).upto:
    pass
"""


def deliver_and_be_killed(mirror: Mirror, failpoint: str) -> None:
    gateway = mirror.spark.sparkContext._gateway
    assert gateway is not None
    environment = os.environ | {
        "HEADWATER_FAILPOINT": failpoint,
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
    }
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(mirror.file)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr


def prepared(mirror: Mirror, *, copied: bool) -> None:
    mirror.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item text, amount numeric(10,2))",
        "CREATE TABLE ledger (id bigint PRIMARY KEY, n int)",
        "CREATE TABLE audit (id bigint PRIMARY KEY, what text)",
        "CREATE TABLE odd (id int PRIMARY KEY, n numeric)",
        "INSERT INTO orders SELECT i, 'old', i FROM generate_series(1, 500) i",
        "INSERT INTO audit VALUES (0, 'there before')",
        "INSERT INTO odd VALUES (1, 'NaN'), (2, 2)",
    )
    mirror.start(
        *("public.orders", "public.ledger", "public.odd"), {"table": "public.audit", "mode": "history"}, copy=copied
    )


def workload(mirror: Mirror) -> None:
    mirror.transaction(
        "INSERT INTO orders SELECT i, 'new', i FROM generate_series(1001, 1200) i",
        "UPDATE orders SET item = 'changed' WHERE id % 3 = 0",
        "UPDATE orders SET id = -id WHERE id % 7 = 0",
        "DELETE FROM orders WHERE id % 5 = 0",
        "INSERT INTO ledger SELECT id, 1 FROM orders WHERE id > 0",
        "TRUNCATE audit",
        "INSERT INTO audit SELECT id, 'new' FROM orders WHERE id > 1000",
        "UPDATE odd SET n = 'Infinity' WHERE id = 2",
    )
    mirror.execute("UPDATE ledger SET n = n + 1 WHERE id % 2 = 0", "DELETE FROM ledger WHERE id % 4 = 0")


def streamed_workload(mirror: Mirror) -> None:
    """One transaction of more than a segment, which the server sends while it is in progress; little of it stays."""
    mirror.execute(f"ALTER DATABASE {mirror.source.info.dbname} SET logical_decoding_work_mem = '64kB'")
    mirror.transaction(
        "INSERT INTO orders SELECT i, repeat('large', 2000), i FROM generate_series(2001, 4000) i",
        "DELETE FROM orders WHERE id > 2010",
        "INSERT INTO ledger VALUES (-1, 0)",
    )


def assert_whole(mirror: Mirror) -> None:
    """The lake equals the source; each row and change is there once; every file the lake knows of exists."""
    mirror.assert_equal("orders", "ledger")
    assert_no_change_twice(mirror, "audit")
    assert [each for each in mirror.verify() if not each.ok] == []
    reported = mirror.ask("SELECT value FROM lake.headwater_quarantine WHERE resolved_lsn IS NULL ORDER BY value")
    assert reported == [("Infinity",), ("NaN",)]
    assert mirror.known_files() <= mirror.files()
    for table in ("orders", "ledger"):
        assert mirror.ask(f"SELECT count(*) - count(DISTINCT id) FROM lake.public.{table}") == [(0,)]
        if mirror.kind == "ducklake":
            assert mirror.ask(f"SELECT count(*) - count(DISTINCT rowid) FROM lake.public.{table}") == [(0,)]


def killed_and_started_again(mirror: Mirror, failpoint: str) -> None:
    prepared(mirror, copied=not failpoint.startswith(("copy.", "iceberg.replaced")))
    workload(mirror)
    mirror.captured()
    deliver_and_be_killed(mirror, failpoint)
    mirror.reopen()  # as a new delivery process begins
    flow.tidy(mirror.m)
    assert not [each for each in Path(mirror.m.scratch).rglob("*") if each.is_file()]
    if not failpoint.startswith("copy."):  # else a copy goes on with its files
        assert mirror.files() == mirror.known_files()
    flow.copy(mirror.m)
    mirror.sync()
    assert_whole(mirror)
    mirror.m.sink.collect_copies()
    assert mirror.files() == mirror.known_files()
    if mirror.kind == "ducklake" and not failpoint.startswith("copy."):  # else the copy has brought all rows, in files
        assert mirror.inlined() > 100
        assert mirror.flush() > 100
    mirror.execute("UPDATE orders SET item = 'after' WHERE id > 0", "DELETE FROM ledger WHERE id % 3 = 0")
    mirror.sync()
    assert_whole(mirror)
    assert mirror.files() == mirror.known_files()
    # No change is counted twice, or not at all.
    rows = {row.source.name: row for row in mirror.m.state.tables("g")}
    assert rows["odd"].quarantined == 2
    for name in ("orders", "ledger"):
        row = rows[name]
        assert mirror.ask(f"SELECT count(*) FROM lake.public.{name}") == [
            (row.copied_rows + row.inserted - row.deleted,)
        ]


def assert_feed_adds_up(mirror: Mirror) -> None:
    """No change is in the lake's history twice: what it adds up to is what the lake holds."""
    history = f"ducklake_table_changes('lake', 'public', 'orders', 0, {mirror.snapshots('orders')[-1]})"
    changes = dict(mirror.ask(f"SELECT change_type, count(*) FROM {history} GROUP BY ALL"))
    held = changes["insert"] - changes.get("delete", 0)
    assert mirror.ask("SELECT count(*) FROM lake.public.orders") == [(held,)]


@pytest.mark.parametrize(
    "failpoint", [pytest.param(each, marks=() if each in BRIEF else pytest.mark.long) for each in LAKE]
)
def test_a_delivery_killed_at(failpoint: str, mirror: Mirror) -> None:
    killed_and_started_again(mirror, failpoint)
    if mirror.kind == "ducklake":
        assert_feed_adds_up(mirror)


@pytest.mark.parametrize(
    "failpoint",
    [
        "iceberg.landed",
        *(
            pytest.param(f"iceberg.{each}", marks=pytest.mark.long)
            for each in ("quarantined", "unnoted", "replaced", "landed:2", "landed:3")
        ),
    ],
)
def test_a_delivery_into_iceberg_killed_at(failpoint: str, iceberg_mirror: IcebergMirror) -> None:
    killed_and_started_again(iceberg_mirror, failpoint)


# Each step of capture is killed in tests/capture/test_capture_crash.py; here it is a child of a whole run, a JVM each.
@pytest.mark.long
@pytest.mark.parametrize("failpoint", ["capture.registered", "capture.streamed"])
def test_a_capture_killed_under_a_run_at(failpoint: str, mirror: Mirror) -> None:
    prepared(mirror, copied=True)
    mirror.stop_capture()
    workload(mirror)
    if failpoint == "capture.streamed":
        streamed_workload(mirror)
    code, said = headwater(mirror.file, "run", "--until-caught-up", environment={"HEADWATER_FAILPOINT": failpoint})
    assert "capture g ended with -9, starting it again" in said
    assert code == 0, said
    mirror.reopen()  # another process has delivered
    assert_whole(mirror)


@pytest.mark.parametrize(
    "failpoint", [REMOVALS[0], *(pytest.param(each, marks=pytest.mark.long) for each in REMOVALS[1:])]
)
def test_a_removal_of_a_partitions_rows_killed_at(failpoint: str, mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (1000)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (1000) TO (2000)",
        "INSERT INTO t SELECT i, 'v' || i FROM generate_series(500, 1500) i",
    )
    mirror.start()
    mirror.looked()
    mirror.execute("DROP TABLE t1", "INSERT INTO t VALUES (1600, 'new')")
    mirror.looked()
    assert flow.place_removals(mirror.m)
    mirror.captured()
    deliver_and_be_killed(mirror, failpoint)
    mirror.reopen()
    flow.tidy(mirror.m)
    assert not mirror.settle()
    mirror.assert_equal("t")
    assert mirror.m.state.removals("g") == []
    (row,) = mirror.m.state.tables("g")
    assert row.deleted == 500
    assert mirror.files() == mirror.known_files()


def test_a_delivery_killed_before_a_rename_was_noted(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY)")
    mirror.start()
    mirror.execute("ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (1)")
    mirror.captured()
    deliver_and_be_killed(mirror, "deliver.committed")

    def names() -> set[tuple[str, str]]:
        return {(str(row.source), str(row.lake)) for row in mirror.m.state.tables("g")}

    assert ("public.t", "public.t") in names()  # which is not so any more
    mirror.reopen()
    mirror.sync()
    assert names() == {("public.u", "public.u"), ("public.other", "public.other")}
    mirror.assert_equal("u")


@pytest.mark.parametrize("step", [1, *(pytest.param(each, marks=pytest.mark.long) for each in (2, 3))])
def test_a_swap_of_names_killed_at_its_step(step: int, iceberg_mirror: IcebergMirror) -> None:
    mirror = iceberg_mirror
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY, v int)")
    mirror.start()
    mirror.transaction("ALTER TABLE t RENAME TO x", "ALTER TABLE u RENAME TO t", "ALTER TABLE x RENAME TO u")
    mirror.execute("INSERT INTO t VALUES (1, 2)", "INSERT INTO u VALUES (3)")
    mirror.captured()
    deliver_and_be_killed(mirror, f"iceberg.renaming:{step}")
    mirror.reopen()  # as a new delivery process begins
    mirror.settle()
    mirror.execute("INSERT INTO t VALUES (4, 5)", "INSERT INTO u VALUES (6)")
    mirror.settle()
    assert mirror.tables() == ["t", "u"]
    mirror.assert_equal("t", "u")
    assert {(str(row.source), str(row.lake)) for row in mirror.m.state.tables("g")} == {
        ("public.t", "public.t"),
        ("public.u", "public.u"),
    }


@pytest.mark.parametrize("failpoint", [pytest.param("copy.written", marks=pytest.mark.long), "copy.committed"])
def test_a_copy_of_a_replaced_table_killed_at(failpoint: str, mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.start()
    mirror.transaction("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (2, 3)")
    mirror.looked()
    deliver_and_be_killed(mirror, failpoint)
    mirror.reopen()
    mirror.execute("INSERT INTO t VALUES (3, 4)")
    mirror.settle()
    mirror.assert_equal("t")
    (row,) = mirror.m.state.tables("g")
    assert (row.state, row.replaces, len(mirror.m.sink.standings())) == ("STREAMING", (), 1)
