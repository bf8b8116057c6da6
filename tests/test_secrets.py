"""Whatever a password is made of, it works, and nothing of it is ever printed."""

from __future__ import annotations

import io
import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import make_url

from headwater.commands.cli import cli
from headwater.config import Config, Iceberg
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.logs import configure
from headwater.sink.addresses import group_lake
from headwater.testing.postgres import EmbeddedPostgres

MARKS = ("q7Zx", "x9Kw")  # in every password: no part of it may be printed, not even what a wrong parse leaves of it
_ODD = st.text(
    st.one_of(st.sampled_from("%/?#@'\"\\ :&=[]{}$;,+!<>|`~^*()\t\n"), st.characters(codec="utf-8")), max_size=6
)
PASSWORDS = st.builds(lambda a, b, c: f"{a}{MARKS[0]}{b}{MARKS[1]}{c}".replace("\0", "0"), _ODD, _ODD, _ODD)

GOOD = """
source: postgresql://app:${PW}@127.0.0.1:1/shop
state: postgresql://127.0.0.1:1/shop?user=app&password=${PW}
log: ./log
lakes: {main: {ducklake: "postgresql://lake:${PW}@127.0.0.1:1/lakes?schema=main&connect_timeout=1", data_path: ./lake}}
groups: {shop: {tables: [public.orders]}}
spark: {conf: {spark.hadoop.fs.s3a.secret.key: "${PW}"}}
server: {token: "q7Zx-x9Kw"}
"""
ICE = """
source: {source}
log: ./log
lakes: {{main: {{iceberg: {lake}}}}}
groups: {{shop: {{tables: [public.orders]}}}}
"""
ICEBERG = (
    '{type: sql, uri: "postgresql://ice:${PW}@127.0.0.1:1/ice?connect_timeout=1", warehouse: ./ice}',
    '{type: sql, uri: "postgresql+psycopg://ice:${PW}@127.0.0.1:1/ice?connect_timeout=1", warehouse: ./ice}',
    '{type: rest, uri: "http://127.0.0.1:1", token: "${PW}"}',
    '{type: rest, uri: "http://ice:${PW}@127.0.0.1:1", credential: "id:${PW}"}',
    '{type: rest, uri: "http://127.0.0.1:1", s3.secret-access-key: "${PW}", header.X-Api-Key: "${PW}"}',
    '{type: hive, uri: "thrift://ice:${PW}@127.0.0.1:1", warehouse: ./ice}',
    '{type: sql, uri: "mysql://ice:${PW}@127.0.0.1:1/ice", warehouse: ./ice}',
    '{uri: "odd://ice:${PW}@127.0.0.1:1/ice", warehouse: ./ice, token: "${PW}"}',
)
MISTAKES = (  # each in place of a line of the good one, or added to it
    "source: ${URL}",
    "source: mysql://app:${PW}@db/shop",
    "source: postgresql://app:${PW}@db:port/shop",
    "source: postgresql://app:${PW}@db/shop?nonsense=1",
    "source: host=db password=${PW}",
    'source: ["${URL}"]',
    "sauce: ${URL}",
    "log: ftp://${PW}",
    'lakes: {main: {ducklake: "${URL}", data_path: ./lake}}',
    'lakes: {main: {ducklake: "mysql://lake:${PW}@db", data_path: ./lake}}',
    'lakes: {main: {ducklake: "${PW}", data_path: ./lake}}',
    'lakes: {main: {iceberg: {type: "${PW}"}}}',
    'lakes: {main: {iceberg: {type: sql, uri: "${URL}", warehouse: ./w}}}',
    'lakes: {main: {iceberg: {type: sql, uri: "mysql://u:${PW}@db/x", warehouse: ./w}}}',
    'lakes: {main: {iceberg: {type: sql, uri: "sqlite:///lake.sqlite", warehouse: "ftp://${PW}"}}}',
    'lakes: {main: {iceberg: {type: rest, uri: "http://u:${PW}@db:port"}}}',
    'lakes: {main: {iceberg: {type: rest, uri: "${URL}"}}}',
    'lakes: {main: {iceberg: {token: ["${PW}"]}}}',
    'lakes: {main: {iceberg: "${PW}"}}',
    'groups: {shop: {flush: {interval: "${PW}"}, tables: [public.orders]}}',
    'groups: {shop: {flush: {rows: "${PW}"}, tables: [public.orders]}}',
    'groups: {shop: {tables: ["${PW}"]}}',
    'server: {port: "${PW}"}',
    'server: {token: ["${PW}"]}',
    'spark: {conf: {a: ["${PW}"]}}',
)


