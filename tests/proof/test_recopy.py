"""`headwater run` with tables that fail and lakes that are gone: it tries, says why, and copies again when asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from tests.proof.processes import headwater

CONFIG = """
source: {source}
log: ./log
lakes: {{main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}}}
groups: {{g: {{tables: [public.orders]}}}}
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1"}}}}
"""


class World:
    """The table orders, mirrored by runs that end when all is caught up."""

    def __init__(self, source: psycopg.Connection[tuple[object, ...]], url: str, folder: Path) -> None:
        self.source, self.folder, self.file = source, folder, folder / "headwater.yaml"
        self.file.write_text(CONFIG.format(source=url))
        source.execute("CREATE TABLE orders (id int PRIMARY KEY, item text); INSERT INTO orders VALUES (1, 'one')")
        self.equal()

    def caught_up(self, *options: str) -> tuple[int, str]:
        return headwater(self.file, "run", "--until-caught-up", *options)

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        with connect() as lake:
            attach(lake, parse_lake_url(f"sqlite:///{self.folder}/lake.sqlite"), "lake")
            return lake.execute(sql).fetchall()

    def equal(self, *options: str) -> None:
        code, said = self.caught_up(*options)
        assert code == 0, said
        theirs = self.source.execute("SELECT * FROM orders ORDER BY id").fetchall()
        assert self.ask("SELECT * FROM lake.public.orders ORDER BY id") == theirs


@pytest.fixture
def world(database: str, tmp_path: Path) -> Iterator[World]:
    with psycopg.connect(database, autocommit=True) as source:
        yield World(source, database, tmp_path)


@pytest.mark.long
def test_each_run_tries_a_table_that_failed_and_says_why_it_failed_again(world: World) -> None:
    world.ask("DROP TABLE lake.public.orders")
    world.source.execute("INSERT INTO orders VALUES (2, 'two')")
    for failures in (1, 2):
        code, said = world.caught_up()
        assert code == 1, said
        assert "\nerror: table 'public.orders' of group 'g' is ERRORED: the lake has no table public.orders any" in said
        assert world.source.execute("SELECT failures FROM headwater.tables").fetchone() == (failures,)
    world.equal("--recopy")


@pytest.mark.long
def test_a_lake_that_was_deleted_stops_a_run_and_is_copied_again_when_asked(world: World) -> None:
    for file in world.folder.glob("lake.sqlite*"):
        file.unlink()
    for command in ("check", "run"):
        code, said = headwater(world.file, command)
        assert code == 4, said
        assert "error: lake 'main' of group 'g' is not the one it was" in said
        assert "and now there is no lake\nhint: restore it; or give it up: `headwater run --recopy`" in said
    assert list(world.folder.glob("lake.sqlite*")) == []
    world.equal("--recopy")
    assert headwater(world.file, "check")[0] == 0
