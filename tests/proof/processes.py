"""Real processes for the proofs: `headwater` commands, a run that is disturbed and ended, and who is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

__all__ = ["Run", "command", "gone", "headwater", "headwater_json", "wait_for"]

Answer = TypeVar("Answer")


def command(file: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "headwater", "-c", str(file), *arguments]


def headwater(
    file: Path, *arguments: str, environment: Mapping[str, str] | None = None, timeout: float = 200
) -> tuple[int, str]:
    """Run one command to its end: its exit code, and all that it said."""
    done = subprocess.run(
        command(file, *arguments),
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout


def headwater_json(file: Path, *arguments: str) -> tuple[int, Any]:
    """Run one command with --json to its end: its exit code, and what a script reads from standard output."""
    done = subprocess.run(command(file, *arguments, "--json"), capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def wait_for(ask: Callable[[], Answer], what: str, seconds: float = 120) -> Answer:
    """Ask again and again until the answer is a true one."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"{what}: not in {seconds:.0f} s"
        time.sleep(0.05)
    return answer


class Run:
    """`headwater run` in the background, and everything it starts: children, JVM, Python workers."""

    def __init__(self, file: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self._output = file.with_suffix(f".{time.monotonic_ns()}.log")
        with self._output.open("wb") as output:
            self.process = psutil.Popen(
                command(file, "--log-format", "json", "run", *options),
                env=os.environ | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def said(self) -> str:
        return self._output.read_text()

    def family(self) -> list[psutil.Process]:
        """The run itself, then its descendants."""
        return [self.process, *self.process.children(recursive=True)]

    def member(self, part: str) -> psutil.Process:
        """The youngest descendant with this word in its command line."""
        found = [each for each in self.family() if any(part in word for word in _words(each))]
        assert found, f"no {part!r} among {[_words(each)[:6] for each in self.family()]}"
        return max(found, key=lambda each: each.create_time())

    def kill(self) -> None:
        """kill -9 of everything, at once."""
        for each in self.family():
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait(10)


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess):
        return list(process.cmdline())
    return []


def gone(process: psutil.Process) -> bool:
    """Whether it has ended; a zombie, whose exit code no parent has collected, has ended too."""
    with suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True
