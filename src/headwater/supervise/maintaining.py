"""`headwater maintain`: one table after the other. `upkeep` does the same inside `run`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from pyspark.sql import SparkSession

from headwater import flow
from headwater.change import TableName
from headwater.config import Config, Maintenance
from headwater.errors import CommitConflict, ConfigError, HeadwaterError
from headwater.lake import quarantine
from headwater.lake.maintenance import Chores, Figures, MaintenancePolicy
from headwater.lake.maintenance import Maintenance as LakeMaintenance
from headwater.lake.sink import Sink
from headwater.logs import redact
from headwater.spark import JobDied, session
from headwater.state import State
from headwater.supervise.lakes import own_lake
from headwater.supervise.opening import open_state

__all__ = ["Maintained", "allowed_at", "keeping", "maintain_all", "maintenance_lock", "merged_in_the_end", "policy_of"]

PAUSES = (0.1, 0.3, 0.6, 1.0, 2.0)  # seconds after a merge that deliveries were faster than
PATIENCE = 60.0  # seconds to wait for another `maintain`, or for the unit of work that `run` is at


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done in a table of the lake, or would be. `note` says why nothing was; then it may be an `error`."""

    group: str
    table: str
    chores: Chores
    note: str = ""
    error: int = 0  # the exit code that fits
    figures: Figures | None = None  # what the table was made of before


def maintain_all(config: Config, env: Mapping[str, str], names: Sequence[str], *, dry_run: bool) -> list[Maintained]:
    """Maintain the named tables of the lakes, or all of them."""
    with closing(open_state(config)) as state:
        wanted = _known(state, config, names)
        run = _Run(config, env, state, wanted, policy_of(config.maintenance or Maintenance()), dry_run)
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
            maintenance = sink.maintenance()
            if maintenance is None:
                return []

            def policy() -> MaintenancePolicy:
                return keeping(self.policy, self.state, sink)

            names, figures = list(self._chosen(maintenance.tables())), maintenance.figures()
            if self.dry_run:
                found = [self._one(group, name, lambda n: maintenance.plan(n, policy())) for name in names]
            else:
                with self.state.lock(maintenance_lock(group), PATIENCE):
                    maintenance.collect()
                    found = [
                        self._one(group, name, lambda n: self._work(group, maintenance, n, policy)) for name in names
                    ]
            return [replace(each, figures=figures.get(name)) for name, each in zip(names, found, strict=True)]

    def _work(
        self, group: str, maintenance: LakeMaintenance, name: TableName, policy: Callable[[], MaintenancePolicy]
    ) -> Chores:
        """`policy` tells which snapshots are needed: by the time that the table is merged, they may be others."""
        merge = replace(self.policy, expire=None, orphans=None)
        merged = merged_in_the_end(
            lambda: flow.maintain(self._spark, maintenance, name, merge), maintenance, name, merge
        )
        done = merged + flow.maintain(self._spark, maintenance, name, replace(policy(), merge=False, flush=None))
        if done:
            self.state.record_maintained(group, name, done)
        return done

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


def merged_in_the_end(
    merge: Callable[[], Chores], maintenance: LakeMaintenance, table: TableName, policy: MaintenancePolicy
) -> Chores:
    """What `merge` has done, which is tried a few times: deliveries may change the rows that it moves.

    CommitConflict: each time.
    """
    for pause in PAUSES:
        with suppress(CommitConflict):
            done = merge()
            if done or not maintenance.plan(table, policy):
                return done
        time.sleep(pause)
    raise CommitConflict(
        "deliveries were faster each time", hint="try again: what `run` does, it does between two of them"
    )


def policy_of(config: Maintenance) -> MaintenancePolicy:
    """What the file asks for, at any time of the day."""
    expire = config.expire
    policy = MaintenancePolicy(config.merge, None, config.orphans)
    return policy if expire is None else replace(policy, expire=expire.age, newest=expire.keep)


def allowed_at(config: Maintenance, moment: datetime) -> MaintenancePolicy:
    """What `run` may do now: outside the window, it only moves rows from the catalog into files."""
    if config.window is None or config.window.includes(moment):
        return policy_of(config)
    return MaintenancePolicy(merge=False)


def keeping(policy: MaintenancePolicy, state: State, sink: Sink[Any, Any]) -> MaintenancePolicy:
    """The policy, which keeps the snapshots from which routes will read on, and those that a `verify` is reading."""
    if policy.expire is None:
        return policy
    id_ = sink.lake_id()
    routes = [each for each in state.routes() if each.source_id == id_]
    behind = [row.behind for name in {each.name for each in routes} for row in state.destinations(name)]
    positions = (*(each.position for each in routes), *behind)
    return replace(policy, keep=frozenset(each for each in (*positions, *state.pins(id_)) if each is not None))


def maintenance_lock(group: str) -> str:
    """Whoever maintains a group's lake holds it, for a unit of work at least."""
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
