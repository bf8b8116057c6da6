"""The bench itself: it runs, it measures every promise, and it notices when a lake is not its source."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from bench.commits import commit_times
from bench.report import Row, print_rows
from bench.work import Database
from rich.console import Console

from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.lake.stream import WAL
from headwater.sink.ducklake.address import DuckLakeAddress
from headwater.sink.iceberg.address import IcebergAddress

ROOT = Path(__file__).parent.parent


def test_a_ratio_is_of_medians_and_is_held_against_the_aim() -> None:
    row = Row("copy", "first copy", (3.0, 100.0, 2.0), 1.5, "COPY", (2.0, 0.1, 2.0))
    assert row.ratio == 1.5
    assert row.met
    assert not Row("copy", "first copy", (3.1,), 1.5, "COPY", (2.0,)).met


def test_without_a_rival_the_aim_is_a_limit() -> None:
    assert Row("small", "a small delivery", (1.4,), 1.5).met
    assert not Row("small", "a small delivery", (1.6,), 1.5).met
    assert Row("routes", "many destinations", (151.0,), 150, at_least=True).met
    assert not Row("routes", "many destinations", (149.0,), 150, at_least=True).met


def test_the_table_tells_both_measures_the_ratio_the_aim_and_whether_it_was_met() -> None:
    out = io.StringIO()
    row = Row("copy", "first copy", (3.0,), 1.4, "COPY to nothing", (2.0,), note="a note")
    print_rows([row], {"cpu": "2 x something"}, Console(file=out, width=160))
    for cell in (
        "2 x something",
        "first copy",
        "3.00 s",
        "COPY to nothing",
        "2.00 s",
        "1.50 x",
        "≤ 1.4 x",
        "NO",
        "a note",
    ):
        assert cell in out.getvalue()


def test_a_lake_with_one_other_value_is_not_the_same_as_its_source(database: str, tmp_path: Path) -> None:
    source = Database(database)
    source.create("orders", 1000)
    url = f"sqlite:///{tmp_path}/lake.sqlite"
    with connect() as lake:
        attach(lake, parse_lake_url(url), "lake", data_path=f"{tmp_path}/data")
        lake.execute("CREATE SCHEMA lake.public")
        lake.execute(
            "CREATE TABLE lake.public.orders"
            " (id bigint, customer int, amount decimal(12,2), status text, note text, placed timestamptz)"
        )
        lake.execute(
            "INSERT INTO lake.public.orders SELECT i, i % 100000, (i % 1000000) / 100,"
            " ['new', 'paid', 'sent', 'done'][1 + i % 4], 'order number ' || i || ' of customer ' || i % 100000,"
            " timestamptz '2026-01-01 00:00:00+00' + to_seconds(i) FROM generate_series(1, 1000) AS _(i)"
        )
        address = DuckLakeAddress(url, f"{tmp_path}/data", None)
        assert source.same_as(address, ["orders"]) == 1000
        lake.execute("UPDATE lake.public.orders SET amount = amount + 0.01 WHERE id = 500")
    with pytest.raises(AssertionError, match="orders"):
        source.same_as(address, ["orders"])
    source.close()


def test_commits_to_a_lake_are_timed_one_by_one(tmp_path: Path) -> None:
    address = IcebergAddress({"type": "sql", "uri": f"sqlite:///{tmp_path}/i.sqlite", "warehouse": str(tmp_path)})
    with closing(address.open("bench", WAL)) as sink:
        seconds = commit_times(sink, 3)
        assert len(seconds) == 3
        assert min(seconds) > 0
        (there,) = sink.standings().values()
    assert (there.counts.copied, there.counts.updated, there.counts.inserted) == (100_000, 150, 0)


@pytest.mark.long
@pytest.mark.parametrize(
    "wanted",
    [
        ["capture"],
        ["iceberg-catch-up", "iceberg-small"],
        ["iceberg-upsert"],
        ["pages"],
        ["routes-sqlite", "routes-sqlite-flat"],
        ["routes-postgres", "routes-postgres-flat"],
    ],
)
def test_a_quick_bench_prints_every_row_it_was_asked_for(tmp_path: Path, wanted: list[str]) -> None:
    # The others make larger tables, or start more Sparks: too slow for here.
    only = [word for name in wanted for word in ("--only", name)]
    command = [sys.executable, "-m", "bench", "--quick", "--json", "--dir", str(tmp_path), *only]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert [row["name"] for row in reported["rows"]] == wanted
    assert all(row["measured"] > 0 for row in reported["rows"])
    assert reported["machine"]["postgresql"].startswith("18")
    assert list(tmp_path.iterdir()) == []
