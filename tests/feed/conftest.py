"""A lake on each kind of catalog, written by DuckDB's extension with all its defaults."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest

from headwater.testing.postgres import EmbeddedPostgres
from tests.feed.feedbench import FeedBench, duckdb_with_lakes


@pytest.fixture(scope="session")
def feed_duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb_with_lakes() as con:
        yield con


@pytest.fixture(scope="session")
def feed_database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """One database for all lakes of these tests, each in a schema of its own."""
    name = f"feeds_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield postgres.url(name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def feed_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a lake that does not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/lake.sqlite"
    return f"{request.getfixturevalue('feed_database')}&schema=lake%20{uuid.uuid4().hex[:8]}"


@pytest.fixture
def bench(feed_url: str, tmp_path: Path, feed_duck: duckdb.DuckDBPyConnection) -> Iterator[FeedBench]:
    with FeedBench.opened(feed_url, str(tmp_path / "data"), feed_duck) as bench:
        yield bench
