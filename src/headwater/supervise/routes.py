"""Routes from outside: are they caught up, have destinations failed?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headwater.config import Config
from headwater.errors import CheckFailed
from headwater.state import State
from headwater.state.routes import RouteId
from headwater.supervise.instances import instance_name
from headwater.supervise.sources import source_position

__all__ = ["failed_routes", "routes_caught_up", "try_destinations_again"]


def routes_caught_up(config: Config, env: Mapping[str, str], state: State) -> Callable[[], bool]:
    """Whether every destination has what its source has when this is first asked, route by route.

    Call it once the groups are caught up: a route's source may be their lake, or that of another route's destination.
    """
    targets: dict[str, int | None] = {}
    waiting = list(_in_order(config))

    def arrived() -> bool:
        while waiting:
            name = waiting[0]
            if name not in targets:
                targets[name] = source_position(config, env, state, name)
            target = targets[name]
            if target is not None and not _reached(state, RouteId(name, instance_name(config)), target):
                return False
            waiting.pop(0)
        return True

    return arrived


def _in_order(config: Config) -> Iterator[str]:
    """The routes, each after those whose destinations are in the lake that it reads."""
    done: set[str] = set()

    def visit(name: str) -> Iterator[str]:
        if name not in done:
            done.add(name)
            source = config.routes[name].source
            for other, route in config.routes.items():
                if source.lake is not None and source.lake in {each.lake for _, each in route.listed()}:
                    yield from visit(other)
            yield name

    for name in config.routes:
        yield from visit(name)


def _reached(state: State, route: RouteId, target: int) -> bool:
    row = state.route(route)
    if row is None or row.position is None or row.position < target:
        return False
    waiting = [each for each in state.destinations(route.name) if each.instance == route.instance]
    return not any(
        each.state in ("PENDING", "ACTIVE")
        and (each.reseed is not None or (each.behind is not None and each.behind < target))
        for each in waiting
    )


def try_destinations_again(config: Config, state: State) -> None:
    """Let destinations that wait after a failure try at once."""
    for name in config.routes:
        failed = [row.id for row in state.destinations(name) if row.state == "ERRORED"]
        state.resume_destinations(name, failed)


def failed_routes(config: Config, state: State) -> list[CheckFailed]:
    """The destinations that failed."""
    rows = (row for name in config.routes for row in state.destinations(name) if row.state == "ERRORED")
    return [
        CheckFailed(
            f"destination {str(row)!r} of route {row.route!r} has failed: {(row.error or '').partition(_HINT)[0]}",
            hint=(row.error or "").partition(_HINT)[2] or "correct that; it is tried again by itself",
        )
        for row in rows
    ]


_HINT = "\nhint: "
