"""`headwater verify`: every group and route of the config, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches

from pyspark.sql import SparkSession

from headwater.change import TableName
from headwater.config import Config, expanded
from headwater.errors import ConfigError, Unreachable
from headwater.logs import redact
from headwater.spark import JobDied, session
from headwater.state import State
from headwater.supervise.opening import mirroring, open_state
from headwater.supervise.requests import chosen
from headwater.verify import Verified, verify
from headwater.verify.routes import verify_route

__all__ = ["Asked", "verify_all"]


def verify_all(config: Config, env: Mapping[str, str], names: Sequence[str], patience: float) -> list[Verified]:
    """Compare the named tables, routes and destinations, or everything."""
    with closing(open_state(config)) as state:
        asked = Asked.of(state, config, names)
        spark = session(config.spark.master, config.spark.conf, "headwater-verify")
        try:
            return _verified(config, env, state, spark, asked, patience)
        except JobDied as died:  # not chained: Spark's message may quote a password
            said = redact(str(died), config.secrets())
            raise Unreachable(f"the comparison failed: {said}", hint="see `headwater check`, and try again") from None
        finally:
            spark.stop()


@dataclass(frozen=True, slots=True)
class Asked:
    """What to compare: tables of groups (none: all of them), and routes, each with ids of destinations (none: all)."""

    groups: bool
    tables: Sequence[TableName]
    routes: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, state: State, config: Config, names: Sequence[str]) -> Asked:
        """`route` and `route/value` are destinations, if there is such a route; anything else is a table.

        A route's name has no dot: with its schema in front, a table is never taken for one. ConfigError if there is no
        such table, or destination.
        """
        if not names:
            _check_run(state, config)
            return cls(True, [], dict.fromkeys(config.routes, ()))
        values: dict[str, list[str]] = {}
        for route, slash, value in (name.partition("/") for name in names):
            if route in config.routes:
                values.setdefault(route, []).extend([value] if slash else [])
        ids = {
            route: [] if route in names else [row.id for row in chosen(state, route, some)]
            for route, some in values.items()
        }
        tables = [name for name in names if name.partition("/")[0] not in config.routes]
        if tables:
            _check_run(state, config)
        return cls(bool(tables), _known(state, config, tables), ids)


def _verified(
    config: Config, env: Mapping[str, str], state: State, spark: SparkSession, asked: Asked, patience: float
) -> list[Verified]:
    found = []
    for group in config.groups if asked.groups else ():
        with closing(mirroring(config, env, state, group, spark)) as m:
            found += verify(m, asked.tables, patience, _left(state, config, group))
    for route, ids in asked.routes.items():
        found += verify_route(config, env, state, spark, route, ids)
    return found


def _left(state: State, config: Config, group: str) -> list[TableName]:
    """Tables that the config no longer names; a `run` that was started before may still mirror them."""
    rows = state.tables(group)
    named = {entry.table for entry in expanded(config.groups[group], [row.configured for row in rows]).tables}
    return [row.source for row in rows if row.configured not in named]


def _check_run(state: State, config: Config) -> None:
    for group in config.groups:
        if state.group(group) is None:
            raise ConfigError(f"group {group!r} has not run yet", hint="start it with `headwater run`")


def _known(state: State, config: Config, names: Sequence[str]) -> list[TableName]:
    mirrored = {row.source for group in config.groups for row in state.tables(group)}
    wanted = []
    for name in names:
        try:
            table = TableName.parse(name)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if table not in mirrored:
            close = get_close_matches(name, map(str, mirrored), n=3)
            hint = (
                f"did you mean {' or '.join(close)}?"
                if close
                else f"there are: {', '.join(sorted(map(str, mirrored)))}"
            )
            raise ConfigError(f"table {name!r} is not mirrored", hint=hint)
        wanted.append(table)
    return wanted
