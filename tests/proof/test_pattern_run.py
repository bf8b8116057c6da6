"""`headwater` with a pattern in its config, from the command line: what joins, what is left out, what leaves."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from tests.proof.processes import headwater, headwater_json

CONFIG = """
source: {source}
log: ./log
lakes:
  main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}
groups:
  shop: {{tables: [{{table: public.*, exclude: [public.tmp_*]}}]}}
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1"}}}}
"""


@pytest.fixture
def file(database: str, tmp_path: Path) -> Path:
    found = tmp_path / "headwater.yaml"
    found.write_text(CONFIG.format(source=database))
    return found


def states(file: Path) -> dict[str, str]:
    code, found = headwater_json(file, "table", "list")
    assert code == 0
    return {each["table"]: each["state"] for each in found}


def test_tables_come_and_go_with_the_pattern(file: Path, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1), (2)")
        source.execute("CREATE TABLE notes (note text); CREATE TABLE tmp_1 (id int PRIMARY KEY)")
        code, said = headwater(file, "check")
        assert code == 0, said
        assert "table 'public.notes' matches a pattern of group 'shop', and is not mirrored: has no primary key" in said
        code, said = headwater(file, "run", "--until-caught-up")
        assert code == 0, said
        assert states(file) == {"public.orders": "STREAMING"}

        source.execute("CREATE TABLE items (id int PRIMARY KEY); INSERT INTO items VALUES (7)")
        source.execute("ALTER TABLE tmp_1 RENAME TO kept; INSERT INTO kept VALUES (1)")
        source.execute("ALTER TABLE notes REPLICA IDENTITY FULL; INSERT INTO notes VALUES ('n')")
        code, said = headwater(file, "run", "--until-caught-up")
        assert code == 0, said
        joined = {f"public.{name}": "STREAMING" for name in ("orders", "items", "kept", "notes")}
        assert states(file) == joined
        code, compared = headwater_json(file, "verify")
        assert (code, {each["table"]: each["verdict"] for each in compared}) == (0, dict.fromkeys(joined, "equal"))

        source.execute("ALTER TABLE kept RENAME TO tmp_2; DROP TABLE items; INSERT INTO orders VALUES (3)")
        code, said = headwater(file, "run", "--until-caught-up")
        assert code == 0, said
        left = {"public.kept": "REMOVED", "public.items": "REMOVED"}
        assert states(file) == joined | left
        code, said = headwater(file, "query", "--json", "SELECT count(*) AS n FROM public.orders")
        assert (code, json.loads(said)) == (0, [{"n": 3}])
        (group,) = headwater_json(file, "group", "list")[1]
        assert group["tables"] == 2
