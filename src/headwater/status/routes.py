"""The status of routes: how far each destination is behind its source, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from headwater.config import Config, Route
from headwater.state import State
from headwater.state.processes import held
from headwater.state.routes import DestinationRow, RouteId, RouteRow, complete_upto, spelled
from headwater.status.backlog import Backlog, RouteLag, lake_backlog, log_backlog
from headwater.supervise.instances import instance_name, owner_of
from headwater.supervise.requests import check_route
from headwater.words import counted

__all__ = [
    "DestinationHealth",
    "DestinationStatus",
    "InstanceStatus",
    "RouteStatus",
    "route_statuses",
    "statuses_of_routes",
]

# healthy: it has everything. buffering: changes wait for the next poll. flushing: a poll delivers them. lagging: they
# wait for longer than they should, or it is to be seeded. error: it failed, and is tried again. paused: by hand.
DestinationHealth = Literal["healthy", "buffering", "flushing", "lagging", "error", "paused"]

CIRCUIT_FAILURES = 3  # in a row, after which its circuit is open: it is only probed until it answers
LAGGING_SECONDS, LAGGING_POLLS = 30.0, 3  # whichever is longer
SHOWN_PROBLEMS = 10  # of destinations, per route


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationStatus:
    """A destination of a route. Its lag is against the newest snapshot of the source."""

    route: str
    value: str | None  # None: the default
    instance: str | None  # None: none has had it yet
    lake: str
    table: str
    status: DestinationHealth
    position: str | None  # complete up to here
    rows: int  # that it should hold
    inserted: int
    updated: int
    deleted: int
    lag_snapshots: int | None
    lag_seconds: float | None
    waiting_rows: int
    seed: str | None  # why it is to be seeded
    error: str | None
    failures: int
    circuit_open: bool
    retry_at: datetime | None
    delivered_at: datetime | None

    def __str__(self) -> str:
        return spelled(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """One of the processes that share a route: its destinations are complete up to `position`, unless they say else."""

    name: str
    running: bool
    position: str | None = None
    polled_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteStatus:
    """A route: where its source is, whether processes deliver it, and its destinations."""

    name: str
    source: str
    running: bool  # all its instances
    position: str | None  # of the instance that is furthest behind
    source_position: str | None
    source_error: str | None  # None: it is reachable
    unknown_rows: int
    null_rows: int
    instances: tuple[InstanceStatus, ...]
    destinations: tuple[DestinationStatus, ...] = ()

    @property
    def problems(self) -> Iterator[str]:
        """What is not as it should be."""
        if self.source_error:
            yield f"its source cannot be read: {self.source_error}"
        for each in self.instances:
            who = f"instance {each.name!r}: " if len(self.instances) > 1 else ""
            if not each.running:
                yield f"{who}no process delivers it"
            if each.error:
                yield f"{who}{each.error}"
        if homeless := sum(each.instance is None for each in self.destinations) * self.running:
            yield f"no instance has {counted(homeless, 'destination')}"
        failed = [each for each in self.destinations if each.status == "error"]
        yield from (f"destination {str(each)!r}: {each.error}" for each in failed[:SHOWN_PROBLEMS])
        if more := failed[SHOWN_PROBLEMS:]:
            yield f"{counted(len(more), 'more destination')} failed"

    def behind(self, most: timedelta) -> Iterator[str]:
        """Which destinations are further behind than that, or it is not known how far; paused ones are not meant."""
        followed = [each for each in self.destinations if each.status != "paused"]
        unknown = [each for each in followed if each.lag_seconds is None]
        known = [(each.lag_seconds, each) for each in followed if each.lag_seconds is not None]
        late = [each for each in known if each[0] > most.total_seconds()]
        if unknown or not self.destinations:
            yield f"the lag of {counted(len(unknown), 'destination')} is not known"
        if late:
            worst, of = max(late, key=lambda each: each[0])
            yield f"the lag of {counted(len(late), 'destination')} is too large: {str(of)!r} has {worst:.1f} s"


def statuses_of_routes(config: Config, env: Mapping[str, str], names: Collection[str] = ()) -> tuple[RouteStatus, ...]:
    """The status of the named routes, or of all; ConfigError if there is no such route."""
    for name in names:
        check_route(config, name)
    with closing(State.connect(config.state_url)) as state:
        return route_statuses(config, env, state, names or config.routes)


def route_statuses(
    config: Config, env: Mapping[str, str], state: State, names: Collection[str]
) -> tuple[RouteStatus, ...]:
    """These routes of the config, as the state and their sources know them."""
    if not names:
        return ()
    ((now, table),) = state.query("SELECT clock_timestamp(), to_regclass('headwater.destinations')")
    rows = [] if table is None else state.routes()  # None: an older version has made the state
    running = held(state, [owner_of(RouteId(row.name, row.instance)) for row in rows])
    found = []
    for name in names:
        mine = {row.instance: row for row in rows if row.name == name}
        known = _Known(
            name,
            config.routes[name],
            mine,
            {each for each in mine if owner_of(RouteId(name, each)) in running},
            [] if table is None else state.destinations(name),
        )
        source = _source(config, env, state, known)
        found.append(_Seen(known, source, now).status(instance_name(config)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the state knows about a route: its instances, those of them that run, its destinations."""

    name: str
    route: Route
    instances: Mapping[str, RouteRow]
    running: Collection[str]
    destinations: Sequence[DestinationRow]

    def furthest(self) -> int | None:
        """The position of those that are furthest behind."""
        found = (complete_upto(row, self.instances) for row in self.destinations)
        return min((each for each in found if each is not None), default=None)


