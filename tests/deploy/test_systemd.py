"""The unit for systemd: it says what the program needs, and systemd understands it."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from headwater.commands.run import run
from headwater.errors import ConfigError, OperatorMustAct, Unreachable
from headwater.supervise.running import CAPTURE_GRACE, DELIVERY_GRACE

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "headwater.service"
ANALYZE = shutil.which("systemd-analyze")


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)  # strict: a key given twice is an error
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return dict(parser["Service"])


def test_the_unit_runs_a_command_that_there_is(service: dict[str, str]) -> None:
    _, option, file, command, *arguments = service["ExecStart"].split()
    assert (option, file, command) == ("-c", "/etc/headwater/headwater.yaml", "run")
    assert run.make_context("run", arguments, parent=None).params["role"] is None


def test_the_unit_starts_again_what_trying_again_may_help(service: dict[str, str]) -> None:
    final = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert service["Restart"] == "on-failure"
    assert final == {ConfigError.exit_code, OperatorMustAct.exit_code}
    assert Unreachable.exit_code not in final


def test_the_unit_leaves_time_for_a_drain(service: dict[str, str]) -> None:
    assert int(service["TimeoutStopSec"]) >= CAPTURE_GRACE + DELIVERY_GRACE + 15


def test_the_unit_may_write_where_it_works_and_nowhere_else(service: dict[str, str]) -> None:
    assert service["ProtectSystem"] == "strict"
    assert service["ReadWritePaths"] == service["WorkingDirectory"]
    assert service["User"] != "root"
    assert service["NoNewPrivileges"] == "yes"


@pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/headwater/bin/headwater", shutil.which("true") or ""))
    checked = subprocess.run([str(ANALYZE), "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
