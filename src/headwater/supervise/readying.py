"""Before a run, and again while it runs: groups, publications, slots and tables become what the config says."""

from __future__ import annotations

from contextlib import closing

from headwater.config import Config
from headwater.control.applying import apply
from headwater.control.facts import look
from headwater.control.plan import plan
from headwater.postgres.connect import connect, translated
from headwater.source.naming import object_name
from headwater.source.server import identify
from headwater.state import State
from headwater.supervise.opening import open_log

__all__ = ["make_group_ready", "make_ready"]


def make_ready(config: Config, state: State) -> None:
    """Make all groups of the config what it says."""
    for name in config.groups:
        make_group_ready(config, state, name)


def make_group_ready(config: Config, state: State, name: str) -> None:
    """Make one group what the config says; it may be captured and delivered meanwhile."""
    with closing(connect(config.source)) as connection, translated(config.source):
        # First: OIDs mean nothing in another database.
        state.ensure_group(name, identify(connection).source_id, object_name(name), object_name(name))
        facts = look(connection, state, name, config)
    apply(plan(config.groups[name], facts), config, state, name, open_log(config, state, name))
