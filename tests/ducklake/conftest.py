"""A lake on each kind of catalog, and DuckDB's own extension attached to it all along as the judge."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest
from lakebench import Bench

from headwater.ducklake.extension import attach, connect
from headwater.ducklake.opening import open_lake
from headwater.testing.postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    con = connect(threads=1)
    yield con
    con.close()


@pytest.fixture(scope="session")
def lakes_database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """One database for all lakes of these tests, each in a schema of its own."""
    name = f"lakes_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield postgres.url(name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def lake_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a lake that does not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog/lake.sqlite"
    return f"{request.getfixturevalue('lakes_database')}&schema=lake%20{uuid.uuid4().hex[:8]}"


@pytest.fixture
def bench(lake_url: str, tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> Iterator[Bench]:
    alias = f"l{uuid.uuid4().hex[:8]}"
    lake = open_lake(lake_url, str(tmp_path / "data"))
    attach(duck, lake.url, alias)
    yield Bench(lake, duck, alias)
    lake.close()
    if in_transaction(duck):
        duck.execute("ROLLBACK")
    duck.execute(f"DETACH {alias}")


def in_transaction(con: duckdb.DuckDBPyConnection) -> bool:
    try:
        con.execute("BEGIN")
    except duckdb.TransactionException:
        return True
    con.execute("ROLLBACK")
    return False
