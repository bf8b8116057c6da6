"""Databases whose encoding is not UTF8: their text arrives as UTF-8, or in quarantine, and nothing stops."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.mirror import Mirror

from headwater.change import TableName
from headwater.source.check import problems
from headwater.source.checktable import TableWish
from headwater.testing.postgres import EmbeddedPostgres

BAD = "convert_from('\\x636166e9', 'SQL_ASCII')"  # 'café' in LATIN1


@contextmanager
def encoded(postgres: EmbeddedPostgres, encoding: str) -> Iterator[str]:
    """A new database in this encoding."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        try:
            yield postgres.url(name, client_encoding="UTF8")
        finally:
            end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s"
            slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
            admin.execute(end, (name,))
            admin.execute(slots, (name,))
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def mirrored(postgres: EmbeddedPostgres, spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str], Mirror]]:
    with ExitStack() as opened:

        def of_encoding(encoding: str) -> Mirror:
            url = opened.enter_context(encoded(postgres, encoding))
            return opened.enter_context(closing(Mirror(url, spark, tmp_path)))

        yield of_encoding


def test_bytes_that_are_no_utf8_go_to_quarantine_and_nothing_stops(mirrored: Callable[[str], Mirror]) -> None:
    mirror = mirrored("SQL_ASCII")
    mirror.execute(
        "CREATE TABLE notes (id int PRIMARY KEY, note text, code char(6), tags text[], doc json)",
        "INSERT INTO notes VALUES (1, 'caf\u00e9', 'caf\u00e9', '{\u20ac}', '{\"a\": \"\u00e9\"}')",
        f"INSERT INTO notes SELECT 2, {BAD}, {BAD}, ARRAY['x', {BAD}], ('\"' || {BAD} || '\"')::json",
    )
    mirror.start()
    mirror.execute(
        f"INSERT INTO notes SELECT 3, {BAD}, {BAD}, ARRAY['x', {BAD}], ('\"' || {BAD} || '\"')::json",
        f"UPDATE notes SET note = {BAD} WHERE id = 1",
        "INSERT INTO notes VALUES (4, 'caf\u00e9', 'caf\u00e9', '{\u20ac}', '{\"a\": \"\u00e9\"}')",
    )
    mirror.sync()
    good = ("caf\u00e9 ", ["\u20ac"], '{"a": "\u00e9"}')
    assert mirror.ask("FROM lake.public.notes ORDER BY id") == [
        (1, None, *good),
        (2, None, None, None, None),
        (3, None, None, None, None),
        (4, "caf\u00e9", *good),
    ]
    kept = mirror.ask("SELECT key, column_name, value FROM lake.headwater_quarantine ORDER BY ALL")
    assert [(column, value) for key, column, value in kept if json.loads(key)["id"] == 3] == [
        ("code", r"caf\xe9  "),
        ("doc", r'"caf\xe9"'),
        ("note", r"caf\xe9"),
        ("tags", r"{x,caf\xe9}"),
    ]
    assert len(kept) == 9
    (verdict,) = mirror.verify()
    assert verdict.ok, verdict


def test_the_server_converts_the_text_of_another_encoding(mirrored: Callable[[str], Mirror]) -> None:
    mirror = mirrored("LATIN1")
    mirror.execute(
        'CREATE TABLE "na\u00efve" (id int PRIMARY KEY, "pr\u00e9nom" text, tags text[])',
        "INSERT INTO \"na\u00efve\" VALUES (1, 'Ren\u00e9', '{\u00fc,NULL}')",
    )
    mirror.start('public."na\u00efve"')
    mirror.execute("INSERT INTO \"na\u00efve\" VALUES (2, 'Zo\u00eb', '{\u00df}')")
    mirror.sync()
    assert mirror.ask('SELECT id, "pr\u00e9nom", tags FROM lake.public."na\u00efve" ORDER BY id') == [
        (1, "Ren\u00e9", ["\u00fc", None]),
        (2, "Zo\u00eb", ["\u00df"]),
    ]
    (verdict,) = mirror.verify()
    assert verdict.ok, verdict


def test_check_says_what_becomes_of_text_without_an_encoding(
    postgres: EmbeddedPostgres, caplog: pytest.LogCaptureFixture
) -> None:
    with encoded(postgres, "SQL_ASCII") as url:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("CREATE TABLE notes (id int PRIMARY KEY)")
        with caplog.at_level(logging.WARNING):
            assert problems(url, {"g": [TableWish(TableName("public", "notes"))]}) == []
    assert "SQL_ASCII" in caplog.text
    assert "quarantine" in caplog.text


