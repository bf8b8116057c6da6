"""Source → destinations: one turn of a route. Seed what waits for it, then bring everyone up to the newest position.

Most destinations are at the route's own position and share one read from there. Those that are behind, because they
failed, were paused or have been seeded since, share another one, which ends where the others are: the first read never
goes back for them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater import failpoints
from headwater.flow.probing import Probes
from headwater.flow.routesource import Changed, Columns, RouteRules, RouteSource, SourceAt
from headwater.lake.counts import Counts
from headwater.lake.stream import FEED
from headwater.route.collecting import collect_lakes
from headwater.route.destinations import Routing
from headwater.route.fanout import FannedOut, Outcome, Poll, fan_out
from headwater.route.lakes import DestinationLake
from headwater.route.reading import Sighted, survey
from headwater.route.seed import Seed, seed
from headwater.spark import surviving
from headwater.state import State
from headwater.state.routes import Arrival, DestinationRow, RouteId
from headwater.words import counted

__all__ = ["Destinations", "OpenRoute", "Turn", "collect", "follow", "routing_type", "sight"]

logger = logging.getLogger(__name__)

RETRY_FIRST, RETRY_LONGEST = timedelta(seconds=1), timedelta(minutes=15)

SeedMode = Literal["scan", "latest", "earliest"]


@dataclass(frozen=True, slots=True)
class OpenRoute:
    """A route, opened for delivery."""

    id: RouteId
    source: RouteSource
    rules: RouteRules
    seed: SeedMode
    state: State
    spark: SparkSession
    probes: Probes = field(default_factory=Probes)
    collected: dict[str, set[str]] = field(
        default_factory=dict
    )  # by destination, killed polls of which nothing is left

    @property
    def name(self) -> str:
        return self.id.name


@dataclass(frozen=True, slots=True)
class Destinations:
    """The destinations of a route, numbered as `routing` numbers them; `mine` are those that this process has."""

    ids: Sequence[str]
    lakes: Sequence[DestinationLake]
    routing: Routing
    mine: frozenset[str]

    def numbers(self, ids: Collection[str]) -> dict[str, int]:
        return {id_: number for number, id_ in enumerate(self.ids) if id_ in ids}


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn has done: rows by destination, who failed and why, and values that no destination has."""

    landed: Mapping[str, Counts] = field(default_factory=dict)
    seeded: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    caught_up: bool = True  # nothing was left to read for the destinations that took part


def follow(r: OpenRoute, destinations: Destinations) -> Turn:
    """One turn. What a destination meets is noted with it, and stops no other."""
    collect(r, destinations)
    newest = r.source.newest()
    r.state.ensure_route(r.id, r.source.id(), newest.table)
    r.state.regroup(r.id)
    ids = _taking_part(r, destinations)
    waiting = [row for row in _due(r, ids) if row.reseed]
    new, again = ([row for row in waiting if (row.landed is None) is fresh] for fresh in (True, False))
    seeded, not_seeded = _seed(r, newest, destinations, new, empty=r.seed == "latest")
    # What these have missed is not known: they get all rows, whatever `seed` says.
    seeded_again, not_again = _seed(r, newest, destinations, again, empty=False)
    ready = [row for row in _due(r, ids) if not row.reseed]
    together = _Read(r, destinations, [row for row in ready if row.behind is None], newest).take()
    apart = _Read(r, destinations, [row for row in ready if row.behind is not None], None).take()
    return Turn(
        {**together.landed, **apart.landed},
        {**seeded, **seeded_again},
        {**not_seeded, **not_again, **together.failed, **apart.failed},
        together.unknown,
        together.caught_up and apart.caught_up,
    )


def _taking_part(r: OpenRoute, destinations: Destinations) -> frozenset[str]:
    """The destinations of this turn. Of those whose last attempt failed, only those whose lakes answer now.

    Nothing is read for the others, and they are not waited for: a hanging one has cost the turn its time once.
    """
    due = _due(r, destinations.mine)
    failed = {row.id: row for row in due if row.failures}
    numbers = destinations.numbers(failed.keys())
    answers = r.probes.answers({id_: destinations.lakes[number] for id_, number in numbers.items()}, r.source.stream)
    for id_, error in answers.items():
        if error is not None:
            _fail(r, failed[id_], error, None)
    well = {id_ for id_, error in answers.items() if error is None}
    return frozenset(row.id for row in due if row.id not in failed or row.id in well)


