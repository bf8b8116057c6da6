"""What an operator asks of a route's destinations: to be seeded again, to pause, to go on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from headwater.config import Config
from headwater.errors import ConfigError
from headwater.state import State
from headwater.state.processes import held
from headwater.state.routes import DestinationRow

__all__ = ["Request", "Requested", "check_route", "chosen", "requested"]

Request = Literal["seed", "pause", "resume"]

ASKED_FOR = "it was asked for"


@dataclass(frozen=True, slots=True)
class Requested:
    """How many destinations were meant, for how many of them that changes anything, how many of them are paused.

    If no process delivers them now, the request waits for the next run.
    """

    meant: int
    changed: int
    paused: int
    running: bool


def check_route(config: Config, name: str) -> None:
    """ConfigError if the config has no such route."""
    if name not in config.routes:
        close = get_close_matches(name, config.routes, 1)
        known = f"did you mean {close[0]!r}?" if close else f"known routes: {', '.join(config.routes) or 'none'}"
        raise ConfigError(f"there is no route {name!r} in the config", hint=known)


def requested(config: Config, request: Request, route: str, values: Sequence[str]) -> Requested:
    """Ask it of the destinations that are spelled so, or of all; ConfigError if there is no such one."""
    check_route(config, route)
    with closing(State.connect(config.state_url)) as state:
        rows = chosen(state, route, values)
        change: dict[Request, Callable[[Collection[str]], int]] = {
            "seed": lambda ids: state.request_seed(route, ids, ASKED_FOR),
            "pause": lambda ids: state.pause_destinations(route, ids),
            "resume": lambda ids: state.resume_destinations(route, ids),
        }
        changed = change[request]([row.id for row in rows])
        running = held(state, {row.owner for row in rows if row.owner is not None})
        return Requested(len(rows), changed, sum(row.state == "PAUSED" for row in rows), bool(running))


def chosen(state: State, route: str, values: Sequence[str]) -> list[DestinationRow]:
    """The destinations of a route that are spelled so, or all; ConfigError if there is no such one."""
    there = state.knows("destinations")
    rows = {str(row): row for row in state.destinations(route)} if there else {}
    if not rows:
        raise ConfigError(
            f"route {route!r} has no destination yet", hint="`headwater run` finds them, and seeds them by itself"
        )
    for value in values:
        if value not in rows:
            close = get_close_matches(value, [*rows], 3) or [each for each in rows if each == f"={value}"]
            hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "see `headwater route list`"
            raise ConfigError(f"route {route!r} has no destination {value!r}", hint=hint)
    return [rows[value] for value in dict.fromkeys(values)] if values else list(rows.values())
