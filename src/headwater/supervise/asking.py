"""Asking a running service for something, as a command does; the answer is what became of it."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass

from headwater.config import Config
from headwater.errors import ConfigError
from headwater.state import Request, State, Verb
from headwater.state.processes import held
from headwater.state.sharing import leader
from headwater.supervise.opening import open_state

__all__ = ["Answer", "ask", "serves"]

PATIENCE = 60.0  # seconds; a group that is dropped is drained first
LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request; without an outcome it waits: for `headwater run`, or for one that is busy."""

    request: int
    group: str
    outcome: str | None
    running: bool


def ask(config: Config, verb: Verb, /, **arguments: object) -> Answer:
    """Make a request, and wait for a service that runs; ConfigError if it makes no sense, or was refused."""
    with closing(open_state(config)) as state:
        number = state.ask(verb, **{name: each for name, each in arguments.items() if each is not None})
        deadline = time.monotonic() + PATIENCE
        while (request := _found(state, number)).handled_at is None:
            if not (running := serves(state, config, request.group)) or time.monotonic() > deadline:
                return Answer(number, request.group, None, running)
            time.sleep(LOOK_EVERY)
        if request.failed:
            message, _, hint = (request.outcome or "").partition("\nhint: ")
            raise ConfigError(message, hint=hint)
        return Answer(number, request.group, request.outcome, True)


def serves(state: State, config: Config, group: str) -> bool:
    """Whether a service runs that would handle a request for this group, which need not be there yet."""
    groups = [f"run:{name}" for name in _related(state, config, group)]
    return bool(held(state, [leader(config.log.path), *groups]))


def _related(state: State, config: Config, group: str) -> Collection[str]:
    """The groups that the same service has: those of this config's log."""
    own = {row.name for row in state.groups() if row.log is not None and row.log.place == config.log.path}
    return own | set(config.groups) | {group}


def _found(state: State, number: int) -> Request:
    request = state.request(number)
    assert request is not None, "it was made above, and is kept for days"
    return request