def _due(r: OpenRoute, ids: Collection[str]) -> list[DestinationRow]:
    """Those of these destinations that are neither paused nor waiting after a failure."""
    now = datetime.now(UTC)
    return [
        row
        for row in r.state.destinations(r.name)
        if row.id in ids and row.state != "PAUSED" and (row.retry_at is None or row.retry_at <= now)
    ]


def _seed(
    r: OpenRoute, newest: SourceAt, destinations: Destinations, waiting: Sequence[DestinationRow], *, empty: bool
) -> tuple[dict[str, int], dict[str, str]]:
    """Seed these destinations by one scan; the rows that each got, and who got none."""
    if not waiting:
        return {}, {}
    with _pinned(r, newest) as at:
        return _seeded(r, at, destinations, waiting, empty=empty)


@contextmanager
def _pinned(r: OpenRoute, newest: SourceAt) -> Iterator[SourceAt]:
    """What a seed reads. Inside, its snapshot does not expire; the oldest one would be the next to go."""
    at = r.source.oldest() if r.seed == "earliest" else newest
    if r.source.stream is not FEED:
        yield at  # inside the group's own delivery: the newest of all
        return
    with r.state.pinned(r.source.id(), at.position.value):
        yield at  # if it has expired in this very moment, its scan says so, and the turn comes again


def _seeded(
    r: OpenRoute, at: SourceAt, destinations: Destinations, waiting: Sequence[DestinationRow], *, empty: bool
) -> tuple[dict[str, int], dict[str, str]]:
    columns = Columns.of(at, r.rules)
    numbers = destinations.numbers({row.id for row in waiting})
    logger.info("route %s: seeding %s at %s", r.name, counted(len(numbers), "destination"), at.position)
    attempt = _begin(r)
    reading = columns.reading(
        () if empty else r.source.scan(at), destinations.routing, dict.fromkeys(numbers.values(), -1)
    )
    lakes = {number: destinations.lakes[number] for number in numbers.values()}
    done = seed(r.spark, Seed(columns.table, reading, at.position, lakes, r.source.stream, attempt))
    failpoints.hit("seed.committed")
    copied = {id_: done[number].rows for id_, number in numbers.items() if done[number].error is None}
    failed = {id_: error for id_, number in numbers.items() if (error := done[number].error) is not None}
    for row in waiting:
        if row.id in failed:
            _fail(r, row, failed[row.id], None)
    r.state.note_seeded(r.id, at.position.value, copied)
    r.state.end_poll(r.id, attempt, None, (), {})
    rows = counted(sum(copied.values()), "row")
    logger.info("route %s: seeded %s with %s", r.name, counted(len(copied), "destination"), rows)
    return copied, failed


