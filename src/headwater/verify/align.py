"""Bring the lake to exactly the position of an exported snapshot of the source, while writes go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from headwater.capture.pending import has_pending_changes
from headwater.change import Lsn
from headwater.errors import Unreachable
from headwater.flow import Mirroring
from headwater.state.waiting import ask_for, running

__all__ = ["aligned"]


@contextmanager
def aligned(m: Mirroring, at: Lsn, patience: float) -> Iterator[int | None]:
    """The snapshot of the lake that shows the source at `at`; None if a delivery went past it before it was asked.

    A running delivery is asked to make a snapshot exactly there. Without one nothing moves the lake, so it must be
    there already, and no delivery can start until the block ends.
    """
    with ExitStack() as held:
        if running(m.state, m.group):
            fence = ask_for(m.state, m.group, at, patience)
            exact = fence.reached_lsn is not None and fence.reached_lsn <= at
            snapshot = fence.reached_snapshot if exact else None
        else:
            held.enter_context(m.state.lock(f"deliver:{m.group}"))
            _nothing_pending(m, at, patience)
            snapshot = m.sink.plan().snapshot_id
        yield snapshot


def _nothing_pending(m: Mirroring, at: Lsn, patience: float) -> None:
    moving = {row.oid for row in m.state.tables(m.group) if row.state in ("CATCHUP", "STREAMING")}
    start = min((each.position for oid, each in m.sink.standings().items() if oid in moving), default=at)
    deadline = time.monotonic() + patience
    pending = _pending(m, start, at)
    if pending is None:  # the capture of a run that was killed is still there: have it record soon how far it is
        m.state.add_fence(m.group, at, patience)
    while pending is None and time.monotonic() < deadline:
        time.sleep(0.1)
        pending = _pending(m, start, at)
    if pending is not False:
        raise Unreachable(
            f"the lake of group {m.group!r} is at {start}, the source is ahead, and nothing delivers",
            hint="run `headwater run --until-caught-up`, or verify while `headwater run` is running",
        )


def _pending(m: Mirroring, start: Lsn, at: Lsn) -> bool | None:
    """Is anything between the two positions that the lake does not have? None: it is not known yet."""
    captured = m.log.end() >= at  # before the log is read: what is registered meanwhile is seen
    if m.log.read(start, at).segments:
        return True
    row = m.state.group(m.group)
    if captured or row is None:
        return False
    return has_pending_changes(m.source_url, row.slot, row.publication, at)