def raw_url(password: str) -> str:
    """A URL as a user writes it who does not know that a password must be percent-encoded there."""
    return f"postgresql://app:{password}@127.0.0.1:1/shop"


def with_line(line: str) -> str:
    key = line.split(":")[0]
    return "\n".join(line if each.startswith(f"{key}:") else each for each in GOOD.splitlines()) + (
        "" if f"\n{key}:" in GOOD else f"\n{line}\n"
    )


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headwater-secrets-") as place:
        yield Path(place)


def said(folder: Path, text: str, password: str, *arguments: str) -> str:
    """All that a command prints."""
    file = folder / "headwater.yaml"
    file.write_text(text)
    result = CliRunner().invoke(
        cli, ["-c", str(file), *arguments], env={"PW": password, "URL": raw_url(password)}, catch_exceptions=True
    )
    assert isinstance(result.exception, SystemExit), result.exception  # it failed, as it must, and said so itself
    assert "error: " in result.output or "Traceback" in result.output, result.output
    return result.output


def assert_silent(text: str) -> None:
    for mark in MARKS:
        assert mark not in text


@given(PASSWORDS)
@settings(max_examples=200, deadline=None)
def test_a_password_from_the_environment_arrives_as_it_is(folder: Path, password: str) -> None:
    file = folder / "good.yaml"
    file.write_text(GOOD)
    config = Config.load(file, {"PW": password})
    assert conninfo_to_dict(config.source)["password"] == password
    assert conninfo_to_dict(config.state_url)["password"] == password
    lake = parse_lake_url(config.ducklakes["main"].catalog)
    assert lake.password == password  # type: ignore[union-attr]
    assert password in config.secrets()
    assert_silent(f"{config!r} {lake!r} {lake}")


@given(PASSWORDS, st.sampled_from(MISTAKES))
@example("@".join(MARKS), "log: ftp://${PW}")  # what comes before an @ looks like a user, and after it like a host
@example("@".join(MARKS), 'lakes: {main: {iceberg: {type: sql, uri: "sqlite:///x", warehouse: "ftp://${PW}"}}}')
@settings(max_examples=400, deadline=None)
def test_no_mistake_in_the_file_prints_a_password(folder: Path, password: str, line: str) -> None:
    assert_silent(said(folder, with_line(line), password, "status"))


@given(PASSWORDS, st.sampled_from(["text", "json"]))
@settings(max_examples=200, deadline=None)
def test_no_server_that_does_not_answer_makes_a_password_visible(folder: Path, password: str, form: str) -> None:
    local = GOOD.replace("state: postgresql://127.0.0.1:1/shop?user=app&password=${PW}\n", "")
    for text, command in ((GOOD, "status"), (local, "status")):
        assert_silent(said(folder, text, password, "--log-format", form, command))


@pytest.mark.parametrize("examples", [10, pytest.param(200, marks=pytest.mark.long)])  # each loads DuckDB's extensions
def test_no_lake_that_does_not_answer_makes_a_password_visible(folder: Path, examples: int) -> None:
    @given(PASSWORDS, st.sampled_from([("check",), ("run",), ("query", "SELECT 1")]))
    @settings(max_examples=examples, deadline=None)
    def asked(password: str, command: tuple[str, ...]) -> None:
        assert_silent(said(folder, GOOD, password, *command))

    asked()


@given(PASSWORDS, st.sampled_from(ICEBERG))
@settings(max_examples=200, deadline=None)
def test_the_password_of_an_iceberg_catalog_arrives_as_it_is(folder: Path, password: str, lake: str) -> None:
    file = folder / "ice.yaml"
    file.write_text(ICE.format(source="postgresql://app@127.0.0.1:1/shop", lake=lake))
    config = Config.load(file, {"PW": password})
    found = config.lakes["main"]
    assert isinstance(found, Iceberg)
    if ":${PW}@" in lake:
        assert make_url(found.properties["uri"]).password == password
    assert password in config.secrets() or f"id:{password}" in config.secrets()
    address = group_lake(config, {}, "shop")
    assert_silent(f"{config!r} {address!r} {address}")