@dataclass(frozen=True, slots=True)
class _Read:
    """One read that these destinations share: up to `upto`, or if they are behind, up to where the others are."""

    r: OpenRoute
    destinations: Destinations
    rows: Sequence[DestinationRow]
    upto: SourceAt | None

    def take(self) -> Turn:
        route = self.r.state.route(self.r.id)
        if not self.rows or route is None or route.position is None:
            return Turn()
        end = self.upto or self.r.source.at(route.position)
        after = self._retained({row.id: route.position if row.behind is None else row.behind for row in self.rows})
        complete = len(after) == len(self.rows)  # the others wait to be seeded
        if end is not None:
            complete = complete and not self._joined(end, after)
            after = {id_: position for id_, position in after.items() if position < end.position.value}
        if not after or end is None:
            return Turn(caught_up=complete)
        changed = self.r.source.changes(min(after.values()), end)
        caught_up = complete and changed.upto.position >= end.position
        columns = Columns.of(changed.upto, self.r.rules)
        if not changed.units and not self._altered(after, columns):
            return self._noted(after, changed.upto, None, FannedOut({}, Sighted()), caught_up=caught_up)
        poll = self._poll(columns, changed, after, _begin(self.r))
        done, whole = self._fanned_out(poll)
        failpoints.hit("route.polled")
        return self._noted(after, changed.upto, poll.attempt if whole else None, done, caught_up=caught_up)

    def _retained(self, after: dict[str, int]) -> dict[str, int]:
        """Those whose changes the source can still tell; the others are seeded again."""
        gone = {position: reason for position in set(after.values()) if (reason := self.r.source.gap(position))}
        for position, reason in gone.items():
            lost = [id_ for id_, each in after.items() if each == position]
            logger.warning("route %s: %s will be seeded again: %s", self.r.name, _listed(lost), reason)
            self.r.state.request_seed(self.r.name, lost, reason)
        return {id_: position for id_, position in after.items() if position not in gone}

    def _joined(self, end: SourceAt, after: Mapping[str, int]) -> bool:
        """Whether some were behind and are where the others are by now: they read on with these in the next turn."""
        if self.upto is not None:
            return False
        joined = [id_ for id_, position in after.items() if position == end.position.value]
        self.r.state.note_behind(self.r.name, dict.fromkeys(joined))
        return bool(joined)

    def _altered(self, after: Mapping[str, int], columns: Columns) -> bool:
        """Whether the table has had other columns since."""
        then = [self.r.source.at(position) for position in set(after.values())]
        return any(each is not None and each.relation.columns != columns.table.relation.columns for each in then)

    def _poll(self, columns: Columns, changed: Changed, after: Mapping[str, int], attempt: str) -> Poll:
        numbers = self.destinations.numbers(after.keys())
        by_number = {numbers[id_]: position for id_, position in after.items()}
        reading = columns.reading(changed.units, self.destinations.routing, by_number)
        lakes = {number: self.destinations.lakes[number] for number in by_number}
        stand = {numbers[row.id]: row.landed for row in self.rows if row.id in numbers and row.landed is not None}
        altered = self._altered(after, columns)
        return Poll(columns.table, reading, changed.upto.position, lakes, stand, self.r.source.stream, attempt, altered)

    def _fanned_out(self, poll: Poll) -> tuple[FannedOut, bool]:
        """Deliver to as many destinations as Spark survives; one that kills its task again and again has failed.

        Also tells whether the job did not die: else the attempt stays noted, since its files are still there.
        """
        jobs = 0

        def job(part: frozenset[int]) -> FannedOut:
            nonlocal jobs
            jobs += 1
            return fan_out(self.r.spark, poll.only(part))

        survived = surviving(self.r.spark, poll.lakes.keys(), job, "destination")
        done = survived.done or FannedOut({}, Sighted())
        died = {number: Outcome(number, error=error) for number, error in survived.failed.items()}
        left = poll.lakes.keys() - survived.tables - died.keys()  # they are where they were
        waits = {number: Outcome(number, error="it waits: another destination has ended the job") for number in left}
        return FannedOut({**done.outcomes, **died, **waits}, done.sighted), jobs == 1

    def _noted(
        self, after: Mapping[str, int], upto: SourceAt, attempt: str | None, done: FannedOut, *, caught_up: bool
    ) -> Turn:
        """Note what became of the destinations: first who did not get everything, then that the others did."""
        state, r, end = self.r.state, self.r, upto.position.value
        outcomes = {self.destinations.ids[number]: each for number, each in done.outcomes.items()}
        failed = self._failed(after, outcomes)
        complete = [id_ for id_ in after if id_ not in failed]
        if self.upto is None:
            route = state.route(r.id)
            joined = route is not None and end == route.position and bool(complete)
            state.note_behind(r.name, {id_: None if joined else max(end, after[id_]) for id_ in complete})
            caught_up = caught_up and not joined  # they read on with the others in the next turn
        else:
            recovered = [row.id for row in self.rows if row.state == "ERRORED" and row.id in complete]
            state.note_behind(r.name, dict.fromkeys(recovered))
        arrivals = [
            Arrival(id_, each.position.value, each.counts)
            for id_, each in outcomes.items()
            if id_ not in failed and each.position is not None
        ]
        if self.upto is not None:  # those that a killed poll has brought further than this one read
            state.note_behind(r.name, {each.id: each.landed for each in arrivals if each.landed > end})
        ids, mine = self.destinations.ids, self.destinations.mine
        waiting = {ids[number]: rows for number, rows in done.sighted.waiting.items() if ids[number] in mine}
        moves = self.upto is not None
        state.end_poll(r.id, attempt, end if moves else None, arrivals, waiting if moves else {})
        if moves and (done.sighted.unknown or done.sighted.null):
            state.note_unrouted(r.id, done.sighted.unknown.total(), done.sighted.null)
        landed = {each.id: each.counts for each in arrivals if each.counts != Counts()}
        return Turn(landed, failed=failed, unknown=done.sighted.unknown, caught_up=caught_up)

    def _failed(self, after: Mapping[str, int], outcomes: Mapping[str, Outcome]) -> dict[str, str]:
        """Note the destinations that did not get their share, and where they are."""
        r, failed = self.r, {}
        for row in self.rows:
            each = outcomes.get(row.id)
            if each is None:
                continue
            if each.error is not None:
                failed[row.id] = each.error
                _fail(r, row, each.error, after[row.id])
                if each.needs_seed:
                    r.state.request_seed(r.name, [row.id], each.error)
            elif each.position is not None and each.position.value < after[row.id] and not _is_where_it_was(row, each):
                failed[row.id] = f"its lake went back to {each.position}: it goes on from there"
                logger.warning("route %s: destination %s: %s", r.name, row, failed[row.id])
                r.state.note_went_back(r.name, row.id, each.position.value)
        return failed


