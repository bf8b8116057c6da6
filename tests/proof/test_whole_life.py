"""A whole life, as docs/operations.md tells it: its commands are run to the letter, and print what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from headwater.testing.postgres import EmbeddedPostgres
from tests.proof.processes import gone, wait_for

DOCS = Path(__file__).parents[2] / "docs" / "operations.md"
SOURCE = "postgresql://app@db/shop"  # where the page has the source
FAST = {"fsync": "off", "full_page_writes": "off"}
END = "--- that was"


class Step(NamedTuple):
    """A command of the page, and what it prints; an ellipsis stands for what differs each time."""

    command: str
    printed: str


def steps() -> list[Step]:
    section = DOCS.read_text().split("\n## A whole life\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    found = [re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] for block in blocks]
    return [Step(*each.partition("\n")[::2]) for block in found for each in block]


def fits(printed: str, expected: str) -> bool:
    """An ellipsis is anything in a line, and a line of its own any lines; how wide columns are does not matter."""
    pattern = re.escape(_narrow(expected)).replace("…\\\n", "(.*\n)*?").replace("…", ".*")
    return re.fullmatch(pattern, _narrow(printed)) is not None


def _narrow(text: str) -> str:
    lines = [re.sub(r" {2,}", "  ", re.sub(r"-{2,}", "--", line)).strip() for line in text.strip().splitlines()]
    return "".join(f"{line}\n" for line in lines)


class Shell:
    """A bash whose `headwater` and `psql` lead to a server of the test's own."""

    def __init__(self, folder: Path, server: EmbeddedPostgres) -> None:
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute("CREATE ROLE app LOGIN SUPERUSER")
            admin.execute("CREATE DATABASE shop OWNER app")
        self._url = server.url("shop").replace("postgres@", "app@")
        where = {"PGHOST": str(conninfo_to_dict(self._url)["host"]), "PGDATABASE": "shop", "PGUSER": "app"}
        programs = [str(Path(sys.executable).parent), str(server.program("psql").parent), os.environ["PATH"]]
        work = folder / "work"
        work.mkdir()
        self.log = work / "run.log"
        self.process = psutil.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=work,
            env=os.environ | where | {"PATH": os.pathsep.join(programs)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def type(self, command: str) -> str:
        """What the command prints, with the page's address of the source."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command.replace(SOURCE, repr(self._url))}\necho '{END}'\n")
        self.process.stdin.flush()
        lines: list[str] = []
        while not (line := self.process.stdout.readline()).startswith(END):
            assert line, f"the shell has ended: {''.join(lines)}"
            lines.append(line)
        return "".join(lines).replace(self._url, SOURCE)

    def close(self) -> None:
        family = self.process.children(recursive=True)
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        self.process.kill()
        self.process.communicate(timeout=10)  # closes the pipes, too


@pytest.fixture
def shell() -> Iterator[Shell]:
    # Not tmp_path: the server's own user must be able to reach it when we run as root.
    with tempfile.TemporaryDirectory(prefix="headwater-life-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = EmbeddedPostgres(Path(folder) / "pg", settings=FAST).start()
        shell = Shell(Path(folder), server)
        yield shell
        shell.close()
        server.stop()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_commands_of_a_whole_life_print_what_the_page_says(shell: Shell) -> None:
    shown: list[str] = []
    for command, expected in steps():
        printed = shell.type(command)
        shown.append(f"$ {command}\n{printed}")
        log = shell.log.read_text()[-8000:] if shell.log.exists() else ""
        assert fits(printed, expected), f"expected:\n{expected}\n{''.join(shown)}\nrun.log:\n{log}"
    family = shell.process.children(recursive=True)
    wait_for(lambda: all(map(gone, family)), "no process is left", 60)


def test_the_page_has_every_part_of_a_life() -> None:
    commands = "\n".join(each.command for each in steps())
    verbs = ["init", "check", "run", "status", "maintain", "verify", "query", "table list"]
    verbs += [f"table {each}" for each in ("add", "pause", "resume", "resync", "move", "remove")]
    verbs += [f"group {each}" for each in ("create", "list", "drop")]
    assert [each for each in verbs if f"headwater {each}" not in commands] == []


@pytest.mark.parametrize(
    ("printed", "expected", "whether"),
    [
        ("a 12 b\n", "a … b\n", True),
        ("a 12 c\n", "a … b\n", False),
        ("a\nb\nc\nd\n", "a\n…\nd\n", True),
        ("a\nd\n", "a\n…\nd\n", True),
        ("a\nb\n", "a\n…\nd\n", False),
        ("x     y\n----- -\n", "x  y\n--- -\n", True),
        ("one\ntwo\n", "one\n", False),
    ],
)
def test_what_is_printed_is_compared_but_for_what_an_ellipsis_stands_for(
    printed: str, expected: str, whether: bool
) -> None:
    assert fits(printed, expected) is whether