@pytest.mark.parametrize("examples", [10, pytest.param(200, marks=pytest.mark.long)])
def test_no_iceberg_catalog_makes_a_password_visible(folder: Path, guarded: EmbeddedPostgres, examples: int) -> None:
    with psycopg.connect(guarded.url(), autocommit=True) as admin:
        admin.execute("CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY)")

    @given(PASSWORDS, st.sampled_from(ICEBERG), st.sampled_from([("check",), ("query", "SELECT 1")]))
    @settings(max_examples=examples, deadline=None)
    def asked(password: str, lake: str, command: tuple[str, ...]) -> None:
        assert_silent(said(folder, ICE.format(source=guarded.url(), lake=lake), password, *command))

    asked()


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect() as made:
        yield made


@given(PASSWORDS)
@settings(max_examples=200, deadline=None)
def test_duckdb_does_not_quote_a_password(folder: Path, con: duckdb.DuckDBPyConnection, password: str) -> None:
    file = folder / "good.yaml"
    file.write_text(GOOD)
    url = parse_lake_url(Config.load(file, {"PW": password}).ducklakes["main"].catalog)
    with pytest.raises(duckdb.Error) as caught:
        attach(con, url, "lake")
    assert caught.value.__cause__ is None
    assert_silent(str(caught.value))


@given(PASSWORDS, st.sampled_from(["text", "json"]))
@settings(max_examples=200, deadline=None)
def test_no_log_line_has_a_password_however_a_library_spells_it(folder: Path, password: str, form: str) -> None:
    file = folder / "good.yaml"
    file.write_text(GOOD)
    config = Config.load(file, {"PW": password})
    parts = conninfo_to_dict(config.source)
    stream = io.StringIO()
    configure("json" if form == "json" else "text", config.secrets(), stream)
    spellings = (
        *(password, config.source, make_conninfo("", **parts), repr(parts), json.dumps(parts), repr(password)),
        *(
            ascii(password),
            repr(password.encode()),
            " ".join(password.split()),
            json.dumps(password, ensure_ascii=False),
        ),
        *("'" + password.replace("'", "''") + "'", " ".join(str(make_conninfo("", **parts)).split())),
    )
    try:
        for text in spellings:
            try:
                raise ValueError(text)
            except ValueError:
                logging.getLogger("headwater.test").exception("cannot use %s", text, extra={"given": text})
    finally:
        configure("text")
    assert_silent(stream.getvalue())


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedPostgres]:
    """A server that wants a password of the role `app`."""
    with tempfile.TemporaryDirectory(prefix="headwater-pg-", ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o755)
        server = EmbeddedPostgres(Path(place) / "pg", settings={"fsync": "off"}).start()
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute("CREATE ROLE app LOGIN")
            rules = Path(place) / "pg" / "pg_hba.conf"
            rules.write_text(f"local all app scram-sha-256\n{rules.read_text()}")
            admin.execute("SELECT pg_reload_conf()")
            yield server
        server.stop()


@pytest.mark.parametrize("examples", [10, pytest.param(200, marks=pytest.mark.long)])
def test_the_right_password_opens_and_a_wrong_one_is_not_printed(
    folder: Path, guarded: EmbeddedPostgres, examples: int
) -> None:
    config = GOOD.replace("127.0.0.1:1/shop\n", guarded.url().split("@")[1] + "\n", 1)

    @given(PASSWORDS)
    @settings(max_examples=examples, deadline=None)
    def tried(password: str) -> None:
        with psycopg.connect(guarded.url(), autocommit=True) as admin:
            admin.execute(sql.SQL("ALTER ROLE app PASSWORD {}").format(password))
        right = said(folder, config, password, "check")
        assert "password authentication failed" not in right
        assert_silent(right)
        wrong = said(folder, config, password + "x", "check")
        assert "password authentication failed" in wrong
        assert_silent(wrong)

    tried()


def test_a_variable_with_user_and_password_does_not_make_the_password_visible(
    folder: Path, guarded: EmbeddedPostgres
) -> None:
    text = (
        f"source: postgresql://${{PW}}@{guarded.url().split('@')[1]}\nlog: ./log\n"
        "lakes: {main: {ducklake: 'sqlite:///lake.sqlite', data_path: ./lake}}\ngroups: {shop: {tables: [a]}}\n"
    )
    reported = said(folder, text, f"app:{MARKS[0]}/{MARKS[1]}", "check")
    assert 'role "***" does not exist' in reported
    assert_silent(reported)
