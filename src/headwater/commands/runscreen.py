"""The live page of `headwater run`, drawn by a thread."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import psycopg
from rich.console import Console
from rich.live import Live

from headwater.commands.runview import DELIVERIES, Rates, RunLook, page
from headwater.config import Config
from headwater.errors import ConfigError, HeadwaterError
from headwater.logs import redact
from headwater.state import State
from headwater.status import open_status
from headwater.supervise.effective import with_state
from headwater.supervise.running import STOPPING

__all__ = ["Screen"]

LOOK_EVERY = 1.0
REOPEN_EVERY = 30.0  # seconds: groups may have come and gone
WIDTH, HEIGHT = 80, 25  # of a terminal that does not say
LEAVE_AFTER = 2.0  # what the state does not answer by then is not shown any more


class Screen(logging.Handler):
    """Draws the page of a run once a second, beside the supervisor, whose last line of the log is in it."""

    def __init__(self, config: Config, env: Mapping[str, str], terminal: TextIO, log: Path) -> None:
        super().__init__(logging.INFO)
        self._config, self._env, self._terminal = config, env, terminal
        self._look, self._said = RunLook(0.0, str(log)), ""
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._console = Console(file=terminal)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._thread = threading.Thread(target=self._draw, name="screen", daemon=True)

    def __enter__(self) -> Screen:
        logging.getLogger("headwater").addHandler(self)
        self._live.start()
        self._show()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("headwater").removeHandler(self)
        self._stop.set()
        self._thread.join(LEAVE_AFTER)
        self._live.stop()

    def emit(self, record: logging.LogRecord) -> None:
        self._said = redact(record.getMessage(), self._config.secrets()).partition("\n")[0]

    def _draw(self) -> None:
        while not self._stop.is_set():
            try:
                self._draw_for_a_while()
            except (ConfigError, psycopg.ProgrammingError):
                self._show()  # nothing has run yet, or an older program: the schema is being brought up to date
            except HeadwaterError as error:
                self._show(problem=redact(str(error), self._config.secrets()))
            self._stop.wait(LOOK_EVERY)

    def _draw_for_a_while(self) -> None:
        rates, until = Rates(), time.monotonic() + REOPEN_EVERY
        with (
            open_status(with_state(self._config, disabled=False), self._env) as ask,
            closing(State.connect(self._config.state_url)) as state,
        ):
            while not self._stop.is_set() and time.monotonic() < until:
                status, deliveries = ask(), state.deliveries(limit=DELIVERIES)
                changes = rates.of(time.monotonic(), status)
                self._look = replace(self._look, status=status, rates=changes, deliveries=deliveries)
                self._show()
                self._stop.wait(LOOK_EVERY)

    def _show(self, problem: str | None = None) -> None:
        elapsed = time.monotonic() - self._began
        stopping = self._look.stopping or self._said == STOPPING
        self._look = replace(self._look, elapsed=elapsed, said=self._said, stopping=stopping, problem=problem)
        if not self._stop.is_set():
            size = os.get_terminal_size(self._terminal.fileno())  # rich would ask our standard output, which is the log
            self._console.size = size.columns or WIDTH, size.lines or HEIGHT
            self._live.update(page(self._look, self._console.height), refresh=True)
