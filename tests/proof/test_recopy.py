"""`headwater run` with tables that fail and lakes that are gone: it tries, says why, and copies again when asked."""

from __future__ import annotations

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


@pytest.mark.long
def test_each_run_tries_what_failed_and_says_why_and_copies_what_is_gone_when_asked(
    database: str, tmp_path: Path
) -> None:
    file, lake = tmp_path / "headwater.yaml", parse_lake_url(f"sqlite:///{tmp_path}/lake.sqlite")
    file.write_text(CONFIG.format(source=database))
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("CREATE TABLE orders (id int PRIMARY KEY, item text); INSERT INTO orders VALUES (1, 'one')")
        assert headwater(file, "run", "--until-caught-up")[0] == 0
        with connect() as other:
            attach(other, lake, "lake")
            other.execute("DROP TABLE lake.public.orders")
        source.execute("INSERT INTO orders VALUES (2, 'two')")
        for failures in (1, 2):
            code, said = headwater(file, "run", "--until-caught-up")
            assert code == 1, said
            assert "\nerror: table 'public.orders' of group 'g' is ERRORED: the lake has no table public.orders" in said
            assert source.execute("SELECT failures FROM headwater.tables").fetchone() == (failures,)
        code, said = headwater(file, "run", "--until-caught-up", "--recopy")
        assert code == 0, said
        assert headwater(file, "verify")[0] == 0
        for each in tmp_path.glob("lake.sqlite*"):
            each.unlink()
        for command in ("check", "run", "verify"):
            code, said = headwater(file, command)
            assert code == 4, said
            assert "lake 'main' of group 'g' is not the one it was" in said
        code, said = headwater(file, "run", "--until-caught-up", "--recopy")
        assert code == 0, said
        code, said = headwater(file, "verify")
        assert code == 0, said
