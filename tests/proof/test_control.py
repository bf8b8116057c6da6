"""A service under an operator's hands: tables and groups come and go, others take over, and nothing is restarted."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.testing.postgres import EmbeddedPostgres
from tests.proof.processes import Run, headwater, headwater_json, wait_for

CONFIG = """
source: {source}
log: ./log
lakes:
  main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}
  other: {{ducklake: "sqlite:///other.sqlite", data_path: ./other}}
groups:
  shop: {{lake: main, flush: {{interval: 200ms}}, tables: [public.orders]}}
{more}
maintenance: off
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}}}}
"""
FAST = {"fsync": "off", "full_page_writes": "off"}


class Shop:
    """A source, a lake, and services between them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "headwater.yaml"
        self.server = EmbeddedPostgres(folder / "pg", settings=FAST).start()
        self.url = self.server.url()
        self.runs: list[Run] = []
        self.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, item text)",
            "CREATE TABLE items (id bigint PRIMARY KEY, item text)",
            "CREATE TABLE notes (id bigint PRIMARY KEY, item text)",
            *(
                f"INSERT INTO {name} SELECT i, 'copied' FROM generate_series(1, 100) i"
                for name in ("orders", "items", "notes")
            ),
        )
        self.configure()

    def configure(self, more: str = "") -> None:
        self.file.write_text(CONFIG.format(source=self.url, more=more))

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query).fetchall()

    def start(self, *options: str) -> Run:
        run = Run(self.file, *options)
        self.runs.append(run)
        return run

    def streaming(self, table: str, group: str = "shop") -> None:
        state = f"SELECT state FROM headwater.tables WHERE name = '{table}' AND group_name = '{group}'"
        wait_for(lambda: self._said(state) == [("STREAMING",)], f"{table} streams", 120)

    def _said(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return self.rows(query)
        except psycopg.errors.UndefinedTable:
            return []

    def equal(self, *tables: str) -> None:
        """Wait until the lake shows what the source has."""
        for table in tables:
            wait_for(partial(self._same, f"SELECT id, item FROM {{}}{table} ORDER BY id"), table)

    def _same(self, query: str) -> bool:
        return self._lake(query.format("lake.public.")) == self.rows(query.format(""))

    def _lake(self, query: str) -> list[tuple[Any, ...]] | None:
        try:
            with connect(threads=1) as lake:
                attach(lake, parse_lake_url(f"sqlite:///{self.folder / 'lake.sqlite'}"), "lake", read_only=True)
                return lake.execute(query).fetchall()
        except duckdb.Error:  # there is no such lake, or table, yet
            return None

    def say(self, *arguments: str) -> str:
        code, said = headwater(self.file, *arguments)
        assert code == 0, said
        return said

    def close(self) -> None:
        for run in self.runs:
            if run.alive:
                run.kill()
        self.server.stop()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.close()


def test_tables_and_groups_come_and_go_while_the_service_runs(shop: Shop) -> None:
    run = shop.start()
    shop.streaming("orders")
    processes = {run.member("_capture").pid, run.member("_deliver").pid}
    # By command, and by SQL.
    assert "public.items is added to group 'shop', and will be copied" in shop.say("table", "add", "public.items")
    shop.execute("INSERT INTO items VALUES (1001, 'meanwhile')", "INSERT INTO orders VALUES (1001, 'meanwhile')")
    shop.streaming("items")
    ((asked,),) = shop.rows("SELECT headwater.add_table('public.notes', group_name => 'shop')")
    shop.streaming("notes")
    assert shop.rows(f"SELECT failed, outcome ~ 'is added' FROM headwater.requests WHERE id = {asked}") == [
        (False, True)
    ]
    shop.equal("orders", "items", "notes")
    # A table is paused by SQL, and goes on.
    shop.execute("SELECT headwater.pause_table('public.notes')")
    wait_for(lambda: shop.rows("SELECT state FROM headwater.tables WHERE name = 'notes'") == [("PAUSED",)], "paused")
    shop.execute("INSERT INTO notes VALUES (1001, 'paused')")
    assert "public.notes is resumed" in shop.say("table", "resume", "public.notes")
    shop.equal("notes")
    # Another group, with a table of the first.
    assert "group 'slow' is created" in shop.say("group", "create", "slow", "--lake", "other")
    assert "is moved from group 'shop' to 'slow'" in shop.say("table", "move", "public.items", "--to", "slow")
    shop.execute("INSERT INTO items VALUES (1002, 'moved')", "UPDATE items SET item = 'moved' WHERE id < 10")
    shop.streaming("items", "slow")
    shop.equal("orders")
    assert "verify: OK" in shop.say("verify", "public.items")
    assert {each["name"]: each["origin"] for each in headwater_json(shop.file, "group", "list")[1]} == {
        "shop": "config",
        "slow": "added",
    }
    # It is disabled, and goes on from where it was.
    assert "is disabled" in shop.say("group", "disable", "slow")
    shop.execute("INSERT INTO items VALUES (1003, 'while it was disabled')")
    assert "is enabled" in shop.say("group", "enable", "slow")
    assert "verify: OK" in shop.say("verify")
    # All of it is taken back.
    assert "is dropped" in shop.say("group", "drop", "slow", "--yes")
    assert "is removed" in shop.say("table", "remove", "--yes", "public.notes")
    assert shop.rows("SELECT slot_name::text FROM pg_replication_slots ORDER BY 1") == [("headwater_shop",)]
    assert shop.rows("SELECT tablename::text FROM pg_publication_tables") == [("orders",)]
    assert {run.member("_capture").pid, run.member("_deliver").pid} == processes, run.said()
    shop.execute("INSERT INTO orders VALUES (1004, 'still here')")
    shop.equal("orders")


def test_the_file_is_taken_up_while_the_service_runs(shop: Shop) -> None:
    run = shop.start()
    shop.streaming("orders")
    shop.file.write_text(shop.file.read_text().replace("[public.orders]", "[public.orders, public.items]"))
    shop.streaming("items")
    shop.file.write_text(shop.file.read_text().replace("[public.orders, public.items]", "[public.items]"))
    removed = "SELECT state FROM headwater.tables WHERE name = 'orders'"
    wait_for(lambda: shop.rows(removed) == [("REMOVED",)], "orders is removed")
    shop.execute("INSERT INTO items VALUES (1001, 'goes on')")
    shop.equal("items")
    code, said = headwater(shop.file, "table", "remove", "--yes", "public.items")
    assert (code, "is declared in headwater.yaml" in said) == (2, True), said
    assert run.alive


@pytest.mark.long
def test_a_standby_takes_over_when_the_first_run_ends_however_it_ends(
    shop: Shop, record_property: Callable[[str, object], None]
) -> None:
    first = shop.start()
    shop.streaming("orders")
    second = shop.start("--standby")
    wait_for(lambda: "standing by" in second.said() and "spark is warm" in second.said(), "the standby is warm", 120)
    code, said = headwater(shop.file, "run")
    assert (code, "another headwater holds the lock 'lead:/" in said) == (4, True), said
    first.kill()
    killed = time.monotonic()
    shop.execute("INSERT INTO orders VALUES (1001, 'after the first')")
    shop.equal("orders")
    took = time.monotonic() - killed
    record_property("seconds until the standby had delivered", round(took, 1))  # at most 10, unless the machine is busy
    assert took < 30, f"{took:.1f} s\n{second.said()}"
    third = shop.start("--standby")
    wait_for(lambda: "standing by" in third.said(), "another standby", 60)
    second.process.terminate()
    assert second.process.wait(60) == 0, second.said()
    shop.execute("INSERT INTO orders VALUES (1002, 'after the second')")
    shop.equal("orders")
    assert "verify: OK" in shop.say("verify")


@pytest.mark.long
def test_capture_and_several_deliveries_run_apart_and_share_the_groups(shop: Shop) -> None:
    shop.configure(
        "  near: {lake: main, flush: {interval: 200ms}, tables: [public.items]}\n"
        "  far: {lake: main, flush: {interval: 200ms}, tables: [public.notes]}"
    )
    capture = shop.start("--role", "capture")
    here = shop.start("--role", "deliver")
    for table, group in (("orders", "shop"), ("items", "near"), ("notes", "far")):
        shop.streaming(table, group)
    there = shop.start("--role", "deliver")
    owners = "SELECT count(DISTINCT pid) FROM headwater.processes WHERE part = 'delivery' AND stopped_at IS NULL"
    wait_for(lambda: shop.rows(owners) == [(2,)], "both deliver", 120)
    shop.execute(*(f"INSERT INTO {name} VALUES (1001, 'shared')" for name in ("orders", "items", "notes")))
    shop.equal("orders", "items", "notes")
    here.kill()
    shop.execute(*(f"INSERT INTO {name} VALUES (1002, 'by one alone')" for name in ("orders", "items", "notes")))
    shop.equal("orders", "items", "notes")
    assert capture.alive
    capture.kill()
    again = shop.start("--role", "capture")  # while the others deliver
    shop.execute(*(f"INSERT INTO {name} VALUES (1003, 'captured again')" for name in ("orders", "items", "notes")))
    shop.equal("orders", "items", "notes")
    assert there.alive
    assert not re.search(r'"level": "ERROR"', there.said() + capture.said() + again.said())
    assert "verify: OK" in shop.say("verify")
