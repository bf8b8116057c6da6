"""Every connection of ours has the settings that it depends on, whatever the database has set, on every server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg import sql
from tests.conftest import MORE_VERSIONS, VERSIONS, new_database
from tests.proof.test_hostile_settings import HOSTILE, SANE

from headwater.copy.reading import balanced, read_expressions, showing
from headwater.copy.snapshot import exported_snapshot
from headwater.ducklake.catalog import open_catalog
from headwater.ducklake.extension import attach
from headwater.ducklake.extension import connect as duckdb
from headwater.ducklake.url import parse_lake_url
from headwater.postgres.connect import connect
from headwater.postgres.replication import Replication
from headwater.postgres.settings import SETTINGS
from headwater.testing.postgres import EmbeddedPostgres


@pytest.fixture(params=MORE_VERSIONS)
def hostile(request: pytest.FixtureRequest, servers: Callable[[int], EmbeddedPostgres]) -> Iterator[str]:
    """A database that sets everything otherwise, as far as its server knows it."""
    with new_database(servers(request.param)) as url, psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE TABLE one (id int PRIMARY KEY); INSERT INTO one VALUES (1)")
        for name, value in HOSTILE.items():
            if admin.execute("SELECT current_setting(%s, true)", (name,)).fetchone() != (None,):
                spelled = value if name == "search_path" else f"'{value}'"
                admin.execute(f"ALTER DATABASE {admin.info.dbname} SET {name} = {spelled}")
        yield url


def known(url: str) -> dict[str, str]:
    """What the server of this database knows of our settings."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(SANE)
        names = {name for (name,) in admin.execute("SELECT name FROM pg_settings")}
    return {name: value for name, value in SETTINGS.items() if name in names}


def test_every_setting_of_ours_is_tried_with_a_hostile_value() -> None:
    assert SETTINGS.keys() <= HOSTILE.keys()


@pytest.mark.parametrize("hostile", VERSIONS, indirect=True)
def test_a_connection_has_our_settings(hostile: str) -> None:
    expected = known(hostile)
    with closing(connect(hostile)) as connection:
        found = {name: connection.execute("SELECT current_setting(%s)", (name,)).fetchone() for name in expected}
    assert found == {name: (value,) for name, value in expected.items()}


def test_a_connection_is_opened_without_options_which_a_pooler_would_refuse(hostile: str) -> None:
    with closing(connect(hostile)) as connection:
        reset = connection.execute("SELECT reset_val FROM pg_settings WHERE name = 'statement_timeout'").fetchone()
    assert reset == ("50",)  # milliseconds, as the database has it: options would have replaced it


@pytest.mark.parametrize("hostile", VERSIONS, indirect=True)
def test_the_replication_connection_has_our_settings(hostile: str) -> None:
    with closing(Replication(hostile, "headwater test")) as connection:
        found = {name: connection.query(f"SHOW {name}")[0] for name in known(hostile)}
    assert found == known(hostile)


def test_a_copy_is_read_with_our_settings(hostile: str) -> None:
    expected = known(hostile)
    transactional = {"default_transaction_read_only", "default_transaction_isolation"}
    with exported_snapshot(hostile) as exported, showing(hostile, exported.snapshot_name) as connection:
        (oid,) = connection.execute("SELECT 'public.one'::regclass::oid::int").fetchone() or ()
        (part,) = balanced(connection, oid, 1)
        asked = [sql.SQL("current_setting({})").format(name) for name in expected.keys() - transactional]
        (batch,) = read_expressions(hostile, exported.snapshot_name, part, asked)
    assert [column[0].as_py() for column in batch.columns] == [
        expected[name] for name in expected.keys() - transactional
    ]


def test_a_catalog_of_a_lake_is_written_with_our_settings(hostile: str) -> None:
    url = parse_lake_url(f"{hostile}&schema=public")
    expected = known(hostile) | {"search_path": "public", "lock_timeout": "10s"}
    with closing(open_catalog(url)) as catalog, catalog.transaction(write=True) as tx:
        found = {name: tx.rows("SELECT current_setting(%s)", name)[0][0] for name in expected}
    assert found == expected


def test_duckdb_makes_and_writes_a_lake_there(hostile: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = str(tmp_path_factory.mktemp("data"))
    with duckdb() as con:
        attach(con, parse_lake_url(f"{hostile}&schema=lake"), "lake", data_path=data)
        con.execute(r"CREATE TABLE lake.t AS SELECT 'a\b' AS s")
    with duckdb() as con:
        attach(con, parse_lake_url(f"{hostile}&schema=lake"), "lake", read_only=True)
        assert con.execute("FROM lake.t").fetchall() == [(r"a\b",)]


def test_duckdb_connects_with_options_only_where_a_setting_is_not_the_default(
    database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url, data = parse_lake_url(f"{database}&schema=lake"), str(tmp_path_factory.mktemp("data"))
    given = "SELECT name FROM pg_settings WHERE source = ''client'' AND name <> ''application_name''"
    for expected in ([], [("statement_timeout",)]):
        with duckdb() as con:
            attach(con, url, "lake", data_path=data)
            assert con.execute(f"FROM postgres_query('__ducklake_metadata_lake', '{given}')").fetchall() == expected
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {admin.info.dbname} SET statement_timeout = '1s'")
