"""`headwater maintain`, and the same in the background of `run`: one table after the other, deliveries first."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from pyspark.sql import SparkSession

from headwater import flow
from headwater.change import TableName
from headwater.config import Config, Inline, Maintenance
from headwater.errors import ConfigError, HeadwaterError
from headwater.lake import quarantine
from headwater.lake.maintenance import Chores, FlushLimits, MaintenancePolicy
from headwater.lake.sink import Sink
from headwater.logs import redact
from headwater.spark import JobDied, session
from headwater.state import State
from headwater.supervise.lakes import own_lake
from headwater.supervise.opening import open_state

__all__ = ["BackgroundMaintenance", "Maintained", "keeping", "maintain_all"]

logger = logging.getLogger(__name__)

EVERY, ORPHANS_EVERY = 60.0, 3600.0  # seconds between two looks at a table, in the background
AT_LEAST_EVERY = 60.0  # seconds between two steps, if deliveries leave no time for more
PATIENCE = 10.0  # seconds to wait for another `maintain`


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done in a table of the lake, or would be. `note` says why nothing was; then it may be an `error`."""

    group: str
    table: str
    chores: Chores
    note: str = ""
    error: int = 0  # the exit code that fits


def maintain_all(config: Config, env: Mapping[str, str], names: Sequence[str], *, dry_run: bool) -> list[Maintained]:
    """Maintain the named tables of the lakes, or all of them."""
    with closing(open_state(config)) as state:
        wanted = _known(state, config, names)
        run = _Run(config, env, state, wanted, _policy(config.maintenance or Maintenance()), dry_run)
        try:
            return [each for group in config.groups for each in run.group(group)]
        finally:
            for spark in run.started:
                spark.stop()


@dataclass(frozen=True, slots=True)
class _Run:
    config: Config
    env: Mapping[str, str]
    state: State
    wanted: Collection[TableName]  # by their names in the lake; none: all
    policy: MaintenancePolicy
    dry_run: bool
    started: list[SparkSession] = field(default_factory=list)

    def group(self, group: str) -> list[Maintained]:
        with closing(own_lake(self.config, self.env, self.state, group)) as sink:
            maintenance, policy = sink.maintenance(), keeping(self.policy, self.state, sink)
            if maintenance is None:
                return []
            names = list(self._chosen(maintenance.tables()))
            if self.dry_run:
                return [self._one(group, name, lambda n: maintenance.plan(n, policy)) for name in names]
            with self.state.lock(_lock(group), PATIENCE):
                maintenance.collect()
                return [
                    self._one(group, name, lambda n: flow.maintain(self._spark, maintenance, n, policy))
                    for name in names
                ]

    def _one(self, group: str, name: TableName, work: Callable[[TableName], Chores]) -> Maintained:
        """One table's trouble stays its own."""
        try:
            return Maintained(group, str(name), work(name))
        except HeadwaterError as error:
            return Maintained(group, str(name), Chores(), error.message, error.exit_code)
        except JobDied as died:
            said = redact(f"a Spark task failed: {died}", self.config.secrets())
            return Maintained(group, str(name), Chores(), said, 3)
        except OSError as error:
            said = redact(f"a file of the lake cannot be read or deleted: {error}", self.config.secrets())
            return Maintained(group, str(name), Chores(), said, 3)

    def _chosen(self, names: Sequence[TableName]) -> Iterator[TableName]:
        return (name for name in names if not self.wanted or name in self.wanted)

    def _spark(self) -> SparkSession:
        if not self.started:
            self.started.append(session(self.config.spark.master, self.config.spark.conf, "headwater-maintain"))
        return self.started[0]


class BackgroundMaintenance:
    """Maintenance between the deliveries of a group: one table at a time, and a few files of it."""

    def __init__(self, config: Maintenance, inline: Inline | None = None) -> None:
        flush = FlushLimits(inline.rows, inline.age) if inline else None  # rows there are of other clients, then
        self._policy = replace(_policy(config), flush=flush)
        self._waiting: list[TableName] = []
        self._looked = -EVERY
        self._stepped = time.monotonic()
        self._swept: dict[TableName, float] = {}

    def has_time(self, now: float, *, busy: bool) -> bool:
        """Whether to take a step: between deliveries, and now and then though one is due.

        Else a lake that is written to all the time would never have its files merged, and deliveries would get slower.
        """
        return not busy or now - self._stepped >= AT_LEAST_EVERY

    def step(self, m: flow.Mirroring) -> None:
        """Maintain the table whose turn it is, if one is due and no `maintain` runs."""
        now, maintenance = time.monotonic(), m.sink.maintenance()
        self._stepped = now
        if maintenance is None or (not self._waiting and now - self._looked < EVERY):
            return
        try:
            with m.state.lock(_lock(m.group), 0):
                if not self._waiting:
                    maintenance.collect()
                    self._waiting, self._looked = list(maintenance.tables()), now
                name = self._waiting.pop(0)
                cores, policy = m.spark.sparkContext.defaultParallelism, self._due(name, now)
                kept = keeping(policy, m.state, m.sink)
                done = flow.maintain(lambda: m.spark, maintenance, name, kept, cores)
        except (HeadwaterError, JobDied, OSError) as error:  # it comes round again
            logger.warning("maintenance of group %s is left for later: %s", m.group, error)
            self._looked = now
            return
        if done:
            logger.info("maintained %s: %s", name, done)

    def _due(self, name: TableName, now: float) -> MaintenancePolicy:
        """To look for orphans means to list all files of a table: that is not done in every round."""
        if now - self._swept.get(name, -ORPHANS_EVERY) < ORPHANS_EVERY:
            return replace(self._policy, orphans=None)
        self._swept[name] = now
        return self._policy


def _policy(config: Maintenance) -> MaintenancePolicy:
    return MaintenancePolicy(config.merge, config.expire, config.orphans)


def keeping(policy: MaintenancePolicy, state: State, sink: Sink[Any, Any]) -> MaintenancePolicy:
    """The policy, which keeps the snapshots from which routes will read on."""
    if policy.expire is None:
        return policy
    id_ = sink.lake_id()
    routes = [each for each in state.routes() if each.source_id == id_]
    behind = [row.behind for name in {each.name for each in routes} for row in state.destinations(name)]
    positions = (*(each.position for each in routes), *behind)
    return replace(policy, keep=frozenset(each for each in positions if each is not None))


def _lock(group: str) -> str:
    return f"maintain:{group}"


def _known(state: State, config: Config, names: Sequence[str]) -> set[TableName]:
    """The tables with these names, in the source or in the lake, by their names in the lake."""
    mirrors = {quarantine.NAME: quarantine.NAME}
    for group in config.groups:
        if state.group(group) is None:
            raise ConfigError(f"group {group!r} has not run yet", hint="start it with `headwater run`")
        mirrors |= {name: row.lake for row in state.tables(group) for name in (row.lake, row.source)}
    return {_named(name, mirrors) for name in names}


def _named(name: str, mirrors: Mapping[TableName, TableName]) -> TableName:
    try:
        return mirrors[TableName.parse(name)]
    except ValueError as error:
        raise ConfigError(str(error)) from error
    except KeyError:
        close = get_close_matches(name, map(str, mirrors), n=3) or sorted(map(str, mirrors))
        raise ConfigError(f"table {name!r} is not mirrored", hint=f"did you mean {' or '.join(close[:3])}?") from None
