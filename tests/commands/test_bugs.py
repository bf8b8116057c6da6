"""A bug of ours ends with 70 and leaves a traceback that can be reported; a reader that has gone is no bug."""

from __future__ import annotations

import logging
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.supervise.children import Child

# A real unexpected error, far from the command line: this name is not a failpoint's.
BUG = {"HEADWATER_FAILPOINT": "nowhere"}


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "temp").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder / "temp")} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_bug_ends_with_70_and_names_the_file_with_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "headwater.yaml").write_text("source: postgresql://app:t0psecret@db/shop\nlog: log\nlakes: {}\n")
    done = run(tmp_path, "_capture", "postgresql://app:t0psecret@db/shop", **BUG)
    assert done.returncode == 70
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ValueError: unknown failpoint 'nowhere'")
    assert "this is a bug in Headwater" in done.stderr
    (named,) = re.findall(r"\S+/headwater-crash\S*\.txt", done.stderr)
    assert Path(named).parent.parent == tmp_path / "temp"
    kept = Path(named).read_text()
    assert "Traceback (most recent call last):" in kept
    assert "ValueError: unknown failpoint 'nowhere'" in kept
    assert "_capture" in kept
    assert "t0psecret" not in kept + done.stderr
    assert stat.S_IMODE(Path(named).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(named).parent.stat().st_mode) == 0o700


def test_the_same_bug_again_takes_the_same_file(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(tmp_path, "_capture", "g", **BUG).returncode == 70
    assert len(list((tmp_path / "temp").rglob("*.txt"))) == 1


def test_a_bug_without_a_place_for_its_file_shows_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "temp").mkdir()
    (tmp_path / "temp" / f"headwater-crash-{os.getuid()}").symlink_to(tmp_path)  # not ours to write to
    done = run(tmp_path, "_capture", "g", **BUG)
    assert done.returncode == 70
    assert "Traceback (most recent call last):" in done.stderr
    assert list(tmp_path.glob("*.txt")) == []


def test_a_child_that_meets_a_bug_is_started_again_and_the_log_says_that_it_was_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = Child("capture g", ["_capture", "g"], 1, os.environ | BUG | {"TMPDIR": str(tmp_path)})
    deadline = time.monotonic() + 60
    with caplog.at_level(logging.WARNING):
        child.start()
        while not child.restart_at and time.monotonic() < deadline:
            child.look()
            time.sleep(0.05)
    assert (child.gave_up, child.restart_at > 0) == (None, True)
    (reported,) = [record for record in caplog.records if "ended with 70" in record.message]
    assert reported.levelno == logging.ERROR
    assert "a bug in Headwater" in reported.message


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_reader_that_has_seen_enough_ends_a_query_quietly(tmp_path: Path, json: list[str]) -> None:
    from headwater.ducklake.extension import attach, connect
    from headwater.ducklake.url import SqliteUrl

    with connect() as con:
        attach(con, SqliteUrl(f"{tmp_path}/lake.sqlite"), "lake", data_path=f"{tmp_path}/lake")
    lake = '{ducklake: "sqlite:///lake.sqlite", data_path: lake}'
    (tmp_path / "headwater.yaml").write_text(f"source: postgresql://db\nlog: log\nlakes: {{main: {lake}}}\n")
    with subprocess.Popen(
        [sys.executable, "-m", "headwater", "query", "FROM range(200000)", *json],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() in (0, 141)  # 0: the last bytes went just before
