"""Routes and their destinations, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import get_args

import click

from headwater.commands.render import fitting, wrapped
from headwater.status import DestinationStatus, RouteStatus
from headwater.status.routes import DestinationHealth
from headwater.supervise.requests import Request, Requested
from headwater.words import counted, duration_text, short_duration

__all__ = ["route_lines", "show_request", "show_routes"]

SHOWN = 20  # destinations in the status; `route list` shows all
_WORST_FIRST = ("error", "lagging", "paused", "flushing", "buffering", "healthy")
_WIDE = 1_000_000  # of a list, which leaves nothing out


def show_routes(routes: Sequence[RouteStatus], *, as_json: bool) -> None:
    """Print every destination."""
    if as_json:
        rows = [asdict(each) for route in routes for each in route.destinations]
        click.echo(json.dumps(rows, default=str, ensure_ascii=False, indent=2))
        return
    for number, route in enumerate(routes):
        click.echo("\n".join(["", *_lines(route)] if number else _lines(route)))
    if not routes:
        click.echo("the config has no routes")


def _lines(route: RouteStatus) -> list[str]:
    return list(route_lines(route, _WIDE, every=True))


def route_lines(route: RouteStatus, width: int, *, every: bool = False) -> Iterator[str]:
    """A route as text: its facts, and a table of its destinations; of many, only those that are not healthy."""
    yield from wrapped(_facts(route), width)
    if route.source_error:
        yield f"  ERROR: its source cannot be read: {route.source_error}"
    yield from (f"  ERROR: {each.error}" for each in route.instances if each.error)
    shown = list(route.destinations) if every or len(route.destinations) <= SHOWN else _worst(route.destinations)
    if shown:
        yield ""
        # In a terminal that is too narrow, counts of changes go first, as they do for tables; --json has them.
        yield from fitting(
            _columns(route, shown), width, (("inserted", "updated", "deleted"), ("lake",), ("position",))
        )
    named = {each.value for each in shown}
    if more := [each for each in route.destinations if each.value not in named]:
        yield f"and {_by_status(more)}: see `headwater route list {route.name}`"
    yield from (f"{each}: {note}" for each in shown for note in _notes(each))


def _worst(destinations: Sequence[DestinationStatus]) -> list[DestinationStatus]:
    """Those that need to be looked at, but not more than fit."""
    found = [each for each in destinations if each.status != "healthy"]
    return sorted(found, key=lambda each: _WORST_FIRST.index(each.status))[:SHOWN]


def _facts(route: RouteStatus) -> Iterator[str]:
    yield f"route {route.name} ← {route.source}: {_state(route)}, {_where(route)}"
    if route.destinations:
        yield f"  {_by_status(route.destinations)}{_unrouted(route)}"


def _state(route: RouteStatus) -> str:
    if len(route.instances) == 1:
        return "RUNNING" if route.running else "STOPPED"
    running = sum(each.running for each in route.instances)
    return f"{running} of {counted(len(route.instances), 'instance')} RUNNING"


def _where(route: RouteStatus) -> str:
    if route.position is None:
        return "nothing delivered yet"
    if route.source_position is None or route.position == route.source_position:
        return f"at {route.position}"
    return f"at {route.position}, the source is at {route.source_position}"


def _by_status(destinations: Sequence[DestinationStatus]) -> str:
    """`3 destinations healthy`, or how many are what."""
    found = Counter(each.status for each in destinations)
    if len(found) == 1:
        return f"{counted(len(destinations), 'destination')} {destinations[0].status}"
    order = [each for each in get_args(DestinationHealth) if each in found]
    return f"{counted(len(destinations), 'destination')}: " + ", ".join(f"{found[each]:,} {each}" for each in order)


def _unrouted(route: RouteStatus) -> str:
    unknown = f"; {counted(route.unknown_rows, 'row')} with a value of no destination" if route.unknown_rows else ""
    return unknown + (f"; {counted(route.null_rows, 'row')} with NULL" if route.null_rows else "")


def _columns(route: RouteStatus, shown: Sequence[DestinationStatus]) -> dict[str, list[str]]:
    """What is worth a column: not what is empty, or the same for all and said above."""
    columns = {"destination": [str(each) for each in shown]}
    if len({each.status for each in route.destinations}) > 1:
        columns["status"] = [each.status for each in shown]
    columns["rows"] = [f"{each.rows:,}" for each in shown]
    for name, title in _COUNTS.items():
        if any(getattr(each, name) for each in shown):
            columns[title] = [f"{getattr(each, name):,}" for each in shown]
    if any(each.lag_snapshots for each in shown):
        columns["snapshots"] = ["" if each.lag_snapshots is None else f"{each.lag_snapshots:,}" for each in shown]
    if any(each.lag_seconds is not None for each in shown):
        columns["lag"] = ["" if each.lag_seconds is None else short_duration(each.lag_seconds) for each in shown]
    if any(each.position != route.position for each in shown):
        columns["position"] = [each.position or "" for each in shown]
    if len(route.instances) > 1:
        columns["instance"] = [each.instance or "" for each in shown]
    columns["table"] = [each.table for each in shown]
    columns["lake"] = [each.lake for each in shown]
    return columns


_COUNTS = {"inserted": "inserted", "updated": "updated", "deleted": "deleted", "waiting_rows": "waiting"}


def _notes(each: DestinationStatus) -> Iterator[str]:
    if each.error:
        again = f" (tried again at {each.retry_at:%H:%M:%S}{_circuit(each)}{_lag(each)})" if each.retry_at else ""
        yield f"ERROR: {each.error}{again}"
    if each.seed:
        yield f"is to be seeded: {each.seed}"


def _circuit(each: DestinationStatus) -> str:
    return f"; circuit open after {each.failures} failures" if each.circuit_open else ""


def _lag(each: DestinationStatus) -> str:
    return "" if each.lag_seconds is None else f"; lag {duration_text(each.lag_seconds)}"


def show_request(request: Request, route: str, done: Requested) -> None:
    """Say how many destinations are meant, and who acts on it."""
    unchanged = done.meant - done.changed
    rest = f" ({_BEFORE[request].format(unchanged)})" if unchanged else ""
    click.echo(f"route {route!r}: {counted(done.changed, 'destination')} {_DONE[request]}{rest}")
    if request == "seed" and done.paused:
        click.echo(f"{done.paused:,} of them paused: seeded after `headwater route resume {route}`")
    if not done.running:
        click.echo("no process delivers the route now: the next `headwater run` acts on it")


_DONE = {"seed": "to be seeded", "pause": "paused", "resume": "resumed"}
_BEFORE = {"seed": "", "pause": "{:,} paused before", "resume": "{:,} neither paused nor waiting after a failure"}
