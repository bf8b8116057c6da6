"""Faults of what a real service depends on: it waits, says for what, and goes on by itself."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from headwater.config import Config
from headwater.log import Log
from headwater.source.server import wal_target
from headwater.state import State
from headwater.testing.postgres import EmbeddedPostgres
from tests.proof.processes import Run, headwater, wait_for

CONFIG = """
source: {source}
log: ./log
lakes:
  main: {{ducklake: "sqlite:///lake.sqlite", data_path: {data}}}
groups:
  shop: {{flush: {{interval: 200ms, inline: off}}, copy: {{rate: 1MB/s}}, tables: [{tables}]}}
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}}}}
"""
FAST = {"fsync": "off", "full_page_writes": "off"}
LONG = 600.0  # seconds, on a machine that does much else


class Store:
    """An object store that can be away. What is in it outlives that: it is in our memory."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.start()
        fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
            allow_bucket_creation=True,
        ).create_dir("lakes")

    def start(self) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    @property
    def environment(self) -> dict[str, str]:
        where = f"http://127.0.0.1:{self.port}"
        return {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ENDPOINT_URL": where}


class Shop:
    """A source with `orders`, and `events` whose copy takes a while."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "headwater.yaml"
        self.server = EmbeddedPostgres(folder / "pg", settings=FAST).start()
        self.url = self.server.url()
        self.runs: list[Run] = []
        self.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, item text)",
            "INSERT INTO orders SELECT i, 'copied' FROM generate_series(1, 100) i",
            "CREATE TABLE events (id int PRIMARY KEY, body text)",
            "INSERT INTO events SELECT i, repeat(md5(i::text), 10) FROM generate_series(1, 30000) i",  # 10 MB
        )

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query).fetchall()

    def start(self, tables: str, data: str, **environment: str) -> Run:
        self.file.write_text(CONFIG.format(source=self.url, tables=tables, data=data))
        self.runs.append(Run(self.file, environment=environment))
        return self.runs[-1]

    def state_of(self, table: str) -> str | None:
        found = self.rows("SELECT to_regclass('headwater.tables')")
        if found == [(None,)]:
            return None
        states = self.rows(f"SELECT state FROM headwater.tables WHERE name = '{table}'")
        return str(states[0][0]) if states else None

    def captured(self) -> None:
        """Wait until the log has everything committed so far."""
        now = wal_target(self.url)
        with closing(State.connect(self.url)) as state:
            log = Log(state, "shop", Config.load(self.file, {}).log.path)
            wait_for(lambda: log.end() >= now, f"the log has {now}", LONG)

    def verified(self, **environment: str) -> None:
        code, said = headwater(
            self.file, "verify", "--timeout", str(int(LONG)), environment=environment, timeout=2 * LONG
        )
        assert code == 0, f"{said}\n{self.runs[-1].said()}"

    def close(self) -> None:
        for run in self.runs:
            if run.alive:
                run.kill()
        self.server.stop()


@pytest.fixture
def shop() -> Iterator[Shop]:
    # Not tmp_path: the server's own user must be able to reach it when we run as root.
    with tempfile.TemporaryDirectory(prefix="headwater-faults-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with closing(Shop(Path(folder))) as shop:
            yield shop


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_an_object_store_that_is_away_holds_up_deliveries_and_not_capture(shop: Shop) -> None:
    store = Store()
    run = shop.start("public.orders", "s3://lakes/data", **store.environment)
    wait_for(lambda: shop.state_of("orders") == "STREAMING", "orders streams", LONG)
    store.stop()
    try:
        shop.execute("INSERT INTO orders SELECT i, 'while it is away' FROM generate_series(1001, 3000) i")
        shop.captured()
        error = "SELECT FROM headwater.groups WHERE delivery_error IS NOT NULL"
        wait_for(lambda: shop.rows(error), "what it waits for is known", LONG)
        code, said = headwater(shop.file, "status", "--check", environment=store.environment)
        assert (code, "group 'shop'" in said) == (1, True), said
        assert shop.state_of("orders") == "STREAMING"  # it is not the table's fault
    finally:
        store.start()
    shop.verified(**store.environment)
    wait_for(lambda: not shop.rows(error), "the error is over", LONG)
    assert run.alive
    store.stop()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", ["the snapshot's connection is ended", "the source is restarted"])
def test_a_copy_outlives(fault: str, shop: Shop) -> None:
    run = shop.start("public.orders, public.events", "./lake")
    wait_for(lambda: shop.state_of("events") == "SNAPSHOT", "events is being copied", LONG)
    if fault == "the source is restarted":
        shop.server.restart()
    else:
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headwater export'"
        wait_for(lambda: shop.rows(end), "the connection is ended", 60)
    shop.execute("INSERT INTO events VALUES (0, 'meanwhile')", "DELETE FROM events WHERE id % 3 = 0 AND id > 0")
    wait_for(lambda: shop.state_of("events") == "STREAMING", "events streams", LONG)
    shop.verified()
    assert shop.rows("SELECT slot_name::text FROM pg_replication_slots") == [("headwater_shop",)]
    assert run.alive
