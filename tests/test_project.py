"""The project's own promises: its lock, its make targets, its public names."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import headwater

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = [module.name for module in pkgutil.walk_packages(headwater.__path__, "headwater.")]


def locked() -> dict[str, list[Version]]:
    """Versions by name; one that differs between Pythons has several."""
    found: dict[str, list[Version]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if not line.startswith("#"):
            requirement = Requirement(line)
            (pin,) = requirement.specifier
            assert pin.operator == "=="
            found.setdefault(requirement.name.lower(), []).append(Version(pin.version))
    return found


def test_the_lock_pins_everything_the_project_asks_for() -> None:
    wanted = [
        *PROJECT["dependencies"],
        *(each for extra in PROJECT["optional-dependencies"].values() for each in extra),
    ]
    versions = locked()
    for requirement in map(Requirement, wanted):
        if requirement.name != PROJECT["name"]:
            assert versions[requirement.name.lower()]
            assert all(requirement.specifier.contains(each) for each in versions[requirement.name.lower()]), requirement


def test_the_lock_names_no_place_to_download_from() -> None:
    assert re.findall(r"://|--|@|/", (ROOT / "requirements.lock").read_text()) == []


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_what_a_module_lists_as_public_is_there(name: str) -> None:
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", None)
    assert listed is None or sorted(set(listed)) == sorted(listed)
    assert [each for each in listed or () if not hasattr(module, each)] == []


def test_no_module_is_too_long_to_read() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / "src").rglob("*.py")}
    assert {path: length for path, length in lengths.items() if length > 500} == {}


def test_ci_runs_what_developers_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def make(folder: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    # Without make's own variables: these tests are run by make.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "JAVA_HOME"))}
    command = [shutil.which("make") or "make", *arguments]
    env["PATH"] = path or env["PATH"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in a folder with a space in its name, as far as `make setup` looks at it."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def test_make_alone_lists_the_targets(checkout: Path) -> None:
    listed = make(checkout).stdout
    for target in ("setup", "demo", "check", "test", "bench", "soak", "clean"):
        assert re.search(rf"^  {target} ", listed, re.MULTILINE)


def test_setup_is_silent_when_nothing_changed(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".installed").touch()
    done = make(checkout, "setup")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_setup_without_a_new_enough_python_says_so_in_one_line(checkout: Path) -> None:
    done = make(checkout, "setup", "PYTHON=no-such-python")
    assert done.returncode != 0
    assert done.stderr.splitlines()[0].startswith("error: Python 3.11 or newer is needed")
    assert not (checkout / ".venv").exists()


def test_setup_without_java_says_so_in_one_line(checkout: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "env", "rm", "touch"):
        (programs / name).symlink_to(shutil.which(name) or "")
    done = make(checkout, "setup", f"PYTHON={sys.executable}", path=str(programs))
    assert done.returncode != 0
    assert done.stderr.splitlines()[0].startswith("error: Java 17 or newer is needed")


def test_a_setup_that_failed_does_not_pass_for_done(checkout: Path) -> None:
    (checkout / "requirements.lock").write_text("./no-such-wheel-1.0-py3-none-any.whl\n")
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".installed").touch()
    os.utime(checkout / ".venv" / ".installed", (0, 0))  # as after a change of the lock
    assert make(checkout, "setup").returncode != 0
    assert not (checkout / ".venv" / ".installed").exists()
