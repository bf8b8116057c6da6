"""A program on a terminal of its own, as a person has it: what it shows, keys that are pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

__all__ = ["Terminal"]

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# In a session of its own, the terminal becomes the one whose Ctrl-C it gets.
_LAUNCH = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    """Runs a command until it ends; `close` kills it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, *command],
            env={**os.environ, "TERM": "xterm-256color", **(environment or {})},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.raw = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def text(self) -> str:
        """Everything that was ever shown, without colours and movements."""
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self, seconds: float) -> int:
        """Wait for its end: the exit code."""
        code = self.process.wait(seconds)
        self._reader.join(10)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        os.close(self._master)

    def _read(self) -> None:
        with suppress(OSError):  # which is how the end of the other side looks
            while data := os.read(self._master, 65536):
                self.raw += data.decode(errors="replace")
