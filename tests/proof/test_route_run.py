"""`headwater run` with routes, as a process: a mirrored table goes on to tenant lakes, which come and go meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from tests.proof.processes import Run, headwater, headwater_json, wait_for

CONFIG = """
source: {source}
log: ./log
lakes:
  main: {{ducklake: "sqlite:///main.sqlite", data_path: ./main}}
  acme: {{ducklake: "sqlite:///acme.sqlite", data_path: ./acme}}
  globex: {{ducklake: "sqlite:///globex.sqlite", data_path: ./globex}}
  rest: {{ducklake: "sqlite:///rest.sqlite", data_path: ./rest}}
  ice: {{iceberg: {{type: sql, uri: "sqlite:///ice.sqlite", warehouse: ./ice}}}}
groups:
  shop: {{lake: main, flush: {{interval: 200ms}}, tables: [public.orders]}}
routes:
  listed:
    from: {{lake: main, table: public.orders}}
    by: company
    poll: 200ms
    to: [{{value: acme, lake: acme}}{more}]
    default: {{lake: rest}}
  templated:
    from: {{lake: main, table: public.orders}}
    by: company
    poll: 200ms
    to:
      lake_template: {{ducklake: "sqlite:///t_{{value}}.sqlite", data_path: "./t_{{value}}/"}}
      as: public.mine
      allow: ["*"]
      limit: 50
  tabled:
    from: {{lake: main, table: public.orders}}
    by: company
    poll: 200ms
    exclude: [note]
    to: {{from_table: public.tenants, every: 1s}}
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1"}}}}
"""


class World:
    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.file = folder / "headwater.yaml"
        self.configure()
        self.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, company text, amount int, note text)",
            "CREATE TABLE tenants (value text PRIMARY KEY, lake text, ducklake text, data_path text)",
            'ALTER TABLE tenants ADD COLUMN "as" text, ADD COLUMN paused bool',
            "INSERT INTO tenants VALUES ('acme', 'ice', NULL, NULL, 'tenants.acme', false)",
            "INSERT INTO orders SELECT i, (ARRAY['acme','globex','O''Neill / Söhne'])[1 + i % 3], i, 'n' || i"
            " FROM generate_series(1, 60) i",
        )

    def configure(self, more: str = "") -> None:
        self.file.write_text(CONFIG.format(source=self.url, more=more))

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url) as connection:
            for each in statements:
                connection.execute(each.encode())

    def wanted(self, where: str, columns: str = "*") -> list[tuple[object, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(f"SELECT {columns} FROM orders WHERE {where} ORDER BY id".encode()).fetchall()

    def shown(self, lake: str, table: str = "public.orders") -> list[tuple[object, ...]] | None:
        """What a DuckLake shows; None if it is not there."""
        file = self.folder / f"{lake}.sqlite"
        if not file.exists():
            return None
        with connect(threads=1) as con:
            attach(con, parse_lake_url(f"sqlite:///{file}"), "lake", read_only=True)
            if not con.execute("SELECT 1 FROM duckdb_tables() WHERE database_name = 'lake'").fetchall():
                return None
            return con.execute(f"SELECT * FROM lake.{table} ORDER BY id").fetchall()

    def status(self) -> dict[str, dict[str, Any]]:
        code, found = headwater_json(self.file, "status")
        assert code == 0, found
        return {each["name"]: each for each in found["routes"]}

    @contextmanager
    def running(self) -> Iterator[Run]:
        run = Run(self.file)
        try:
            yield run
            run.process.send_signal(signal.SIGTERM)
            assert run.process.wait(60) == 0, run.said()
        finally:
            if run.alive:
                run.kill()


@pytest.fixture
def world(database: str, tmp_path: Path) -> World:
    return World(database, tmp_path)


@pytest.mark.timeout(600)  # each process starts a JVM
@pytest.mark.long
def test_a_run_until_all_is_caught_up_includes_every_route(world: World) -> None:
    changes = (
        "UPDATE orders SET company = 'acme', amount = -1 WHERE id = 4",
        "DELETE FROM orders WHERE id IN (7, 8, 9)",
        "INSERT INTO orders VALUES (100, NULL, 1, 'x'), (101, 'new one', 2, 'y'), (102, 'acme', 3, 'z')",
        "UPDATE orders SET id = id + 1000 WHERE id >= 100",
    )
    for statements in ((), changes):
        world.execute(*statements)
        code, said = headwater(world.file, "run", "--until-caught-up")
        assert code == 0, said
        assert "ERROR" not in said, "a route waits quietly for the copy of the table that it reads"
        assert world.shown("acme") == world.wanted("company = 'acme'")
        assert world.shown("rest") == world.wanted("company IS DISTINCT FROM 'acme'")
        assert world.shown("t_globex", "public.mine") == world.wanted("company = 'globex'")
    code, said = headwater(world.file, "verify")
    assert code == 0, said


@pytest.mark.long
@pytest.mark.timeout(600)
def test_destinations_come_and_go_while_it_runs(world: World) -> None:
    with world.running() as run:
        wait_for(lambda: world.shown("acme"), f"the first seed: {run.said()}", 90)
        wait_for(lambda: world.shown("t_globex", "public.mine"), "a destination of the template", 60)
        world.execute("INSERT INTO orders VALUES (200, 'brand new', 1, 'x')")
        wait_for(lambda: list(world.folder.glob("t_brand*.sqlite")), "a value that was never seen before", 60)
        world.configure(more=", {value: globex, lake: globex}")
        wait_for(lambda: world.shown("globex") == world.wanted("company = 'globex'"), "one more in the file", 60)
        rest = "company NOT IN ('acme', 'globex') OR company IS NULL"
        wait_for(lambda: world.shown("rest") == world.wanted(rest), "the default without it", 60)
        folder = world.folder / "extra"
        world.execute(
            "INSERT INTO tenants (value, ducklake, data_path) VALUES"
            f" ('globex', 'sqlite:///{folder}.sqlite', '{folder}')"
        )
        mine = world.wanted("company = 'globex'", "id, company, amount")
        wait_for(lambda: world.shown("extra") == mine, "one more in the table", 60)
        world.execute("UPDATE tenants SET paused = true WHERE value = 'globex'")
        code, said = headwater(world.file, "route", "pause", "listed", "acme")
        assert code == 0, said

        def paused() -> bool:
            found = world.status()
            states = {(name, each["value"]): each["status"] for name in found for each in found[name]["destinations"]}
            return {states["listed", "acme"], states["tabled", "globex"]} == {"paused"}

        wait_for(paused, "both are paused", 60)
        before = world.shown("acme")
        world.execute("INSERT INTO orders VALUES (300, 'acme', 1, 'x'), (301, 'globex', 2, 'y')")
        wait_for(lambda: world.shown("globex") == world.wanted("company = 'globex'"), "the others go on", 60)
        assert world.shown("acme") == before
        assert world.shown("extra") == mine
        world.execute("UPDATE tenants SET paused = false WHERE value = 'globex'")
        code, said = headwater(world.file, "route", "resume", "listed", "acme")
        assert code == 0, said
        wait_for(lambda: world.shown("acme") == world.wanted("company = 'acme'"), "resumed", 60)
        everything = world.wanted("company = 'globex'", "id, company, amount")
        wait_for(lambda: world.shown("extra") == everything, "resumed by the table", 60)
    code, said = headwater(world.file, "verify")
    assert code == 0, said
