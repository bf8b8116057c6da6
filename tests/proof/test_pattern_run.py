"""`headwater` processes with a pattern in the config: what joins, what is left out, what leaves, without a restart."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.proof.processes import Run, headwater, headwater_json, wait_for

pytestmark = pytest.mark.timeout(900)  # each of the processes starts a JVM

CONFIG = """
source: {source}
log: ./log
lakes:
  main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}
groups:
  shop: {{flush: {{interval: 200ms}}, tables: [{{table: public.*, exclude: [public.tmp_*]}}]}}
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1"}}}}
"""


@pytest.fixture
def file(database: str, tmp_path: Path) -> Path:
    found = tmp_path / "headwater.yaml"
    found.write_text(CONFIG.format(source=database))
    return found


@pytest.fixture
def source(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1), (2)")
        connection.execute("CREATE TABLE notes (note text); CREATE TABLE tmp_1 (id int PRIMARY KEY)")
        yield connection


def streaming(source: psycopg.Connection) -> set[str]:
    try:
        rows = source.execute("SELECT name, state FROM headwater.tables").fetchall()
    except psycopg.errors.UndefinedTable:
        return set()
    return {name for name, state in rows if state == "STREAMING"} if all(_settled(each) for _, each in rows) else set()


def _settled(state: str) -> bool:
    return state in ("STREAMING", "REMOVED")


def wait_until(source: psycopg.Connection, run: Run, *names: str) -> None:
    wait_for(lambda: streaming(source) == set(names) or not run.alive, f"these stream: {names}", 400)
    assert run.alive, run.said()


def test_tables_come_and_go_with_the_pattern_while_the_service_runs(file: Path, source: psycopg.Connection) -> None:
    code, said = headwater(file, "check")
    assert code == 0, said
    assert "table 'public.notes' matches a pattern of group 'shop', and is not mirrored: has no primary key" in said
    run = Run(file)
    try:
        wait_until(source, run, "orders")
        source.execute("CREATE TABLE items (id int PRIMARY KEY); INSERT INTO items VALUES (7)")
        wait_until(source, run, "orders", "items")
        source.execute("ALTER TABLE tmp_1 RENAME TO kept; INSERT INTO kept VALUES (1)")
        source.execute("ALTER TABLE notes REPLICA IDENTITY FULL; INSERT INTO notes VALUES ('n')")
        wait_until(source, run, "orders", "items", "kept", "notes")
        source.execute("ALTER TABLE kept RENAME TO tmp_2; DROP TABLE items; INSERT INTO orders VALUES (3)")
        wait_until(source, run, "orders", "notes")
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(120) == 0, run.said()
    finally:
        if run.alive:
            run.kill()
    said = run.said()
    assert said.count("matches a pattern of group") == 2, said  # by the check at its start, and once by the service
    assert "copy public.items to public.items: it matches public.*" in said
    assert "it is called public.tmp_2 in the source now, which no pattern of the config matches" in said
    assert "table public.items was dropped in the source: its mirror" in said


@pytest.mark.long
def test_what_came_while_nothing_ran_is_mirrored_by_the_next_run(file: Path, source: psycopg.Connection) -> None:
    code, said = headwater(file, "run", "--until-caught-up")
    assert code == 0, said
    source.execute("CREATE TABLE items (id int PRIMARY KEY); INSERT INTO items VALUES (7)")
    source.execute("INSERT INTO orders VALUES (3)")
    code, said = headwater(file, "run", "--until-caught-up")
    assert code == 0, said
    code, compared = headwater_json(file, "verify")
    verdicts = {each["table"]: each["verdict"] for each in compared}
    assert (code, verdicts) == (0, {"public.orders": "equal", "public.items": "equal"})
    (group,) = headwater_json(file, "group", "list")[1]
    assert group["tables"] == 2
