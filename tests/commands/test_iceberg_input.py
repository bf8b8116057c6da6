"""What an operator can get wrong about an Iceberg lake: each mistake has a message, a hint and an exit code."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog

from headwater.commands.cli import cli
from headwater.testing.postgres import EmbeddedPostgres
from tests.conftest import new_database
from tests.iceberg.restcatalog import TOKEN, rest_catalog

Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """`headwater check` with this lake: the exit code, and what it prints."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def run(lake: str, command: str = "check") -> tuple[int, str]:
        file = tmp_path / "headwater.yaml"
        file.write_text(
            f"source: {database}\nlog: ./log\n"
            f"lakes: {{ice: {{iceberg: {lake}}}}}\ngroups: {{g: {{tables: [public.t]}}}}\n"
        )
        done = CliRunner().invoke(cli, ["-c", str(file), command])
        return done.exit_code, " ".join(done.output.split())

    return run


@pytest.mark.parametrize(
    ("lake", "code", "said"),
    [
        ("{type: sqll}", 2, ["lakes.ice.iceberg", "unknown catalog type 'sqll'", "sql, rest, glue, hive"]),
        ("{type: in-memory}", 2, ["unknown catalog type 'in-memory'"]),
        ("{}", 2, ["URI missing"]),
        ("{type: sql, warehouse: ./w}", 2, ["URI missing"]),
        ('{type: sql, uri: "sqlite:///i.sqlite"}', 2, ["warehouse"]),
        ('{type: sql, uri: "mysql://u:hunter2@h/d", warehouse: ./w}', 2, ["cannot open"]),
        ('{type: sql, uri: "sqlite:///", warehouse: ./w}', 2, ["names no file"]),
        (
            '{type: sql, uri: "sqlite:///i.sqlite", warehouse: "gs://bucket/x"}',
            2,
            ["gs://bucket/x", "s3://bucket/prefix"],
        ),
        ('{type: sql, uri: "sqlite:///i.sqlite", warehouse: "headwater.yaml"}', 2, ["warehouse", "not a folder"]),
        ('{type: sql, uri: "sqlite:///headwater.yaml", warehouse: ./w}', 3, ["does not answer", "not a database"]),
        ('{type: sql, uri: "sqlite:///headwater.yaml/i.sqlite", warehouse: ./w}', 2, ["catalog", "not a folder"]),
        ('{type: sql, uri: "postgresql://u:hunter2@127.0.0.1:1/d", warehouse: ./w}', 3, ["does not answer"]),
        ('{type: sql, uri: "postgresql://u:hun/ter2@127.0.0.1:1/d", warehouse: ./w}', 2, ["not a libpq URL"]),
        ('{type: rest, uri: "http://127.0.0.1:1", token: hunter2}', 3, ["does not answer"]),
        ('{type: rest, uri: "http://u:hunter2@127.0.0.1:1"}', 3, ["does not answer"]),
        ('{type: rest, uri: "http://u:hun/ter2@127.0.0.1:1"}', 2, ["not a URL"]),
        ('{type: hive, uri: "thrift://127.0.0.1:1"}', 2, ["not installed", "pip install 'pyiceberg[hive]'"]),
        ("{type: glue}", 2, ["iceberg glue", "region"]),
        ("{type: [sql]}", 2, ["expected a single value"]),
    ],
)
def test_a_mistake_is_reported_with_what_to_do(check: Check, lake: str, code: int, said: list[str]) -> None:
    exit_code, output = check(lake)
    assert [each for each in said if each not in output] == [], output
    assert exit_code == code, output
    assert "hunter" not in output
    assert "ter2" not in output


def test_a_wrong_token_is_refused_and_not_shown(check: Check, tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as server:
        right = f'{{type: rest, uri: "{server.properties["uri"]}", token: {TOKEN}}}'
        wrong = right.replace(TOKEN, "hunter2-hunter2")
        code, output = check(wrong)
        assert code == 2
        assert "refuses us" in output
        assert "check the credentials" in output
        assert "hunter2" not in output
        code, output = check(right.replace(f", token: {TOKEN}", ""))
        assert (code, "refuses us" in output) == (2, True)
        code, output = check(right)
        assert code == 0, output


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (400, 2, "does not do what Headwater asks for"),
        (401, 2, "refuses us"),
        (403, 2, "refuses us"),
        (404, 2, "is no Iceberg catalog"),
        (419, 2, "refuses us"),
        (429, 3, "does not answer"),
        (500, 3, "does not answer"),
        (501, 2, "does not do what Headwater asks for"),
        (502, 3, "does not answer"),
        (503, 3, "does not answer"),
        (504, 3, "does not answer"),
    ],
)
def test_a_rest_catalog_that_refuses_to_answer_is_reported_without_its_token(
    check: Check, tmp_path: Path, status: int, code: int, said: str
) -> None:
    with rest_catalog(tmp_path) as server:
        server.refused = status
        exit_code, output = check(f'{{type: rest, uri: "{server.properties["uri"]}", token: {TOKEN}}}')
    assert (exit_code, said in output) == (code, True), output
    assert server.properties["uri"] in output
    assert TOKEN not in output


def test_a_page_that_is_no_catalog_is_reported(check: Check) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>Please log in</html>")

        def log_message(self, format: str, *args: object) -> None:
            """Tests do not want to see requests."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        code, output = check(f'{{type: rest, uri: "http://127.0.0.1:{server.server_port}"}}')
        server.shutdown()
        thread.join()
    assert (code, "cannot open iceberg rest" in output) == (2, True), output


def test_a_new_catalog_in_postgresql_can_be_checked_before_it_is_made(check: Check, postgres: EmbeddedPostgres) -> None:
    with new_database(postgres) as url:
        code, output = check(f'{{type: sql, uri: "{url}", warehouse: ./w}}')
    assert code == 0, output


def test_a_table_of_that_name_that_is_not_ours_is_refused(check: Check, tmp_path: Path) -> None:
    uri, warehouse = f"sqlite:///{tmp_path}/i.sqlite", str(tmp_path / "w")
    with closing(load_catalog("default", type="sql", uri=uri, warehouse=warehouse)) as stock:
        stock.create_namespace("public")
        stock.create_table(("public", "t"), pa.schema([pa.field("id", pa.int64())]))
    code, output = check(f'{{type: sql, uri: "{uri}", warehouse: "{warehouse}"}}')
    assert code == 2, output
    assert "'public.t'" in output
    assert "`as:`" in output


@pytest.mark.parametrize("odd", ["with space", "per%20cent", "it's", "a#b", "ünï"])
def test_paths_may_have_odd_characters(check: Check, tmp_path: Path, odd: str) -> None:
    (tmp_path / odd).mkdir()
    for lake in (
        f'{{type: sql, uri: "sqlite:///{odd}/i.sqlite", warehouse: "./{odd}/w"}}',
        f'{{type: sql, uri: "sqlite:////{tmp_path}/{odd}/i.sqlite", warehouse: "file://{tmp_path}/{odd}/w"}}',
    ):
        code, output = check(lake)
        assert code == 0, output
