"""Waiting for a running delivery: is there one, and has it brought the lake to a position?"""

from __future__ import annotations

import logging
import time

from headwater.change import Lsn
from headwater.errors import OperatorMustAct, Unreachable
from headwater.state.rows import Fence
from headwater.state.store import State

__all__ = ["ask_for", "running"]

logger = logging.getLogger(__name__)

REPORT_EVERY = 5.0


def running(state: State, group: str) -> bool:
    """Whether a `headwater run` serves this group, or is starting to."""
    try:
        with state.lock(f"run:{group}", patience=0):
            return False
    except OperatorMustAct:
        return True


def ask_for(state: State, group: str, at: Lsn, patience: float) -> Fence:
    """Ask a running delivery to bring the lake to `at`, and wait until it has."""
    if state.group(group) is None:
        raise Unreachable(f"group {group!r} is still being created", hint="try again in a moment")
    id_ = state.add_fence(group, at, patience)
    begun = reported = time.monotonic()
    while (fence := state.fence(id_)).reached_snapshot is None:
        row = state.group(group)
        where = row.delivered_lsn if row else None
        if time.monotonic() - begun > patience:
            raise Unreachable(
                f"the lake of group {group!r} did not reach {at} in {patience:.0f} s; it is at {where}",
                hint="`headwater status` shows what delays it; --timeout allows more time",
            )
        if time.monotonic() - reported > REPORT_EVERY:
            reported = time.monotonic()
            logger.info("waiting for group %s to reach %s; it is at %s", group, at, where)
        time.sleep(0.1)
    return fence
