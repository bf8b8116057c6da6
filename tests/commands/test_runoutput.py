"""Where a run's log goes, and what stays on the terminal."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.terminals import Terminal

PROGRAM = """
import logging, subprocess, sys
from pathlib import Path
from headwater.commands.options import Options
from headwater.commands.runoutput import into_file
from headwater.errors import ConfigError
from headwater.logs import configure

with into_file(Path(sys.argv[1])) as terminal:
    configure("text")
    print("for people", file=terminal, flush=True)
    logging.getLogger("headwater").warning("from the log")
    print("printed by a library")
    subprocess.run([sys.executable, "-c", "import sys; print('said by a child', file=sys.stderr)"], check=True)
print("after it")
"""
CONFIG = """
source: {source}
log: ./log
lakes: {{main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}}}
groups: {{shop: {{lake: main, tables: [public.orders]}}}}
"""
NOWHERE = "postgresql://app@127.0.0.1:1/none"


def run(file: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "headwater", "-c", str(file), "run", *options]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "headwater.yaml"
    file.write_text(CONFIG.format(source=NOWHERE))
    return file


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "headwater.log"


def test_what_the_process_and_its_children_say_goes_into_the_file_and_nothing_else(log: Path) -> None:
    log.write_text("of an earlier run\n")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(log)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("for people\nafter it\n", "")
    first, *said = log.read_text().splitlines()
    assert first == "of an earlier run"
    assert "WARNING headwater: from the log" in said[0]
    assert sorted(said[1:]) == ["printed by a library", "said by a child"]


def test_on_a_terminal_an_error_is_shown_there_and_the_log_is_beside_the_config(config: Path, log: Path) -> None:
    with closing(Terminal(run(config))) as terminal:
        assert terminal.end(60) == 3
    shown = terminal.text.splitlines()
    assert shown[0] == f"the log of this run is {log}"
    assert "error: cannot reach" in terminal.text
    assert any(line.startswith("ended after") and line.endswith(f"the log is {log}") for line in shown)
    assert "checking the source and the lakes" in log.read_text()
    assert "\x1b[" not in log.read_text()
    assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l")  # the cursor is there again


@pytest.mark.parametrize("format", ["text", "json"])
def test_with_a_format_the_log_is_on_the_terminal_as_before(config: Path, log: Path, format: str) -> None:
    with closing(Terminal(run(config, "--log-format", format))) as terminal:
        assert terminal.end(60) == 3
    assert "checking the source and the lakes" in terminal.text
    assert "the log of this run" not in terminal.text
    assert not log.exists()


def test_without_a_terminal_the_log_is_standard_error(config: Path, log: Path) -> None:
    done = subprocess.run(run(config), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "checking the source and the lakes" in done.stderr
    assert not log.exists()


def test_a_log_file_can_be_named_without_a_terminal_too(config: Path, log: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.log"
    options = ("--log-format", "json", "--log-file", str(mine))
    done = subprocess.run(run(config, *options), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stdout.splitlines()[0] == f"the log of this run is {mine}"
    assert "error: cannot reach" in done.stderr
    assert '"message": "checking the source and the lakes' in mine.read_text()
    assert not log.exists()


def test_a_log_file_that_cannot_be_written_is_refused_with_what_to_do(config: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "no such folder" / "headwater.log"
    done = subprocess.run(run(config, "--log-file", str(wrong)), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"the log cannot be written to {str(wrong)!r}: No such file or directory" in done.stderr
    assert "--log-file" in done.stderr
    assert done.stdout == ""
