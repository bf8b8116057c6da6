"""Listening for requests: a connection of its own, on which the server says that there is something to look at."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from psycopg import sql

from headwater.errors import HeadwaterError, Unreachable
from headwater.postgres.connect import Connection, connect, translated

__all__ = ["Listener"]

_SLICE = 0.25  # seconds: how late it may see that it is to stop
_RETRY = 1.0  # seconds between two attempts to connect


class Listener:
    """Waits for notifications. To be used by one thread; `stop` ends its waiting from another one.

    What was notified while there was no connection is lost, so a new connection counts as a notification: look at the
    requests then, too.
    """

    def __init__(self, url: str, channel: str = "headwater", stop: threading.Event | None = None) -> None:
        self._url, self._channel = url, channel
        self._stop = stop or threading.Event()
        self._connection: Connection | None = None

    def wait(self, timeout: float) -> bool:
        """Whether there was a notification within so many seconds; False at once when `stop` is set."""
        deadline = time.monotonic() + timeout
        while not self._stop.is_set():
            left = deadline - time.monotonic()
            try:
                if self._opened() or self._notified(max(0.0, min(left, _SLICE))):
                    return True
            except Unreachable:
                self.close()
                self._stop.wait(max(0.0, min(left, _RETRY)))
            except HeadwaterError:
                self.close()
                raise
            if time.monotonic() >= deadline:
                break
        return False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _opened(self) -> bool:
        """Whether the connection had to be opened just now."""
        if self._connection is not None:
            return False
        self._connection = connect(self._url, application_name=f"headwater listener {self._channel}")
        with translated(self._url):
            self._connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        return True

    def _notified(self, seconds: float) -> bool:
        """Whether anything was notified; what came with it is one thing to look at."""
        assert self._connection is not None
        with translated(self._url):
            return len(list(self._connection.notifies(timeout=seconds, stop_after=1))) > 0
