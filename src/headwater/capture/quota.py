"""Staging no more than the log has room for: the writer waits, and says so, until there is room again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa

from headwater.capture.staging import Staging
from headwater.errors import HeadwaterError, LogFull
from headwater.state import State
from headwater.words import duration_text

__all__ = ["GivenUp", "Quota", "Room", "Unlimited"]

_logger = logging.getLogger("headwater.capture")
_LOOK_EVERY = 0.5  # seconds between looks for room
_REPORT_EVERY = 300.0


class Room(Protocol):
    """How much the log may grow."""

    def grant(self, staged: int, *, waited: bool) -> float:
        """Make what room there is; how many bytes may be staged now, more than 0. LogFull: none.

        `staged` bytes are in files that are not registered yet. Whoever has `waited` waits on until there is more
        than a little room.
        """


class GivenUp(Exception):
    """The log is full, and capture stops: what is not registered, the source will send again."""


class Unlimited:
    """A log that may grow as the disk allows."""

    def grant(self, staged: int, *, waited: bool) -> float:  # noqa: ARG002
        return float("inf")


class Quota:
    """Stages files, each after the log has room for it. One that is larger than the room is the last for now.

    `alive` raises when the source has gone: nothing is read from its connection meanwhile, which would show it.
    """

    def __init__(self, state: State, log: Staging[Any], group: str, room: Room, alive: Callable[[], None]) -> None:
        self._log, self._room, self._alive = log, room, alive
        self._report = _Report(state, group)
        self._granted = 0.0
        self._given_up = threading.Event()
        self.waits = False

    def stage(self, columns: Mapping[str, pa.Array], staged: Callable[[], int]) -> Any:
        """Stage a file once there is room; `staged` counts what is not registered yet. Waits for as long as it takes.

        GivenUp if `give_up` has ended the wait.
        """
        if self._granted <= 0:
            self._granted = self._grant(staged)
        file = self._log.stage(columns)
        self._granted -= file.file_bytes
        return file

    def give_up(self) -> None:
        """Do not wait any longer."""
        self._given_up.set()

    def _grant(self, staged: Callable[[], int]) -> float:
        try:
            return self._room.grant(staged(), waited=False)
        except LogFull as full:
            return self._wait(full, staged)

    def _wait(self, full: LogFull, staged: Callable[[], int]) -> float:
        self.waits = True
        try:
            while True:
                self._report.full(full)
                if self._given_up.wait(_LOOK_EVERY):
                    raise GivenUp
                self._alive()
                try:
                    return self._room.grant(staged(), waited=True)
                except LogFull as still:
                    full = still
        finally:
            self.waits = False
            self._report.over()


class _Report:
    """Tells of a full log: in the state while it lasts, and in the program's log at once and every few minutes."""

    def __init__(self, state: State, group: str) -> None:
        self._state, self._group = state, group
        self._noted: str | None = None
        self._logged = float("-inf")
        self._began: float | None = None  # of a wait that was logged

    def full(self, error: LogFull) -> None:
        now = time.monotonic()
        if str(error) != self._noted:
            self._state.record_error(self._group, "capture", str(error))
            self._noted = str(error)
        if now - self._logged >= _REPORT_EVERY:  # also if there was room in between: deliveries may be just too slow
            _logger.error("%s", error)
            self._logged, self._began = now, self._began or now

    def over(self) -> None:
        if self._began is not None:
            waited = duration_text(time.monotonic() - self._began)
            _logger.warning("the log of group %r was full for %s: capture no longer waits", self._group, waited)
        self._noted = self._began = None
        with suppress(HeadwaterError):  # else the next session does it
            self._state.record_error(self._group, "capture", None)