def test_names_that_are_no_utf8_are_refused(postgres: EmbeddedPostgres) -> None:
    with encoded(postgres, "SQL_ASCII") as url:
        with psycopg.connect(url.replace("UTF8", "SQL_ASCII"), autocommit=True) as admin:
            admin.execute(b'CREATE TABLE notes (id int PRIMARY KEY, "caf\xe9" text)')
            admin.execute(b'CREATE TABLE "caf\xe9" (id int PRIMARY KEY)')
        (problem,) = problems(url, {"g": [TableWish(TableName("public", "notes"))]})
        assert problem.exit_code == 4
        assert problem.message == r"the name of column 'caf\\xe9' of table 'public.notes' is not UTF-8"
        (missing,) = problems(url, {"g": [TableWish(TableName("public", "cafe"))]})
        assert "there is no table 'public.cafe'" in missing.message


def test_an_encoding_that_has_no_way_to_utf8_is_refused(postgres: EmbeddedPostgres) -> None:
    with encoded(postgres, "MULE_INTERNAL") as url:
        (problem,) = problems(url.replace("UTF8", "MULE_INTERNAL"), {})
    assert problem.exit_code == 4
    assert "cannot convert to UTF-8" in problem.message


def test_a_character_that_the_server_cannot_convert_goes_to_quarantine_and_nothing_stops(
    mirrored: Callable[[str], Mirror], caplog: pytest.LogCaptureFixture
) -> None:
    mirror = mirrored("WIN1252")
    mirror.execute(
        'CREATE TABLE notes (id int PRIMARY KEY, "pr\u00e9nom" text, n int)',
        "INSERT INTO notes VALUES (1, 'caf\u00e9', 1), (2, 'Zo\u00eb', 2)",
    )
    mirror.start()
    with psycopg.connect(mirror.url.replace("UTF8", "WIN1252"), autocommit=True) as writer:
        writer.execute(b"INSERT INTO notes VALUES (3, 'caf\xe9 \x81', 3), (4, '\xc3\x81', NULL), (5, 'Ren\xe9', 5)")
        writer.execute(b"UPDATE notes SET pr\xe9nom = '\x81' WHERE id = 2")
        writer.execute(b"UPDATE notes SET n = 10 WHERE id = 1")
        writer.execute(b"DELETE FROM notes WHERE id = 4")
        writer.execute(b"INSERT INTO notes VALUES (4, '\xc3\x81', NULL)")
    mirror.sync()
    assert mirror.ask('SELECT id, "pr\u00e9nom", n FROM lake.public.notes ORDER BY id') == [
        (1, "caf\u00e9", 10),
        (2, None, 2),
        (3, None, 3),
        (4, None, None),
        (5, "Ren\u00e9", 5),
    ]
    kept = mirror.ask("SELECT key, value FROM lake.headwater_quarantine WHERE resolved_lsn IS NULL")
    assert {json.loads(key)["id"]: value for key, value in kept} == {
        2: r"\x81",
        3: r"caf\xe9 \x81",
        4: "\u00c1" + r"\xff",
    }
    assert caplog.text.count("text is now read as it is stored") == 1
    mirror.stop_capture()
    mirror.capture()
    mirror.execute(
        "INSERT INTO notes VALUES (6, '\u20ac', 6)", "UPDATE notes SET \"pr\u00e9nom\" = 'z' WHERE id IN (2, 3, 4)"
    )
    mirror.sync()
    mirror.assert_equal("notes")
    assert mirror.ask("SELECT count(*) FROM lake.headwater_quarantine WHERE resolved_lsn IS NULL") == [(0,)]
    (verdict,) = mirror.verify()
    assert verdict.ok, verdict


def test_a_table_with_a_character_that_the_server_cannot_convert_is_not_copied_and_the_others_are(
    mirrored: Callable[[str], Mirror],
) -> None:
    mirror = mirrored("WIN1252")
    mirror.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY, note text)" for name in ("notes", "other")))
    with psycopg.connect(mirror.url.replace("UTF8", "WIN1252"), autocommit=True) as writer:
        writer.execute(b"INSERT INTO notes VALUES (1, '\x81')")
        writer.execute(b"INSERT INTO other VALUES (1, 'caf\xe9')")
    mirror.start()
    mirror.sync()
    mirror.assert_equal("other")
    errors = {row.source.name: row.error or "" for row in mirror.m.state.tables("g")}
    assert errors["other"] == ""
    assert '0x81 in encoding "WIN1252" has no equivalent in encoding "UTF8"' in errors["notes"]
