"""`-c` and `--log-format` stand before the command or after it, as people type them."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from headwater.commands.cli import cli
from headwater.commands.options import Options, common_options

WITH_A_CONFIG = [
    ["doctor"],
    ["check"],
    ["run"],
    ["status"],
    ["verify"],
    ["query"],
    ["maintain"],
    ["group", "list"],
    ["group", "drop"],
    ["config", "schema"],
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"{name}: 1\n")
    return tmp_path


def said(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize("command", WITH_A_CONFIG, ids=" ".join)
def test_the_help_of_a_command_shows_both(command: list[str]) -> None:
    shown = said(*command, "--help").stdout
    assert "-c, --config FILE" in shown
    assert "--log-format [text|json]" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "a.yaml", "query", "SELECT 1"),
        ("query", "-c", "a.yaml", "SELECT 1"),
        ("query", "SELECT 1", "--config", "a.yaml"),
        ("-c", "a.yaml", "query", "SELECT 1", "-c", "./a.yaml"),
        ("group", "list", "-c", "a.yaml"),
        ("group", "-c", "a.yaml", "list"),
    ],
)
def test_the_config_is_named_before_or_after_the_command(arguments: tuple[str, ...]) -> None:
    done = said(*arguments)
    assert done.exit_code == 2
    assert "error: a.yaml: a: unknown key 'a'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("-c", "a.yaml", "check", "-c", "b.yaml"), "--config is 'a.yaml' before the command, and 'b.yaml' after it"),
        (("group", "-c", "a.yaml", "list", "-c", "b.yaml"), "'a.yaml' before the command, and 'b.yaml' after it"),
        (
            ("--log-format", "json", "run", "--log-format", "text"),
            "--log-format is 'json' before the command, and 'text' after it",
        ),
    ],
)
def test_two_different_values_are_wrong_usage(arguments: tuple[str, ...], reported: str) -> None:
    done = said(*arguments)
    assert done.exit_code == 2
    assert reported in done.stderr
    assert "unknown key" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [("--log-format", "json", "speak"), ("speak", "--log-format", "json"), ("speak",)]
)
def test_the_log_has_the_format_that_was_asked_for(folder: Path, arguments: tuple[str, ...]) -> None:
    @click.command()
    @common_options
    @click.pass_obj
    def speak(options: Options) -> None:
        options.config()
        logging.getLogger("headwater.test").warning("something happened")

    (folder / "headwater.yaml").write_text("source: postgresql://db/shop\nlog: log\nlakes: {}\n")
    program = type(cli)("headwater", callback=cli.callback, params=cli.params)
    program.add_command(speak)
    reported = CliRunner().invoke(program, arguments).stderr
    if len(arguments) == 1:
        assert reported.endswith(" WARNING headwater.test: something happened\n")
    else:
        assert json.loads(reported)["message"] == "something happened"


def test_every_command_that_reads_a_config_is_among_these() -> None:
    verbs = {name for name, each in cli.commands.items() if not each.hidden and not isinstance(each, click.Group)}
    assert verbs - {"demo", "init"} == {name for name, *more in WITH_A_CONFIG if not more}
