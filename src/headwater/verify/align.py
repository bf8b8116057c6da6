"""Bring the lake to exactly the position of an exported snapshot of the source, while writes go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from headwater.capture.pending import has_pending_changes
from headwater.change import Lsn
from headwater.errors import OperatorMustAct, Unreachable
from headwater.flow import Mirroring
from headwater.state import Fence, State

__all__ = ["aligned", "ask_for", "running"]

logger = logging.getLogger(__name__)

TELL_EVERY = 5.0


@contextmanager
def aligned(m: Mirroring, at: Lsn, patience: float) -> Iterator[int | None]:
    """The snapshot of the lake that shows the source at `at`; None if a delivery went past it before it was asked.

    A running delivery is asked to stop over exactly there. Without one nothing moves the lake, so it must be there
    already, and others are kept from starting until the block ends.
    """
    with ExitStack() as held:
        if running(m.state, m.group):
            fence = ask_for(m.state, m.group, at, patience)
            exact = fence.reached_lsn is not None and fence.reached_lsn <= at
            snapshot = fence.reached_snapshot if exact else None
        else:
            held.enter_context(m.state.lock(f"deliver:{m.group}"))
            _nothing_pending(m, at, patience)
            snapshot = m.sink.plan().base.id
        yield snapshot


def running(state: State, group: str) -> bool:
    """Is a `headwater run` looking after this group, or starting to?"""
    try:
        with state.lock(f"run:{group}", patience=0):
            return False
    except OperatorMustAct:
        return True


def ask_for(state: State, group: str, at: Lsn, patience: float) -> Fence:
    """Have a running delivery bring the lake to `at`, and wait for it."""
    if state.group(group) is None:
        raise Unreachable(f"group {group!r} is only being made", hint="try again in a moment")
    id_ = state.add_fence(group, at, patience)
    begun = told = time.monotonic()
    while (fence := state.fence(id_)).reached_snapshot is None:
        row = state.group(group)
        where = row.delivered_lsn if row else None
        if time.monotonic() - begun > patience:
            raise Unreachable(
                f"the lake of group {group!r} did not reach {at} in {patience:.0f} s; it is at {where}",
                hint="`headwater status` tells what holds it up; --timeout gives it more time",
            )
        if time.monotonic() - told > TELL_EVERY:
            told = time.monotonic()
            logger.info("waiting for group %s to reach %s; it is at %s", group, at, where)
        time.sleep(0.1)
    return fence


def _nothing_pending(m: Mirroring, at: Lsn, patience: float) -> None:
    moving = {row.oid for row in m.state.tables(m.group) if row.state in ("CATCHUP", "STREAMING")}
    start = min((each.position for oid, each in m.sink.standings().items() if oid in moving), default=at)
    deadline = time.monotonic() + patience
    while (pending := _pending(m, start, at)) is None and time.monotonic() < deadline:
        time.sleep(0.1)  # the capture of a run that was killed is still there: soon the log tells
    if pending is not False:
        raise Unreachable(
            f"the lake of group {m.group!r} is at {start}, the source is ahead, and nothing runs to bring it up",
            hint="run `headwater run --until-caught-up`, or verify while `headwater run` is running",
        )


def _pending(m: Mirroring, start: Lsn, at: Lsn) -> bool | None:
    """Is anything between the two positions that the lake does not have? None: nobody knows yet."""
    captured = m.log.end() >= at  # before the log is read: what is registered meanwhile is seen
    if m.log.read(start, at).segments:
        return True
    row = m.state.group(m.group)
    if captured or row is None:
        return False
    return has_pending_changes(m.source_url, row.slot, row.publication, at)
