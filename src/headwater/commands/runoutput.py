"""How a run shows what happens: by its log alone, or by a live page on the terminal and the log in a file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from headwater.commands.options import Options
from headwater.config import DEFAULT_FILE, Config
from headwater.errors import ConfigError
from headwater.logs import configure
from headwater.words import duration_text

__all__ = ["Ended", "into_file", "shown"]

DEFAULT_LOG = "headwater.log"  # beside the config
END_OF_LOG = 5  # lines that are shown when a run ends badly


@dataclass(slots=True)
class Ended:
    """How the run has ended; None: by an error, which is shown by whoever called it."""

    code: int | None = None


@contextmanager
def shown(options: Options, config: Config, log_file: Path | None) -> Iterator[Ended]:
    """Inside, what happens is shown; what is yielded is to know how it ended.

    A live page needs a terminal. The log is there instead if a format was asked for, unless a file was, too.
    """
    ended, begun = Ended(), time.monotonic()
    on_terminal = sys.stdout.isatty() and sys.stderr.isatty()
    if log_file is None and on_terminal and options.given_format is None:
        log_file = (options.file or DEFAULT_FILE).parent / DEFAULT_LOG
    if log_file is None:
        yield ended
        return
    with into_file(log_file) as terminal:
        print(f"the log of this run is {log_file}", file=terminal, flush=True)
        configure(options.log_format, options.secrets)  # without colours
        try:
            with _screen(config, terminal, log_file) if on_terminal else nullcontext():
                yield ended
        finally:
            print(_last_words(ended.code, time.monotonic() - begun, log_file), file=terminal, flush=True)


def _screen(config: Config, terminal: TextIO, log_file: Path) -> AbstractContextManager[object]:
    from headwater.commands.runscreen import Screen  # only now: it takes a second

    return Screen(config, os.environ, terminal, log_file)


@contextmanager
def into_file(path: Path) -> Iterator[TextIO]:
    """Inside, what this process and those that it starts say goes into the file; yields standard output as it was."""
    try:
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise ConfigError(
            f"the log cannot be written to {str(path)!r}: {error.strerror}",
            hint="name another file with --log-file, or have the log on the terminal with --log-format text",
        ) from error
    _flush()
    before = {stream: os.dup(stream) for stream in (1, 2)}  # which children do not inherit
    for stream in before:
        os.dup2(log, stream)
    os.close(log)
    try:
        with open(os.dup(before[1]), "w", encoding=sys.stdout.encoding, errors="replace") as terminal:
            yield terminal
    finally:
        _flush()
        for stream, kept in before.items():
            os.dup2(kept, stream)
            os.close(kept)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _last_words(code: int | None, seconds: float, log: Path) -> str:
    """What stays on the terminal."""
    how = "ended" if code is None else f"ended with exit code {code}" if code else "stopped"
    end = "\n".join(["", *log.read_text(errors="replace").splitlines()[-END_OF_LOG:]]) if code else ""
    return f"{how} after {duration_text(seconds)}; the log is {log}{end}"
