"""The whole journey on a database and a role whose settings are all against us."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.testing.postgres import EmbeddedPostgres
from tests.proof.processes import headwater

HOSTILE = {
    "statement_timeout": "50ms",
    "lock_timeout": "50ms",
    "idle_in_transaction_session_timeout": "1s",
    "idle_session_timeout": "1s",
    "transaction_timeout": "300ms",
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "extra_float_digits": "-5",
    "client_encoding": "LATIN1",
    "search_path": "decoy, public, pg_catalog",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "xmloption": "document",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "synchronous_commit": "off",
    "row_security": "on",
}
SANE = (
    "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_session_timeout = 0; SET search_path = public;"
    " SET default_transaction_read_only = off; SET client_encoding = 'UTF8'; SET DateStyle = 'ISO, MDY';"
    " SET default_transaction_isolation = 'read committed'; SET standard_conforming_strings = on;"
    " SET array_nulls = on"
)
# Earlier in the search_path than what they are named after, and wrong.
DECOYS = (
    *(
        f"CREATE TABLE decoy.{name} AS SELECT * FROM pg_catalog.{name} WHERE false"
        for name in (
            "pg_class",
            "pg_namespace",
            "pg_database",
            "pg_roles",
            "pg_settings",
            "pg_tables",
            "pg_publication",
        )
    ),
    *(
        f"CREATE FUNCTION decoy.no({kind}, {other}) RETURNS boolean LANGUAGE sql AS 'SELECT false';"
        f"CREATE OPERATOR decoy.= (LEFTARG = {kind}, RIGHTARG = {other}, FUNCTION = decoy.no)"
        for kind, other in (("oid", "oid"), ("name", "name"), ("name", "text"), ("text", "text"), ("pg_lsn", "pg_lsn"))
    ),
    "CREATE FUNCTION decoy.format(text, anyelement) RETURNS text LANGUAGE sql AS $$ SELECT 'decoy'::text $$",
    "CREATE FUNCTION decoy.to_regclass(text) RETURNS regclass LANGUAGE sql AS 'SELECT NULL::regclass'",
    "CREATE FUNCTION decoy.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'epoch'::timestamptz $$",
    "CREATE FUNCTION decoy.pg_try_advisory_lock(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
)
TABLES = (
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TABLE kinds (id int PRIMARY KEY, day date, moment timestamptz, plain timestamp, span interval, bytes bytea,"
    " double double precision, single real, number numeric, words text, list text[], days date[], doc jsonb, m mood,"
    " rel regclass)",
    "CREATE TABLE many (id int PRIMARY KEY, note text)",
    "INSERT INTO many SELECT i, repeat('x', 100) FROM generate_series(1, 60000) i",
)
KINDS = r"""({id}, '2024-02-13', '2024-02-13 12:00+00', '2024-02-13 23:59:59.123456',
    '-1 year -2 mons +3 days -04:05:06', '\x00ff5c27', 0.1::float8 + 0.2, 1.2345678, 12345.678,
    E'a\\b \'c\' \u00e9\u20ac', '{{a,NULL,"N U"}}', '{{2024-02-13,infinity}}', '{{"a": 1}}', 'glad', 'public.many')"""
CONFIG = """
source: {source}
log: ./log
lakes:
  near: {{ducklake: "sqlite:///near.sqlite", data_path: ./near}}
  far: {{ducklake: "{catalog}", data_path: ./far}}
