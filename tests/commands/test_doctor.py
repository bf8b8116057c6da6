"""The doctor, on this machine and on machines that lack something."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.commands.cli import cli
from headwater.commands.machine import Check, diagnose


def found(name: str, env: dict[str, str], config: Path | None = None) -> list[Check]:
    return [check for check in diagnose(env, config) if check.name == name]


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)
    return folder


def test_a_machine_that_runs_these_tests_is_well() -> None:
    assert [check for check in diagnose(os.environ, None) if not check.ok] == []


@pytest.mark.parametrize(
    ("version", "ok"), [("1.8.0_292", False), ("11.0.2", False), ("17.0.1", True), ("21", True), ("24-ea", True)]
)
def test_java_must_be_17_or_newer(tmp_path: Path, version: str, ok: bool) -> None:
    home = fake_java(tmp_path, version)
    env = {"JAVA_HOME": str(home)} if "." in version else {"PATH": f"{home}/bin:/usr/bin:/bin"}
    (check,) = found("java", env)
    assert check.ok is ok
    assert ("install Java 17" in check.hint) is not ok


@pytest.mark.parametrize("env", [{"PATH": "/nowhere"}, {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}])
def test_without_java_the_doctor_says_what_to_install(env: dict[str, str]) -> None:
    (check,) = found("java", env)
    assert not check.ok
    assert "apt install" in check.hint


def test_the_mistakes_in_a_config_are_among_its_findings(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("sorce: x\n")
    checks = found("config", dict(os.environ), tmp_path / "bad.yaml")
    assert len(checks) == 4  # sorce, and three that are missing
    assert not any(check.ok for check in checks)


def test_folders_that_cannot_be_written_are_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # not a folder: cannot be written, even by root
    lake = '{ducklake: "sqlite:///file/lake.sqlite", data_path: good/lake}'
    (tmp_path / "headwater.yaml").write_text(f"source: postgresql://db\nlog: file/log\nlakes: {{main: {lake}}}\n")
    checks = {check.name: check for check in diagnose(os.environ, tmp_path / "headwater.yaml")}
    assert checks["config"].ok
    assert not checks["log"].ok
    assert not checks["catalog of main"].ok
    assert checks["lake main"].ok
    assert not (tmp_path / "good").exists()  # looking changes nothing


def test_the_command_ends_with_1_and_json_when_something_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    well = CliRunner().invoke(cli, ["doctor"])
    assert well.exit_code == 0
    assert "java" in well.stdout
    (tmp_path / "headwater.yaml").write_text("sorce: x\n")
    ill = CliRunner().invoke(cli, ["doctor", "--json"])
    assert ill.exit_code == 1
    assert "error: this machine is not ready: config" in ill.stderr
    assert {"name", "ok", "found", "hint"} == set(json.loads(ill.stdout)[0])
