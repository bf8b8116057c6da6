"""What a route reads, opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from headwater.config import Config, DuckLake, Route
from headwater.errors import ConfigError
from headwater.feed.opening import opened_table
from headwater.feed.source import Bound
from headwater.flow.lakesource import LakeSource
from headwater.flow.routesource import RouteRules, RouteSource
from headwater.state import State

__all__ = ["copy_is_awaited", "opened_source", "route_rules", "source_position"]


def route_rules(route: Route) -> RouteRules:
    """What the config says about the rows of a route."""
    append, inline = route.mode == "append", route.inline.rows if route.inline else None
    return RouteRules(route.by, route.keys, route.columns, route.exclude, route.where, append, inline)


@contextmanager
def opened_source(config: Config, env: Mapping[str, str], name: str) -> Iterator[RouteSource]:
    """What a route reads that has a lake as its source; ConfigError if it cannot read from there."""
    route = config.routes[name]
    lake = config.lakes[route.source.lake or ""]
    if not isinstance(lake, DuckLake):
        raise ConfigError(
            f"route {name!r} reads from lake {route.source.lake!r}, which is not a DuckLake",
            hint="only a DuckLake tells what has changed between two snapshots: name another lake, or a `group`",
        )
    with opened_table(lake, env, route.source.table) as table:
        yield LakeSource(table, route_rules(route), Bound(route.batch.rows, route.batch.bytes))


def copy_is_awaited(config: Config, state: State, name: str) -> bool:
    """Whether a route reads a mirror that a group of the config has not copied into its lake yet."""
    source = config.routes[name].source
    groups = [group for group, each in config.groups.items() if each.lake == source.lake]
    mirrors = [row for group in groups for row in state.tables(group) if row.lake == source.table]
    return bool(mirrors) and all(row.position is None and row.dropped_lsn is None for row in mirrors)


def source_position(config: Config, env: Mapping[str, str], state: State, name: str) -> int | None:
    """Where the source of a route is now; None if the table of a group has failed, and nothing comes of it."""
    source = config.routes[name].source
    if copy_is_awaited(config, state, name):
        return None
    if source.group is None:
        with opened_source(config, env, name) as opened:
            return opened.newest().position.value
    rows = (row for row in state.tables(source.group) if row.configured == source.table and row.state == "STREAMING")
    return next((row.position.value for row in rows if row.position is not None), None)
