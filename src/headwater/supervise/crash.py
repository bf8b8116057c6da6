"""A bug of ours: its traceback goes into a file that can be reported, without secrets."""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
import tempfile
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from headwater import __version__
from headwater.logs import redact

__all__ = ["BUG", "report"]

BUG = 70  # the exit code; EX_SOFTWARE of sysexits.h


def report(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """What to print about an unexpected error; the traceback is kept in a file that the text names."""
    what = redact(_headline(error), secrets)
    text = redact(_document(error), secrets)
    try:
        file = _keep(text, _fingerprint(error))
    except OSError:
        return f"{text}\nerror: {what}\nhint: this is a bug in Headwater; please report it with the traceback above"
    return (
        f"error: {what}\nhint: this is a bug in Headwater; please report it with the file {file}, which has the"
        " traceback without passwords, and with the log lines before it"
    )


def _headline(error: BaseException) -> str:
    return traceback.format_exception_only(error)[0].strip().split("\n")[0][:500]


def _document(error: BaseException) -> str:
    return "\n".join(
        [
            f"headwater {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, pid {os.getpid()}: {' '.join(sys.argv)}",
            "",
            *traceback.format_exception(error),
        ]
    )


def _fingerprint(error: BaseException) -> str:
    """The same for the same bug, so that a process that is started again and again does not fill the disk."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return hashlib.sha256(repr((type(error).__qualname__, frames)).encode()).hexdigest()[:12]


def _keep(text: str, name: str) -> Path:
    folder = Path(tempfile.gettempdir()) / f"headwater-crash-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(
            f"{folder} is not a folder of ours"
        )  # another user may have made it, to read what we write
    file = folder / f"{name}.txt"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as stream:
        stream.write(text)
    return file
