"""DuckDB and our own transactions never have a catalog's SQLite file at the same time in one process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from lakebench import Bench

from headwater.ducklake.gates import for_duckdb, for_transaction
from headwater.ducklake.url import parse_lake_url

pytestmark = pytest.mark.parametrize("lake_url", ["sqlite"], indirect=True)


def test_duckdb_waits_for_a_transaction_and_a_transaction_for_duckdb(bench: Bench) -> None:
    bench.create([(1, "a")])
    done: list[str] = []

    def attach() -> None:
        with bench.lake.attached(read_only=True) as (con, alias):
            done.append("attached")
            con.execute(f"FROM {alias}.public.t").fetchall()

    with bench.lake.catalog.transaction() as tx:
        waiting = threading.Thread(target=attach)
        waiting.start()
        assert len(tx.rows("SELECT 1 FROM ducklake_snapshot")) == 2
        waiting.join(0.3)
        assert done == []
    waiting.join(30)
    assert done == ["attached"]
    with bench.lake.attached(read_only=True):
        deleting = threading.Thread(target=lambda: done.append(str(bench.apply(delete=[1]))))
        deleting.start()
        deleting.join(0.3)
        assert done == ["attached"]
    deleting.join(30)
    assert done == ["attached", "2"]
    assert bench.rows() == []


def test_transactions_do_not_wait_for_each_other_nor_for_duckdb_in_another_catalog(
    lake_url: str, tmp_path: Path
) -> None:
    path = parse_lake_url(lake_url).path  # type: ignore[union-attr]
    with for_transaction(path), for_transaction(path), for_duckdb(parse_lake_url(f"sqlite:///{tmp_path}/other.sqlite")):
        pass