def _is_where_it_was(row: DestinationRow, outcome: Outcome) -> bool:
    """Whether its lake is where it was last: there was nothing to write for it since."""
    return outcome.position is not None and outcome.position.value == row.landed


def _begin(r: OpenRoute) -> str:
    """An attempt to write, noted before its first file."""
    attempt = uuid.uuid4().hex
    r.state.begin_poll(r.id, attempt)
    return attempt


def _fail(r: OpenRoute, row: DestinationRow, error: str, behind: int | None) -> None:
    """A destination that fails waits, longer each time; the others go on."""
    wait = min(RETRY_FIRST * 2 ** min(row.failures, 12), RETRY_LONGEST)
    r.state.note_failed(r.name, row.id, error, behind, datetime.now(UTC) + wait)
    logger.error("route %s: destination %s: %s", r.name, row, error, extra={"retry_in": wait.total_seconds()})


def _listed(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:5])
    return shown if len(ids) <= 5 else f"{shown} and {len(ids) - 5} more"


def sight(r: OpenRoute, destinations: Destinations) -> Mapping[str, int]:
    """The values in the source that have no destination, and how many rows have each."""
    newest = r.source.newest()
    columns = Columns.of(newest, r.rules)
    reading = columns.reading(r.source.scan(newest), destinations.routing, {})
    return survey(r.spark, reading).unknown if reading.units else {}


def collect(r: OpenRoute, destinations: Destinations) -> int:
    """Delete what killed polls have left in the lakes of destinations; how many files. None may be under way.

    A lake is asked until it has been, but not while its destination is paused or has failed.
    """
    dead = set(r.state.attempts(r.id))
    if not dead:
        return 0
    left = {id_ for id_ in destinations.mine if not dead <= r.collected.get(id_, set())}
    asked = {row.id: row for row in _due(r, left) if not row.failures}
    numbers = destinations.numbers(asked.keys())
    rows, lakes = [asked[id_] for id_ in numbers], [destinations.lakes[number] for number in numbers.values()]
    found = collect_lakes(r.spark, lakes, r.source.stream, dead)
    if found.files:
        logger.info("route %s: deleted %s that killed polls had left", r.name, counted(found.files, "file"))
    if found.failed:
        logger.warning("route %s: files of killed polls stay for now: %s", r.name, next(iter(found.failed.values())))
    route = r.state.route(r.id)
    for number in found.timed_out:
        _fail(r, rows[number], found.failed[number], None if route is None else route.position)
    done = {row.id for number, row in enumerate(rows) if number not in found.failed}
    r.collected.update(dict.fromkeys(done, dead))
    if left <= done:
        r.state.forget_attempts(dead)
    return found.files


def routing_type(r: OpenRoute) -> pa.DataType:
    """The type of the column that the route goes by; ConfigError if the table lacks a column that the route needs."""
    newest = r.source.newest()
    columns = Columns.of(newest, r.rules)
    if columns.condition is not None:
        columns.condition.check()
    return newest.schema.field(r.rules.by).type
