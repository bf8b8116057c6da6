"""`headwater run` as a process beside the demo: started, watched, restarted when it dies, stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from headwater.errors import CheckFailed

__all__ = ["MirrorProcess", "headwater"]

_GRACE = 60.0  # `run` itself drains for at most 30 s
_QUICK = 10.0  # a mirror that died earlier than this did not work at all
_TRIES = 5


def headwater(config: Path, *arguments: str) -> list[str]:
    """The command line of another `headwater` on the same config."""
    return [sys.executable, "-m", "headwater", "-c", str(config), *arguments]


class MirrorProcess:
    """The mirror of one demo folder. After a `kill -9` it is started again, and goes on where it was."""

    def __init__(self, config: Path) -> None:
        self.log = config.parent / "headwater.log"
        self.restarts = 0
        self._pid_file = config.parent / "mirror.pid"
        self._config = config
        self._failures = 0
        _end_leftover(self._pid_file, config)
        self._process, self._started = self._start(), time.monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid

    def look(self) -> None:
        """Start it again if it has died; CheckFailed if it keeps dying."""
        code = self._process.poll()
        if code is None:
            return
        self._failures = self._failures + 1 if time.monotonic() - self._started < _QUICK else 1
        if self._failures >= _TRIES or code == 2:
            raise CheckFailed(f"the mirror ended with {code}:\n{self._end_of_log()}", hint=f"see {self.log}")
        time.sleep(1)
        self.restarts += 1
        self._process, self._started = self._start(), time.monotonic()

    def stop(self) -> None:
        """Ask it to drain and end; kill it if it does not."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._pid_file.unlink(missing_ok=True)

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                headwater(self._config, "run"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is for the demo, which stops things in order
            )
        self._pid_file.write_text(str(process.pid))
        return process

    def _end_of_log(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


def _end_leftover(pid_file: Path, config: Path) -> None:
    """After a `kill -9` of the demo its mirror lives on: end it, but never another process with the same pid."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        deadline = time.monotonic() + _GRACE
        while str(config).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
            time.sleep(0.5)
