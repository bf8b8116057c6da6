"""A Spark cluster: a master and two workers of their own, which see nothing of the folder that the driver works in."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import psycopg
import pyspark
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from tests.proof.processes import command, wait_for

CONFIG = """
source: {source}
log: s3://bucket/log
lakes:
  main: {{ducklake: "{catalog}", data_path: s3://bucket/lake}}
  acme: {{ducklake: "{catalog}&schema=acme", data_path: s3://bucket/acme}}
groups:
  shop:
    lake: main
    flush: {{interval: 500ms}}
    tables: [public.orders, public.notes]
routes:
  by_company:
    from: {{group: shop, table: public.orders}}
    by: company
    to: [{{value: acme, lake: acme}}]
spark:
  master: spark://127.0.0.1:{port}
  conf:
    spark.driver.host: 127.0.0.1
    spark.driver.memory: 1g
    spark.executor.memory: 512m
    spark.cores.max: 2
"""
ENVIRONMENT = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "HEADWATER_FAILPOINT")
HIDES = (
    shutil.which("unshare") is not None and subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0
)


class Cluster:
    """Its processes know neither the keys of S3 nor, where this user may hide it from them, the driver's folder."""

    def __init__(self, folder: Path, hidden: Path) -> None:
        self._folder, self._hidden = folder, hidden
        self._started: list[psutil.Popen] = []
        self.port = _free_port()

    def start(self) -> None:
        self._service("master", "Master", "--port", str(self.port), "--webui-port", "0")
        wait_for(lambda: _answers(self.port), "the master listens")
        for name in ("one", "two"):
            arguments = ("--cores", "1", "--memory", "1g", "--webui-port", "0", f"spark://127.0.0.1:{self.port}")
            self._service(name, "Worker", *arguments)

    def _service(self, name: str, kind: str, *arguments: str) -> None:
        home = self._folder / name
        (home / "tmp").mkdir(parents=True)
        program = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
        command = [*program, f"org.apache.spark.deploy.{kind.lower()}.{kind}", "--host", "127.0.0.1", *arguments]
        if HIDES:
            hide = f'mount -t tmpfs none {self._hidden} && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", hide, "sh", *command]
        with (home / "log").open("wb") as log:
            self._started.append(
                psutil.Popen(command, cwd=home, env=self._environment(home), stdout=log, stderr=subprocess.STDOUT)
            )

    def _environment(self, home: Path) -> dict[str, str]:
        known = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
        return known | {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_WORKER_DIR": str(home / "work"),
            "SPARK_LOCAL_DIRS": str(home / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "TMPDIR": str(home / "tmp"),
        }

    def work_of(self, name: str) -> list[Path]:
        return [each for each in (self._folder / name / "work").rglob("stderr") if each.stat().st_size]

    def stop(self) -> None:
        for service in self._started:
            for each in [*service.children(recursive=True), service]:
                each.kill()
            service.wait(10)


class World:
    """A source and catalogs in one PostgreSQL, an object store, a cluster, and the driver's folder."""

    def __init__(self, database: str, cluster: Cluster, folder: Path, s3: str) -> None:
        self.url, self.cluster = database, cluster
        self.file = folder / "headwater.yaml"
        self.file.write_text(CONFIG.format(source=database, catalog=database, port=cluster.port))
        (folder / "tmp").mkdir()
        self.environment = {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL": s3,
            "TMPDIR": str(folder / "tmp"),
        }
        self.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, company text, amount numeric(10,2))",
            "ALTER TABLE orders REPLICA IDENTITY FULL",  # a route by a column that is not in the key needs it
            "CREATE TABLE notes (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), note text)",
            "INSERT INTO orders SELECT i, CASE WHEN i % 2 = 0 THEN 'acme' END, i FROM generate_series(1, 20000) i",
            "INSERT INTO notes (note) SELECT repeat('long ', i) FROM generate_series(1, 1000) i",
        )

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def headwater(self, *arguments: str) -> None:
        """Run a command, which has to end well."""
        log = self.file.with_suffix(".log")
        with log.open("wb") as output:
            done = subprocess.run(
                command(self.file, *arguments),
                env=os.environ | self.environment,
                stdout=output,
                stderr=output,
                check=False,
            )
        assert done.returncode == 0, log.read_text()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def world(database: str) -> Iterator[World]:
    with ExitStack() as held:
        folders = [Path(held.enter_context(tempfile.TemporaryDirectory(prefix="headwater-"))) for _ in range(2)]
        cluster = Cluster(*folders)
        held.callback(cluster.stop)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        server.start()
        held.callback(server.stop)
        host, port = server.get_host_and_port()
        keys = {"access_key": "key", "secret_key": "secret", "endpoint_override": f"{host}:{port}", "scheme": "http"}
        fs.S3FileSystem(**keys, allow_bucket_creation=True).create_dir("bucket")
        world = World(database, cluster, folders[1], f"http://{host}:{port}")
        cluster.start()
        yield world


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_executors_of_a_cluster_need_nothing_of_the_drivers_machine(world: World) -> None:
    world.headwater("run", "--until-caught-up")
    world.execute(
        "UPDATE orders SET amount = amount + 1 WHERE id % 100 = 0",
        "DELETE FROM orders WHERE id % 999 = 0",
        "UPDATE notes SET note = 'short' WHERE note LIKE repeat('long ', 100) || '%'",
        "ALTER TABLE notes ADD COLUMN read_at timestamptz DEFAULT '2026-01-02 03:04:05Z'",
        "INSERT INTO notes (note) SELECT 'new' FROM generate_series(1, 1000)",
    )
    world.headwater("run", "--until-caught-up")
    world.headwater("verify")
    assert all(world.cluster.work_of(name) for name in ("one", "two")), "one of the workers had nothing to do"
    world.headwater("maintain")
