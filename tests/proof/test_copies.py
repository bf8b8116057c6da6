"""`headwater run` copies tables beside its deliveries, and can be stopped in the middle of a copy."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest

from headwater.config import Config
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.state import State
from headwater.testing.postgres import EmbeddedPostgres
from tests.proof.processes import Run, headwater, wait_for

CONFIG = """
source: {source}
log: ./log
lakes:
  main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}
groups:
  shop: {{flush: {{interval: 200ms}}, copy: {{rate: {rate}}}, tables: [{tables}]}}
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1"}}}}
"""
FAST = {"fsync": "off", "full_page_writes": "off"}


class Shop:
    """`orders` is mirrored; `events` is large, and the config bounds how fast it is copied."""

    def __init__(self, folder: Path, source: EmbeddedPostgres) -> None:
        self.url, self.file = source.url(), folder / "headwater.yaml"
        self.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, at timestamptz DEFAULT clock_timestamp())",
            "INSERT INTO orders VALUES (0)",
            "CREATE TABLE events (id int PRIMARY KEY, body text)",
            "INSERT INTO events SELECT i, repeat(md5(i::text), 10) FROM generate_series(1, 50000) i",  # 17 MB
        )
        self.configure("public.orders")

    def configure(self, *tables: str, rate: str = "1MB/s") -> None:
        self.file.write_text(CONFIG.format(source=self.url, tables=", ".join(tables), rate=rate))
        self.config = Config.load(self.file, {})

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def state(self, name: str) -> str | None:
        with closing(State.connect(self.url)) as state:
            return next((row.state for row in state.tables("shop") if row.source.name == name), None)

    def ranges(self) -> int:
        """How many ranges of `events` are done."""
        with closing(State.connect(self.url)) as state:
            return sum(len(kept.ranges) for kept in state.kept_copies("shop").values())

    def has_order(self, number: int) -> bool:
        lake = self.config.ducklakes["main"]
        with connect() as con:
            attach(con, parse_lake_url(lake.catalog), "lake")
            return bool(con.execute("FROM lake.public.orders WHERE id = ?", [number]).fetchall())


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    source = EmbeddedPostgres(tmp_path / "source", settings=FAST).start()
    try:
        yield Shop(tmp_path, source)
    finally:
        source.stop()


@pytest.mark.long
def test_a_copy_holds_up_no_delivery_and_a_run_that_is_stopped_in_the_middle_of_it_ends_soon(shop: Shop) -> None:
    assert headwater(shop.file, "run", "--until-caught-up")[0] == 0
    shop.configure("public.orders", "public.events")
    run = Run(shop.file)
    try:
        wait_for(lambda: shop.state("events") == "SNAPSHOT" or not run.alive, "the copy has begun", 90)
        for number in (1, 2, 3):
            shop.execute(f"INSERT INTO orders VALUES ({number})", f"UPDATE events SET body = 'new' WHERE id = {number}")
            wait_for(partial(shop.has_order, number), "an order arrives", 20)
        wait_for(shop.ranges, "a range of the copy is done", 60)
        assert shop.state("events") == "SNAPSHOT", "the copy was faster than the test"
        begun = time.monotonic()
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(40) == 0, run.said()
        assert time.monotonic() - begun < 40
    finally:
        if run.alive:
            run.kill()
    shop.configure("public.orders", "public.events", rate="1GB/s")
    assert shop.ranges() > 0
    code, said = headwater(shop.file, "run", "--until-caught-up")
    assert code == 0, said
    assert "the copy of table public.events goes on" in said
    code, said = headwater(shop.file, "verify")
    assert code == 0, said
    assert (shop.state("orders"), shop.state("events")) == ("STREAMING", "STREAMING")
