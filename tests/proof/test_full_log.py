"""A lake that is away until the log is full: capture waits, the source keeps its WAL, and nothing is missing later."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headwater.testing.postgres import EmbeddedPostgres
from tests.proof.processes import Run, headwater, headwater_json, wait_for

CONFIG = """
source: {source}
log: {{path: ./log, max_bytes: 1MB}}
lakes:
  main: {{ducklake: "{catalog}", data_path: ./lake}}
groups:
  shop: {{lake: main, flush: {{interval: 200ms}}, tables: [public.orders]}}
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1"}}}}
"""
FAST = {"fsync": "off", "full_page_writes": "off"}
ROWS = """
    INSERT INTO orders
    SELECT {0} + n, (SELECT string_agg(md5(random()::text || n || i), '') FROM generate_series(1, 30) i)
    FROM generate_series(1, 100) n
"""


class World:
    """A source, a lake whose catalog is a PostgreSQL of its own, and a `headwater run` between them."""

    def __init__(self, folder: Path) -> None:
        self.source = EmbeddedPostgres(folder / "source", settings=FAST).start()
        self.catalog = EmbeddedPostgres(folder / "catalog", settings=FAST).start()
        self.file = folder / "headwater.yaml"
        self.file.write_text(CONFIG.format(source=self.source.url(), catalog=self.catalog.url()))
        self.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
        self.run = Run(self.file)

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.source.url(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def write(self, transactions: int) -> None:
        """About 100 kB each."""
        with psycopg.connect(self.source.url(), autocommit=True) as connection:
            for _ in range(transactions):
                ((count,),) = connection.execute("SELECT count(*) FROM orders").fetchall()
                connection.execute(ROWS.format(count))

    def equal(self) -> bool:
        code, _ = headwater(self.file, "verify", "--timeout", "20")
        return code == 0

    def close(self) -> None:
        if self.run.alive:
            self.run.kill()
        self.source.stop()
        self.catalog.stop()


@pytest.fixture
def world() -> Iterator[World]:
    # Not tmp_path: the servers' own user must be able to reach it when we run as root.
    with tempfile.TemporaryDirectory(prefix="headwater-full-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with closing(World(Path(folder))) as made:
            yield made


@pytest.mark.long
def test_a_lake_that_is_away_until_the_log_is_full_gets_everything_when_it_is_back(world: World) -> None:
    world.write(2)
    wait_for(world.equal, "the first rows are mirrored", 120)
    world.catalog.stop()
    world.write(30)

    def full() -> bool:
        world.write(3)  # it is noticed by what no longer fits, and one segment may hold all that came before
        _, found = headwater_json(world.file, "status")
        return "is full" in (found["groups"][0]["capture"]["error"] or "")

    wait_for(full, "the log is full", 90)
    world.write(30)
    code, said = headwater(world.file, "status", "--check")
    assert code == 1
    assert "the log of group 'shop' is full, as large as log.max_bytes allows" in said
    assert "group 'shop': its log is full" in said
    _, found = headwater_json(world.file, "status")
    (group,) = found["groups"]
    assert group["log_max_bytes"] == 1_000_000 <= group["log_needed_bytes"] <= group["log_bytes"] < 20_000_000
    assert group["unconfirmed_bytes"] > 1_000_000
    assert group["slot_active"] is True
    assert (group["oldest_change"]["held_by"], group["oldest_change"]["state"]) == ("table public.orders", "STREAMING")
    world.catalog.start()
    world.write(10)
    wait_for(world.equal, "everything is mirrored", 120)
    wait_for(lambda: headwater(world.file, "status", "--check")[0] == 0, "all is well")
    assert world.run.alive
    assert "the log of group 'shop' was full for" in world.run.said()
