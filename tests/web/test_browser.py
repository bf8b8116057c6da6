"""CI never skips the tests of the page: without a Chromium it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.web.browser import chromium

ROOT = Path(__file__).parents[2]
NEEDED = ("bash", "dirname", "id", "make", "echo")


@pytest.mark.parametrize(("ci", "ends"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_without_chromium_tests_of_the_page_are_skipped_and_fail_in_ci(
    ci: str, ends: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(ends, match="there is no Chromium"):
        chromium()


@pytest.mark.parametrize(("ci", "code", "said"), [("true", 1, "error: there is no Chromium"), ("", 0, "tested")])
def test_ci_does_not_begin_without_chromium(ci: str, code: int, said: str, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    for folder in (programs, tmp_path / ".ci"):
        folder.mkdir()
    for name in NEEDED:
        (programs / name).symlink_to(shutil.which(name) or name)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "Makefile").write_text("test:\n\t@echo tested\n")
    env = {name: each for name, each in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        [tmp_path / ".ci" / "run"],
        env=env | {"PATH": str(programs), "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert ("tested" in done.stdout) == (code == 0)
