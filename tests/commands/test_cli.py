"""The command line: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import headwater
from headwater.commands.cli import cli
from headwater.errors import CheckFailed, ConfigError, HeadwaterError, OperatorMustAct, Unreachable


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    return CliRunner()


def failing(error: BaseException) -> click.Command:
    """The real command line with one more command, which fails."""

    @click.command()
    def fail() -> None:
        raise error

    group = type(cli)("headwater", callback=cli.callback, params=cli.params)
    group.add_command(fail)
    return group


def test_help_teaches_with_examples(runner: CliRunner) -> None:
    result = runner.invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert "headwater demo" in result.output
    assert "Exit codes" in result.output


@pytest.mark.parametrize("command", [["demo"], ["doctor"], ["query"], ["config"], ["config", "schema"]])
def test_every_command_explains_itself(runner: CliRunner, command: list[str]) -> None:
    result = runner.invoke(cli, [*command, "--help"])
    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 4


def test_it_knows_its_version() -> None:
    run = subprocess.run([sys.executable, "-m", "headwater", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"headwater, version {headwater.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["querry"], "No such command"),
        (["query"], "Missing argument"),
        (["--log-format", "xml", "doctor"], "Invalid value"),
    ],
)
def test_wrong_usage_ends_with_2(runner: CliRunner, arguments: list[str], message: str) -> None:
    result = runner.invoke(cli, arguments)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("error", "code"), [(CheckFailed, 1), (ConfigError, 2), (Unreachable, 3), (OperatorMustAct, 4), (HeadwaterError, 1)]
)
def test_an_error_is_reported_on_stderr_with_its_hint_and_its_exit_code(
    runner: CliRunner, error: type[HeadwaterError], code: int
) -> None:
    result = runner.invoke(failing(error("cannot do 'x'", hint="do 'y'")), ["fail"])
    assert result.exit_code == code
    assert result.stderr == "error: cannot do 'x'\nhint: do 'y'\n"
    assert result.stdout == ""


def test_several_problems_are_all_reported_and_the_gravest_decides(runner: CliRunner) -> None:
    inner = ExceptionGroup("more", [Unreachable("three"), ConfigError("two")])
    result = runner.invoke(failing(ExceptionGroup("all", [CheckFailed("one"), inner])), ["fail"])
    assert result.stderr == "error: one\nerror: three\nerror: two\n"
    assert result.exit_code == 3


def test_a_group_with_a_foreign_error_in_it_is_a_bug(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = runner.invoke(failing(ExceptionGroup("all", [CheckFailed("one"), KeyError("bug")])), ["fail"])
    assert result.exit_code == 70
    (file,) = tmp_path.rglob("headwater-crash*/*.txt")
    assert str(file) in result.stderr
    assert "KeyError: 'bug'" in file.read_text()
    assert "CheckFailed: one" in file.read_text()


def test_ctrl_c_is_quiet(runner: CliRunner) -> None:
    result = runner.invoke(failing(KeyboardInterrupt()), ["fail"])
    assert (result.exit_code, result.output) == (130, "")


def test_a_password_in_an_error_is_struck_out(runner: CliRunner) -> None:
    result = runner.invoke(failing(Unreachable("no answer from postgresql://app:hunter2@db")), ["fail"])
    assert "hunter2" not in result.output


def test_without_a_config_file_the_next_move_is_reported(runner: CliRunner) -> None:
    result = runner.invoke(cli, ["query", "SELECT 1"])
    assert result.exit_code == 2
    assert "no config file 'headwater.yaml'" in result.stderr
    assert "headwater demo" in result.stderr


def test_all_mistakes_in_the_config_are_reported(runner: CliRunner) -> None:
    Path("bad.yaml").write_text("sorce: x\nlog: gs://b\nlakes: {}\n")
    result = runner.invoke(cli, ["-c", "bad.yaml", "query", "SELECT 1"])
    assert result.exit_code == 2
    assert result.stderr.count("error: bad.yaml: ") == 3
    assert "did you mean 'source'?" in result.stderr


def test_config_schema_is_a_json_schema(runner: CliRunner) -> None:
    result = runner.invoke(cli, ["config", "schema"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["properties"]["groups"]


def test_query_renders_text_and_json(runner: CliRunner, tmp_path: Path) -> None:
    from headwater.ducklake.extension import attach, connect
    from headwater.ducklake.url import SqliteUrl

    with connect() as con:
        attach(con, SqliteUrl(f"{tmp_path}/lake.sqlite"), "lake", data_path=f"{tmp_path}/lake")
        con.execute("CREATE SCHEMA lake.public")
        con.execute("CREATE TABLE lake.public.orders AS SELECT 7 AS id, 'new' AS status")
    lake = '{ducklake: "sqlite:///lake.sqlite", data_path: lake}'
    Path("headwater.yaml").write_text(f"source: postgresql://db\nlog: log\nlakes: {{main: {lake}}}\n")
    text = runner.invoke(cli, ["query", "FROM main.public.orders"])
    assert (text.exit_code, text.stdout) == (0, "id  status\n--  ------\n 7  new\n")
    rows = runner.invoke(cli, ["query", "FROM public.orders", "--json"])
    assert json.loads(rows.stdout) == [{"id": 7, "status": "new"}]
    refused = runner.invoke(cli, ["query", "DELETE FROM public.orders"])
    assert refused.exit_code == 2
    assert "only reads" in refused.stderr


def test_a_demo_in_a_folder_of_others_is_refused(runner: CliRunner) -> None:
    Path("mine").mkdir()
    Path("mine/file").write_text("")
    result = runner.invoke(cli, ["demo", "--dir", "mine"])
    assert result.exit_code == 2
    assert "not a folder of this demo" in result.stderr
