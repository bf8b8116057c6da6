"""Wait until the lake shows everything that is committed in the source now."""

from __future__ import annotations

from contextlib import closing

from headwater.config import Config
from headwater.errors import Unreachable
from headwater.source.server import wal_target
from headwater.state import State
from headwater.state.waiting import ask_for, running

__all__ = ["wait_until_fresh"]


def wait_until_fresh(config: Config, patience: float) -> None:
    """Wait until every group has reached the present position of the source; Unreachable if that takes too long."""
    now = wal_target(config.source)
    with closing(State.connect(config.state_url)) as state:
        for group in config.groups:
            if not running(state, group):
                raise Unreachable(
                    f"nothing delivers group {group!r}, so its lake stays as it is",
                    hint="start `headwater run`, or query without --fresh what the lake has now",
                )
            ask_for(state, group, now, patience)
