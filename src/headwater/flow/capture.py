"""Source → log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, suppress

from headwater.capture.quota import Room
from headwater.capture.run import run_capture
from headwater.capture.watch import Watch
from headwater.errors import HeadwaterError, LockHeld, OperatorMustAct
from headwater.log import Log
from headwater.state import State

__all__ = ["capture"]


def capture(
    source_url: str,
    state: State,
    log: Log,
    stop: threading.Event,
    also: Callable[[], None] = lambda: None,
    *,
    look_every: float = 2.0,
    room: Room | None = None,
) -> None:
    """Source → log, until `stop` is set: durable and registered first, only then may PostgreSQL recycle its WAL.

    Beside it the source's catalog is watched, for changes without a row, with `look_every` seconds between two
    looks; `also` is called with each. Without `room` the log may grow as the disk allows.
    """
    with closing(Watch(source_url, state, log, log.group, also, every=look_every, failed=stop.set)) as watch:
        watch.start()
        run_capture(source_url, state, log, log.group, stop=stop, room=room)
    try:
        watch.check()
    except LockHeld:
        raise  # another process captures the group: nothing is wrong with it
    except OperatorMustAct as error:
        with suppress(HeadwaterError):
            state.record_error(log.group, "capture", str(error))
        raise
