"""The process that serves the page, beside the others: whatever becomes of it, the mirror goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from headwater.supervise.children import LOOK_EVERY, Child, parent_gone, stop_all, stopped_by_signals

__all__ = ["GRACE", "ServerProcess", "server_child"]

logger = logging.getLogger(__name__)

GRACE = 8.0


class ServerProcess:
    """Within the block the child is looked after in a thread of its own: it is there before anything else is ready."""

    def __init__(self, child: Child | None) -> None:
        self._child = child  # None: the config has no server
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="server", daemon=True)

    def __enter__(self) -> Self:
        if self._child is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._child is not None:
            self._ending.set()
            self._thread.join()
            stop_all([[self._child]])

    def leads(self) -> None:
        """Tell it that this run has the groups now."""
        if self._child is not None:
            with self._lock:
                self._child.tell()

    def _watch(self) -> None:
        assert self._child is not None
        while not self._ending.is_set():
            with self._lock:
                self._child.look()
            self._ending.wait(LOOK_EVERY)


def server_child(serve: Callable[[threading.Event, threading.Event], None], *, wait: bool) -> int:
    """The body of the process: `serve` takes what stops it, and what says that its run has the groups."""
    leads = threading.Event()
    if not wait:
        leads.set()
    with stopped_by_signals() as stop:
        parent_gone(stop, GRACE, leads)
        serve(stop, leads)
    return 0