groups:
  near: {{lake: near, flush: {{interval: 100ms}}, tables: [public.kinds, public.many]}}
  far: {{lake: far, flush: {{interval: 100ms}}, tables: [public.kinds]}}
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1"}}}}
"""


class Hostile:
    """A source and a lake's catalog, two databases that are set like that; and an administrator who is not."""

    def __init__(self, server: EmbeddedPostgres, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.role = f"hostile_{uuid.uuid4().hex[:8]}"
        self.source, self.catalog = f"{self.role}_source", f"{self.role}_lake"
        self.file = folder / "headwater.yaml"
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute(f"CREATE ROLE {self.role} LOGIN REPLICATION")
            for database in (self.source, self.catalog):
                admin.execute(f"CREATE DATABASE {database} OWNER {self.role}")
                admin.execute(f"GRANT ALL ON DATABASE {database} TO {self.role}")
        self.execute(self.source, *TABLES, f"INSERT INTO kinds VALUES {KINDS.format(id=1)}")
        self.execute(self.catalog, "CREATE SCHEMA lake")
        for database in (self.source, self.catalog):
            self.execute(database, "CREATE SCHEMA decoy", *DECOYS)
        self._set()
        self.file.write_text(CONFIG.format(source=self.url(self.source), catalog=self.url(self.catalog, schema="lake")))

    def url(self, database: str, **extra: str) -> str:
        return self.server.url(database, **extra).replace("postgres@", f"{self.role}@")

    def execute(self, database: str, *statements: str) -> None:
        """As the role, with the settings that a person has."""
        with psycopg.connect(self.server.url(database), autocommit=True) as admin:
            admin.execute(SANE)
            admin.execute(f"SET ROLE {self.role}")
            for statement in statements:
                admin.execute(statement)

    def mirrored(self, lake: str, table: str) -> dict[int, dict[str, Any]]:
        """The rows of a mirror by their id."""
        catalog = f"sqlite:///{self.folder}/near.sqlite" if lake == "near" else self.url(self.catalog, schema="lake")
        with connect() as con:
            attach(con, parse_lake_url(catalog), "lake", read_only=True)
            cursor = con.execute(f"SELECT * FROM lake.public.{table}")
            names = [column[0] for column in cursor.description or ()]
            return {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}

    def close(self) -> None:
        with psycopg.connect(self.server.url(), autocommit=True) as admin:
            end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s"
            slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
            for database in (self.source, self.catalog):
                admin.execute(end, (database,))
                admin.execute(slots, (database,))
                admin.execute(f"DROP DATABASE {database} WITH (FORCE)")
            admin.execute(f"DROP ROLE {self.role}")

    def _set(self) -> None:
        with psycopg.connect(self.server.url(), autocommit=True) as admin:
            for name, value in HOSTILE.items():
                if admin.execute("SELECT current_setting(%s, true)", (name,)).fetchone() == (None,):
                    continue  # this server is too old for it
                for whom in (f"ROLE {self.role}", f"DATABASE {self.source}", f"DATABASE {self.catalog}"):
                    spelled = value if name == "search_path" else f"'{value}'"
                    admin.execute(f"ALTER {whom} SET {name} = {spelled}")


@pytest.fixture
def hostile(postgres: EmbeddedPostgres, tmp_path: Path) -> Iterator[Hostile]:
    with closing(Hostile(postgres, tmp_path)) as made:
        yield made


@pytest.mark.long
def test_no_setting_of_the_role_or_the_database_changes_what_arrives(hostile: Hostile) -> None:
    # the first copy, into a lake on SQLite and one on a PostgreSQL that is set the same way
    assert_quiet(*headwater(hostile.file, "run", "--until-caught-up"))
    assert len(hostile.mirrored("near", "many")) == 60000
    assert_kinds(hostile, 1)
    # streaming; while Spark starts, all other connections are idle for longer than every timeout
    hostile.execute(hostile.source, f"INSERT INTO kinds VALUES {KINDS.format(id=2)}", "DELETE FROM many WHERE id > 5")
    hostile.execute(
        hostile.source,
        "ALTER TABLE kinds ADD added interval DEFAULT '1 day 02:00'",
        "ALTER TABLE kinds RENAME words TO said",
        f"INSERT INTO kinds SELECT 3, {', '.join(EXPECTED).replace('words', 'said')} FROM kinds WHERE id = 2",
    )
    assert_quiet(*headwater(hostile.file, "run", "--until-caught-up"))
    assert len(hostile.mirrored("near", "many")) == 5
    assert_kinds(hostile, 1, 2, 3, words="said", added="1 day 02:00:00")
    assert_quiet(*headwater(hostile.file, "verify"))
    code, printed = headwater(hostile.file, "check")
    assert (code, printed.splitlines()[-1]) == (0, "check: OK")
    assert "may not create event triggers" in printed


def assert_quiet(code: int, said: str) -> None:
    assert code == 0, said
    assert "WARNING" not in said
    assert "ERROR" not in said


def assert_kinds(hostile: Hostile, *ids: int, words: str = "words", **added: str) -> None:
    expected = {words if name == "words" else name: value for name, value in EXPECTED.items()} | added
    for lake in ("near", "far"):
        rows = hostile.mirrored(lake, "kinds")
        assert sorted(rows) == list(ids)
        for id_ in ids:
            assert rows[id_] == expected | {"id": id_}


SAID = "a\\b 'c' \u00e9\u20ac"
EXPECTED = {
    "day": date(2024, 2, 13),
    "moment": datetime(2024, 2, 13, 12, tzinfo=UTC),
    "plain": datetime(2024, 2, 13, 23, 59, 59, 123456),
    "span": "-1 years -2 mons +3 days -04:05:06",
    "bytes": b"\x00\xff\\'",
    "double": 0.1 + 0.2,
    "single": float(np.float32(1.2345678)),
    "number": Decimal("12345.678"),
    "words": SAID,
    "list": ["a", None, "N U"],
    "days": [date(2024, 2, 13), date.max],
    "doc": '{"a": 1}',
    "m": "glad",
    "rel": "public.many",
}