def _source(config: Config, env: Mapping[str, str], state: State, known: _Known) -> Backlog:
    if known.route.source.group is None:
        return lake_backlog(config, env, known.route, known.furthest())
    return log_backlog(state, known.route, known.furthest())


@dataclass(frozen=True, slots=True)
class _Seen:
    """A route, beside its source as it is now."""

    known: _Known
    source: Backlog
    now: datetime

    def status(self, own: str) -> RouteStatus:
        """The status; `own` is the instance of this config, which counts if no other one does."""
        known = self.known
        having = {row.instance for row in known.destinations if row.instance is not None}
        names = [each for each in known.instances if each in having or each in known.running] or [own]
        instances = tuple(self._instance(each) for each in names)
        rows = [row for name, row in known.instances.items() if name in names]
        positions = [row.position for row in rows if row.position is not None]
        return RouteStatus(
            name=known.name,
            source=_named(known.route),
            running=all(each.running for each in instances),
            position=self.source.text(min(positions, default=None)),
            source_position=self.source.text(self.source.newest),
            source_error=self.source.error,
            unknown_rows=max((row.unknown_rows for row in rows), default=0),  # each instance sees all rows
            null_rows=max((row.null_rows for row in rows), default=0),
            instances=instances,
            destinations=tuple(map(self._destination, known.destinations)),
        )

    def _instance(self, name: str) -> InstanceStatus:
        row = self.known.instances.get(name)
        if row is None:
            return InstanceStatus(name=name, running=False)
        return InstanceStatus(
            name=name,
            running=name in self.known.running,
            position=self.source.text(row.position),
            polled_at=row.polled_at,
            error=row.error,
        )

    def _destination(self, row: DestinationRow) -> DestinationStatus:
        position = complete_upto(row, self.known.instances)
        lag = self.source.lag(position, self.now)
        waits = row.retry_at is not None and row.retry_at > self.now
        return DestinationStatus(
            route=row.route,
            value=row.value,
            instance=row.instance,
            lake=row.lake,
            table=str(row.name),
            status=self._health(row, lag),
            position=self.source.text(position),
            rows=row.seeded + row.inserted - row.deleted,
            inserted=row.inserted,
            updated=row.updated,
            deleted=row.deleted,
            lag_snapshots=lag.snapshots,
            lag_seconds=lag.seconds,
            waiting_rows=row.waiting_rows,
            seed=row.reseed,
            error=row.error,
            failures=row.failures,
            circuit_open=waits and row.failures >= CIRCUIT_FAILURES,
            retry_at=row.retry_at,
            delivered_at=row.delivered_at,
        )

    def _health(self, row: DestinationRow, lag: RouteLag) -> DestinationHealth:
        if row.state in ("PAUSED", "ERRORED"):
            return "paused" if row.state == "PAUSED" else "error"
        longest = max(LAGGING_SECONDS, LAGGING_POLLS * self.known.route.poll.total_seconds())
        if row.reseed is not None or (lag.seconds or 0.0) > longest:
            return "lagging"
        if lag.complete:
            return "healthy"
        instance = self.known.instances.get(row.instance or "")
        flushes = instance is not None and instance.polling and row.instance in self.known.running
        return "flushing" if flushes else "buffering"


def _named(route: Route) -> str:
    source = route.source
    return f"{source.table} of " + (f"group {source.group}" if source.lake is None else f"lake {source.lake}")
