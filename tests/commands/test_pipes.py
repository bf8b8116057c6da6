"""A reader that has seen enough, or a stream that was never open, ends nothing with noise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from headwater.config import Config
from headwater.supervise.opening import open_state
from headwater.supervise.readying import make_ready

HEADWATER = f"{sys.executable} -m headwater"
NO_READER = 141


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Path:
    """A folder whose config has been made ready, but has not run."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    lake = "{ducklake: 'sqlite:///lake.sqlite', data_path: lake}"
    text = f"source: {database}\nlog: log\nlakes: {{main: {lake}}}\ngroups: {{g: {{tables: [public.orders]}}}}\n"
    (tmp_path / "headwater.yaml").write_text(text)
    config = Config.load(tmp_path / "headwater.yaml", {})
    state = open_state(config)
    make_ready(config, state)
    state.close()
    return tmp_path


def shell(folder: Path, line: str) -> tuple[int, str, str]:
    """The exit code of the first command of a pipeline, and what was said on both streams."""
    done = subprocess.run(
        ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["status", "status --watch"])
def test_a_reader_that_has_seen_enough_ends_a_command_quietly(shop: Path, command: str) -> None:
    code, out, err = shell(shop, f"{HEADWATER} {command} | head -c 1")
    assert (len(out), err) == (1, "")
    assert code in ((NO_READER,) if "--watch" in command else (0, NO_READER))


@pytest.mark.parametrize("command", ["status --check", "check --sql"])
def test_a_reader_that_never_read_ends_a_command_quietly(shop: Path, command: str) -> None:
    _, out, err = shell(shop, f"{HEADWATER} {command} | true")
    assert out == ""
    assert "Exception ignored" not in err
    assert "bug in Headwater" not in err


def test_that_nothing_reads_the_errors_does_not_change_the_exit_code(shop: Path) -> None:
    assert shell(shop, f"{HEADWATER} query 'SELECT nothing' 2> >(true)") == (3, "", "")  # there is no lake yet
    assert shell(shop, f"{HEADWATER} -c none.yaml check 2>&1 | true") == (2, "", "")


@pytest.mark.parametrize(
    ("closed", "command", "code"),
    [
        ("2>&-", "status", 0),
        ("<&- >&- 2>&-", "status", 0),
        ("2>&-", "query 'SELECT nothing'", 3),
    ],
)
def test_a_closed_stream_does_not_change_the_exit_code(shop: Path, closed: str, command: str, code: int) -> None:
    ended, out, err = shell(shop, f"{HEADWATER} {command} {closed}")
    assert (ended, err) == (code, "")
    assert bool(out) == (code == 0 and ">&-" not in closed.replace("2>&-", ""))
