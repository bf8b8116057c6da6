"""A lake that we create is what the extension would have created, but for our own tables and settings."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import psycopg
import pytest

from headwater.ducklake.extension import attach
from headwater.ducklake.opening import open_lake
from headwater.ducklake.url import PostgresUrl, SqliteUrl, parse_lake_url

COLUMNS = (
    "SELECT c.relname::text, a.attnum, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,"
    " a.attcollation, a.attstorage, a.atthasdef FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
    " WHERE c.relnamespace = %s::regnamespace AND c.relkind = 'r' AND a.attnum > 0"
)
CONSTRAINTS = (
    "SELECT c.relname::text, n.conname::text, pg_get_constraintdef(n.oid) FROM pg_constraint n"
    " JOIN pg_class c ON c.oid = n.conrelid WHERE n.connamespace = %s::regnamespace"
)
INDEXES = (
    "SELECT c.relname::text, i.relname::text, x.indisunique, x.indisprimary, pg_get_indexdef(i.oid, 1, true)"
    " FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid"
    " WHERE c.relnamespace = %s::regnamespace"
)


def in_sqlite(url: SqliteUrl) -> tuple[set[Any], dict[str, list[Any]]]:
    """Everything that defines the catalog, and all its rows, by table."""
    with closing(sqlite3.connect(url.path)) as connection:
        found = set(connection.execute("SELECT tbl_name, name, type, sql FROM sqlite_master"))
        names = {row[0] for row in found}
        return found, {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}


def in_postgres(url: PostgresUrl) -> tuple[set[Any], dict[str, list[Any]]]:
    schema = '"' + url.schema.replace('"', '""') + '"'
    with psycopg.connect(url.conninfo) as connection:
        parts = [connection.execute(query.encode(), (schema,)).fetchall() for query in (COLUMNS, CONSTRAINTS, INDEXES)]
        names = {row[0] for row in parts[0]}
        rows = {name: connection.execute(f"SELECT * FROM {schema}.{name}".encode()).fetchall() for name in names}
    return {row for part in parts for row in part}, rows


def described(url: str) -> tuple[set[Any], dict[str, list[Any]]]:
    where = parse_lake_url(url)
    return in_sqlite(where) if isinstance(where, SqliteUrl) else in_postgres(where)


def test_the_catalog_is_defined_as_by_the_extension_and_holds_the_same_rows(
    lake_url: str, tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    theirs = f"{lake_url}-theirs"
    (tmp_path / "catalog").mkdir()
    attach(duck, parse_lake_url(theirs), "theirs", data_path=str(tmp_path / "data"))
    duck.execute("DETACH theirs")
    open_lake(lake_url, str(tmp_path / "data")).close()
    expected, expected_rows = described(theirs)
    found, rows = described(lake_url)
    assert {row for row in found if not any("headwater_" in str(name) for name in row[:2])} == expected
    assert len(expected_rows) == 28
    for name, wanted in expected_rows.items():
        own = [("data_inlining_row_limit", "0", None, None)] if name == "ducklake_metadata" else []
        assert [comparable(name, row) for row in rows[name]] == [*(comparable(name, row) for row in wanted), *own]
    assert {name for name in rows if name not in expected_rows} == {"headwater_attempt", "headwater_position"}


def comparable(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row without what differs from lake to lake: its time, the UUID of its first schema."""
    differing = {"ducklake_snapshot": 1, "ducklake_schema": 1}.get(table)
    return tuple(type(value) if index == differing else value for index, value in enumerate(row))


def test_every_lake_has_an_identity_and_a_time_of_its_own(lake_url: str, tmp_path: Path) -> None:
    seen = set()
    for number in range(3):
        with closing(open_lake(f"{lake_url}-{number}", str(tmp_path / str(number)))) as lake:
            seen.add(lake.id())
    assert len(seen) == 3


@pytest.mark.parametrize("schema", ['odd "name', "{now} 100%s", "public", "ü"])
def test_a_lake_may_be_in_a_schema_of_any_name(
    schema: str, database: str, tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    with closing(open_lake(f"{database}&schema={quote(schema)}", str(tmp_path / "data"))) as lake:
        attach(duck, lake.url, "odd")
        duck.execute("CREATE TABLE odd.t AS SELECT 1 AS x")
        assert lake.snapshot().id == 1
        duck.execute("DETACH odd")


def test_a_schema_that_was_prepared_for_a_role_is_enough(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    role = f"owner_{psycopg.conninfo.conninfo_to_dict(database)['dbname']}"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA mine AUTHORIZATION {role}".encode())
        request.addfinalizer(lambda: drop(database, role))
    url = database.replace("postgres@", f"{role}@")
    with closing(open_lake(f"{url}&schema=mine", str(tmp_path / "data"))) as lake:
        assert lake.snapshot().id == 0


def drop(database: str, role: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())


def test_a_lake_is_created_while_duckdb_creates_it_too(lake_url: str, tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()
    ours = "from headwater.ducklake.opening import open_lake; open_lake(sys.argv[1], sys.argv[2])"
    theirs = (
        "from headwater.ducklake.extension import *; from headwater.ducklake.url import *\n"
        "attach(connect(), parse_lake_url(sys.argv[1]), 'l', data_path=sys.argv[2])"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"import sys; {each}", lake_url, f"{tmp_path}/data"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for each in (ours, theirs)
    ]
    assert (processes[0].communicate(timeout=60)[1], processes[0].returncode) == ("", 0)
    processes[1].communicate(timeout=60)  # it may have to give way
    _, rows = described(lake_url)
    assert len(rows["ducklake_snapshot"]) == len(rows["ducklake_schema"]) == 1
