"""Maintenance of one lake in small units of work, each of which ends soon: the next one, whenever there is time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal

from pyspark.sql import SparkSession

from headwater import flow
from headwater.change import TableName
from headwater.errors import CommitConflict
from headwater.lake.maintenance import (
    Chores,
    Figures,
    FlushLimits,
    Maintenance,
    MaintenancePolicy,
    Portion,
    Ready,
    at_any_time,
)

__all__ = ["Rounds", "Site", "Unit"]

Kind = Literal["flush", "merge", "clean", "expire", "orphans"]

EVERY = 60.0  # seconds between two looks at the lake
GAP = 10.0  # seconds that a flush waits for deliveries to leave a moment, while others wait for Spark
TRIES = 3  # of a unit that a delivery could not wait for, before one that cannot do without
SNAPSHOTS = 500  # that expire at a time: deliveries to a catalog in SQLite wait for it, less than half a second
EXPIRE_EVERY, ORPHANS_EVERY = 600.0, 3600.0  # to look for orphans means to list all files of a table


@dataclass(frozen=True, slots=True)
class Site:
    """A lake that is maintained. `policy` says what is allowed at the moment.

    `between` holds up deliveries for a moment, for which it may have some `patience`; `lake_snapshots` is as in
    `lake.sink.Sink`. Inside `turn`, no other lake's maintenance has Spark at work.
    """

    spark: SparkSession
    maintenance: Maintenance
    policy: Callable[[], MaintenancePolicy]
    between: Callable[..., AbstractContextManager[Ready]]
    lake_snapshots: bool
    turn: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass(frozen=True, slots=True)
class Unit:
    """A little work on a table, and what came of it.

    `again`: it has just been done, and there may be more of it. New rows in the catalog are none: of a table that
    changes all the time there are always some. `tries` counts how often deliveries were faster.
    """

    kind: Kind
    table: TableName
    done: Chores = field(default_factory=Chores)
    again: bool = False
    tries: int = 0


class Rounds:
    """What is next for a lake: in each round, the tables that seem to need something take turns."""

    def __init__(self) -> None:
        self._waiting: deque[Unit] = deque()
        self._looked = -EVERY
        self._last: dict[tuple[Kind, TableName], float] = {}
        self._seen: dict[TableName, Figures] = {}
        self._left: dict[TableName, Figures] = {}  # of tables in which nothing was worth merging

    def step(self, site: Site) -> Unit | None:
        """Do the next unit of work; None: there is none for now. If it fails, the next step is another one.

        One that deliveries were faster than comes again soon, a few times.
        """
        policy = site.policy()
        if time.monotonic() - self._looked >= EVERY:
            self._look(site, policy)
        if not self._waiting:
            return None
        unit = self._waiting.popleft()
        try:
            done = replace(unit, done=_done(site, policy, unit))
        except CommitConflict:
            if unit.tries < TRIES:
                self._waiting.append(replace(unit, tries=unit.tries + 1))
            raise
        if done.done:
            self._seen.pop(unit.table, None)
        if _may_go_on(done):
            self._waiting.append(replace(unit, again=True, tries=0))
        elif unit.kind == "merge" and policy.merge and unit.table in self._seen:
            self._left[unit.table] = self._seen[unit.table]
        return done

    def _look(self, site: Site, policy: MaintenancePolicy) -> None:
        self._looked = time.monotonic()
        site.maintenance.collect()
        figures = self._seen = dict(site.maintenance.figures())
        if policy.flush is not None:
            self._add(Unit("flush", name) for name, each in figures.items() if each.may_need_flushing)
        if policy.merge:
            self._add(
                Unit("merge", name)
                for name, each in figures.items()
                if each.may_need_merging and each != self._left.get(name)
            )
        tables = list(site.maintenance.tables())
        whole = tables[:1] if site.lake_snapshots else tables
        if policy.merge:
            self._add(Unit("clean", name) for name in tables[:1] if self._due("clean", name, EXPIRE_EVERY))
        if policy.expire is not None:
            every = min(EXPIRE_EVERY, policy.expire.total_seconds() / 10)
            self._add(Unit("expire", name) for name in whole if self._due("expire", name, every))
        if policy.orphans is not None:
            self._add(Unit("orphans", name) for name in tables if self._due("orphans", name, ORPHANS_EVERY))

    def _add(self, units: Iterable[Unit]) -> None:
        """Units of a long job come round again and again: what the next look finds has its turns between them."""
        waiting = {(each.kind, each.table) for each in self._waiting}
        self._waiting += (each for each in units if (each.kind, each.table) not in waiting)

    def _due(self, kind: Kind, name: TableName, every: float) -> bool:
        now = time.monotonic()
        due = now - self._last.get((kind, name), -every) >= every
        if due:
            self._last[kind, name] = now
        return due


def _may_go_on(unit: Unit) -> bool:
    """Whether there may be more of what was done."""
    if unit.kind == "expire":
        return unit.done.expired_snapshots >= SNAPSHOTS
    return bool(unit.done) and unit.kind in ("flush", "merge")


def _done(site: Site, policy: MaintenancePolicy, unit: Unit) -> Chores:
    match unit.kind:
        case "flush" if policy.flush is not None:
            return _flushed(site, replace(policy.flush, ended_only=unit.again), unit)
        case "merge" if policy.merge:
            with ExitStack() as held:
                held.enter_context(site.turn())
                return _merged(site, replace(policy, flush=None), unit.table, lambda: _written(held, site))
        case "clean" if policy.merge:
            return site.maintenance.delete_replaced()
        case "expire" if policy.expire is not None:
            portion = Portion(SNAPSHOTS, site.between, lambda: site.policy().keep)
            return site.maintenance.expire(unit.table, policy.expire, policy.keep, policy.newest, portion)
        case "orphans" if policy.orphans is not None:
            return site.maintenance.remove_orphans(unit.table, policy.orphans)
    return Chores()  # no longer allowed


def _flushed(site: Site, limits: FlushLimits, unit: Unit) -> Chores:
    """Every delivery to the table may change rows in the catalog: they are read and written between two of them.

    If that takes too long again and again, it is committed all the same: rather one delivery is planned again than
    that a table which changes all the time is never flushed.
    """
    flush = MaintenancePolicy(merge=False, flush=limits)
    if not site.maintenance.plan(unit.table, flush):
        return Chores()
    with site.turn(), site.between(patience=GAP) as ready:
        insisting = unit.tries >= TRIES
        done = _merged(site, flush, unit.table, at_any_time if insisting else lambda: nullcontext(ready))
    if not done:
        raise CommitConflict(f"a delivery has changed rows of {unit.table} meanwhile", hint="they are moved later")
    return done


def _written(turn: ExitStack, site: Site) -> AbstractContextManager[Ready]:
    """Spark has done its work: while this waits for a moment to commit, another lake may have its turn."""
    turn.close()
    return site.between()


def _merged(
    site: Site, policy: MaintenancePolicy, table: TableName, between: Callable[[], AbstractContextManager[Ready]]
) -> Chores:
    """One bin: a single task of Spark, which leaves the other cores to deliveries."""
    return flow.merge_files(lambda: site.spark, site.maintenance, table, policy, 1, between)
