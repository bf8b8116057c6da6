"""What `run` would do to source and state before it mirrors, said in advance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from headwater.config import Config
from headwater.control.facts import look
from headwater.control.plan import plan
from headwater.control.steps import worth_saying
from headwater.postgres.connect import connect, translated
from headwater.state import State

__all__ = ["planned"]


def planned(config: Config) -> Iterator[str]:
    """A line for each step, under its group; none if everything is as the config says. Nothing is changed."""
    with (
        closing(connect(config.source, application_name="headwater check")) as connection,
        translated(config.source),
        closing(State.connect(config.state_url)) as state,
    ):
        there = state.knows("tables")
        for name, group in config.groups.items():
            steps = plan(group, look(connection, state if there else None, name, config))
            if said := [str(step) for step in steps if worth_saying(step)]:
                yield f"`run` will, for group {name!r}:"
                yield from (f"  {line}" for line in said)
