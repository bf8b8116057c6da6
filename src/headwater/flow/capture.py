"""Source → log."""

from __future__ import annotations

import threading

from headwater.capture import run_capture
from headwater.log import Log
from headwater.state import State

__all__ = ["capture"]


def capture(source_url: str, state: State, log: Log, stop: threading.Event) -> None:
    """Source → log, until told to stop: durable and registered first, only then may PostgreSQL recycle its WAL."""
    run_capture(source_url, state, log, log.group, stop=stop)
