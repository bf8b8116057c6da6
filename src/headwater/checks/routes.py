"""The routes' part: can their sources be read, do these have what the routes need, can destinations be opened?"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from headwater.checks.routerows import of_route, row_problems, value_problems
from headwater.config import Config, Route
from headwater.errors import ConfigError, HeadwaterError, TableError, Unreachable
from headwater.flow.routesource import SourceAt
from headwater.lake.address import LakeAddress
from headwater.lake.stream import FEED
from headwater.sink.addresses import lake_addresses
from headwater.state import State
from headwater.state.connection import SharedConnection
from headwater.supervise.destinations import Finder, Named
from headwater.supervise.sources import opened_source, route_rules
from headwater.words import counted

__all__ = ["route_problems"]

logger = logging.getLogger(__name__)

LAKES_AT_ONCE = 8
REPORTED = 20  # lakes of destinations that cannot be opened


def route_problems(config: Config, env: Mapping[str, str]) -> Iterator[HeadwaterError]:
    """What keeps the config's routes from being delivered; of those that read a group's log, `grouproutes` has more."""
    lakes: dict[str, tuple[str, LakeAddress]] = {}
    for name, route in config.routes.items():
        try:
            named = list(_finder(config, env, name).named())
        except HeadwaterError as error:
            yield of_route(name, error)
            named = []
        yield from (of_route(name, each) for each in _problems(config, env, name, named))
        default = [] if route.default is None else lake_addresses(config, env, [route.default.lake]).values()
        for address in (*(each.address for each in named), *default):
            lakes.setdefault(str(address), (name, address))
    yield from _lakes(list(lakes.values()))


def _finder(config: Config, env: Mapping[str, str], name: str) -> Finder:
    """It is only asked what the file and its table say, so it needs nothing of the state."""
    return Finder(config, env, name, State(SharedConnection(config.state_url)), "", "")


def _problems(config: Config, env: Mapping[str, str], name: str, named: list[Named]) -> Iterator[HeadwaterError]:
    route = config.routes[name]
    if route.source.group is not None:
        return
    try:
        at = _newest(config, env, name)
    except (Unreachable, TableError) as error:
        if not _is_to_come(config, route):
            yield error
        else:
            logger.info("route %s waits until %s is copied into lake %s", name, route.source.table, route.source.lake)
        return
    except HeadwaterError as error:
        yield error
        return
    rules = route_rules(route)
    yield from row_problems(at, rules)
    if rules.by in at.readable:
        yield from value_problems(config, name, [each.value for each in named], at.schema.field(rules.by).type)


def _newest(config: Config, env: Mapping[str, str], name: str) -> SourceAt:
    with opened_source(config, env, name) as source:
        return source.newest()


def _is_to_come(config: Config, route: Route) -> bool:
    """Whether a group or another route makes the table that the route reads, and may not have done it yet."""
    wanted = route.source.lake, route.source.table
    made = {(group.lake, table.target) for group in config.groups.values() for table in group.tables}
    made |= {(each.lake, other.target(each.renamed)) for other in config.routes.values() for _, each in other.listed()}
    return wanted in made or any(
        each.brings(route.source.table)
        for group in config.groups.values()
        if group.lake == route.source.lake
        for each in group.patterns
    )


def _lakes(lakes: list[tuple[str, LakeAddress]]) -> Iterator[HeadwaterError]:
    """Lakes of destinations that could not be opened, or created: the first of them."""
    with ThreadPoolExecutor(LAKES_AT_ONCE) as pool:
        found = [each for each in pool.map(lambda lake: _lake_problem(*lake), lakes) if each is not None]
    yield from found[:REPORTED]
    if more := found[REPORTED:]:
        yield ConfigError(
            f"{counted(len(more), 'more lake')} of destinations cannot be opened", hint="correct these first"
        )


def _lake_problem(route: str, address: LakeAddress) -> HeadwaterError | None:
    try:
        address.check_could_open()
        lake = address.find("headwater check", FEED)
        if lake is not None:
            lake.close()
    except HeadwaterError as error:
        return of_route(route, error)
    return None
