"""The config that is in force: the file, and what was added to it by command or by SQL."""

from __future__ import annotations

from contextlib import closing

from headwater.config import Config
from headwater.control.wanted import additions, wanted
from headwater.state import State

__all__ = ["in_force", "served", "with_state"]


def in_force(config: Config, state: State) -> Config:
    """The file's config with everything that was added to it."""
    return wanted(config, additions(state, config))


def served(config: Config, state: State) -> Config:
    """The same without groups that are disabled."""
    everything, disabled = in_force(config, state), state.disabled_groups()
    groups = {name: group for name, group in everything.groups.items() if name not in disabled}
    return everything.model_copy(update={"groups": groups})


def with_state(config: Config, *, disabled: bool = True) -> Config:
    """The config in force, for a command that only looks; as the file has it if nothing has run yet.

    Groups that are disabled are in it, unless the command needs one that goes on.
    """
    with closing(State.connect(config.state_url)) as state:
        if not state.knows("added_tables"):
            return config
        return in_force(config, state) if disabled else served(config, state)
