"""The Spark job of a poll: events are read and routed once, and each destination's share is committed in its task."""

from __future__ import annotations

import logging
import pickle
import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.change import Position
from headwater.errors import CannotFollow, CommitUnknown, HeadwaterError, TimedOut
from headwater.lake.counts import Counts
from headwater.lake.sink import Landed, Sink
from headwater.lake.stream import Stream
from headwater.route.lakes import DestinationLake, sink_of
from headwater.route.net import DESTINATION, Share, event_schema, shares
from headwater.route.reading import Buckets, Reading, Sighted, routed, unpacked
from headwater.route.share import Elsewhere, Prepared, RoutedTable, Shared, Stretch, deliver_share, prepare_share
from headwater.spark import collected, deal, on_partitions, on_tasks

__all__ = ["FannedOut", "Outcome", "Poll", "fan_out"]

logger = logging.getLogger(__name__)

BUCKETS_PER_CORE = 4  # so that a slow destination holds up few others
COMMITS_AT_ONCE = 4  # in one task: while one waits for a disk or a server, others compute

DONE = pa.schema([("outcome", pa.binary())])


class Outcome(NamedTuple):
    """What became of a destination's share of a poll; without an error it stands at `position` now.

    That is not the poll's end if it turned out to stand elsewhere.
    """

    destination: int
    position: Position | None = None
    counts: Counts = Counts()
    error: str | None = None
    needs_seed: bool = False


@dataclass(frozen=True, slots=True)
class Poll:
    """The events of one stretch of the source, and the lakes of the destinations that take part, by their numbers.

    `stand` has the positions that these lakes had last.
    """

    table: RoutedTable
    reading: Reading
    upto: Position
    lakes: Mapping[int, DestinationLake]
    stand: Mapping[int, int]
    stream: Stream[Any]
    attempt: str
    altered: bool = False  # the columns are others than before: then every destination gets them

    def only(self, numbers: Collection[int]) -> Poll:
        """The same poll, for some of its destinations."""
        after = {number: position for number, position in self.reading.after.items() if number in numbers}
        lakes = {number: lake for number, lake in self.lakes.items() if number in numbers}
        return replace(self, reading=replace(self.reading, after=after), lakes=lakes)

    def stretch(self, number: int) -> Stretch:
        after, stands = self.upto.at(self.reading.after[number]), self.upto.at(self.stand[number])
        return Stretch(after, self.upto, stands, self.attempt)


@dataclass(frozen=True, slots=True)
class FannedOut:
    """What became of the destinations that events were for, and what else was seen."""

    outcomes: Mapping[int, Outcome]
    sighted: Sighted


def fan_out(spark: SparkSession, poll: Poll) -> FannedOut:
    """Bring the destinations up to the poll's end. What one of them meets is in its outcome, and stops no other.

    Destinations that no event is for are not touched, unless their columns change.
    """
    found = _with_events(spark, poll) if poll.reading.units else FannedOut({}, Sighted())
    rest = [number for number in poll.lakes if number not in found.outcomes] if poll.altered else []
    return FannedOut({**found.outcomes, **_without_events(spark, poll, rest)}, found.sighted)


def _with_events(spark: SparkSession, poll: Poll) -> FannedOut:
    cores = spark.sparkContext.defaultParallelism
    buckets = Buckets(max(1, min(cores * BUCKETS_PER_CORE, len(poll.lakes))))
    events = routed(spark, poll.reading, buckets).repartitionById(buckets.count, F.col("bucket"))
    found = [pickle.loads(row.outcome) for row in collected(on_partitions(events, _DeliverBucket(poll), DONE))]
    outcomes = {each.destination: each for each in found if isinstance(each, Outcome)}
    return FannedOut(outcomes, Sighted.total(each for each in found if isinstance(each, Sighted)))


def _without_events(spark: SparkSession, poll: Poll, numbers: Sequence[int]) -> dict[int, Outcome]:
    if not numbers:
        return {}
    units = deal([(number, 1) for number in numbers], spark.sparkContext.defaultParallelism)
    rows = collected(on_tasks(spark, units, _Alter(poll), DONE))
    return {each.destination: each for each in (pickle.loads(row.outcome) for row in rows)}


@dataclass(frozen=True, slots=True)
class _Alter:
    """Destinations that only get new columns; yields what became of each."""

    poll: Poll

    def __call__(self, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        shares = [_nothing(number, self.poll.table) for number in numbers]
        events = event_schema(shares[0].upserts.schema).empty_table()
        yield _done(_DeliverBucket(self.poll).outcomes(shares, events))


@dataclass(frozen=True, slots=True)
class _DeliverBucket:
    """A bucket's events → the lakes of its destinations; yields what became of each."""

    poll: Poll

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces: list[pa.Table] = []
        found: list[Outcome | Sighted] = []
        for batch in batches:
            pieces += [unpacked(each.as_buffer()) for each in batch["events"] if each.is_valid]
            found += [pickle.loads(each.as_py()) for each in batch["sighted"] if each.is_valid]
        if pieces:
            found += self._delivered(pa.concat_tables(pieces))
        yield _done(found)

    def _delivered(self, events: pa.Table) -> list[Outcome]:
        return self.outcomes(list(shares(events, self.poll.table.key_kinds, self.poll.reading.after)), events)

    def outcomes(self, mine: Sequence[Share], events: pa.Table) -> list[Outcome]:
        """Deliver shares of these events. Those that share a database are committed together."""
        delivery = _Delivery(self.poll, events)
        with ThreadPoolExecutor(COMMITS_AT_ONCE) as pool:
            prepared = list(pool.map(delivery.prepared, mine))
            done = {each.destination: each for each in prepared if isinstance(each, Outcome)}
            done |= delivery.together([each for each in prepared if isinstance(each, _Written)])
            rest = [share for share in mine if share.destination not in done]
            return [*pool.map(delivery.outcome, rest), *done.values()]


class _Written(NamedTuple):
    """A share that is written and not committed."""

    number: int
    sink: Sink[Any, Any]
    prepared: Prepared


@dataclass(frozen=True, slots=True)
class _Delivery:
    """Shares of these events → lakes. Who has kept us waiting is not asked again, and others are waited for less."""

    poll: Poll
    events: pa.Table
    hung: threading.Event = field(default_factory=threading.Event)  # one of them has

    def _sink(self, number: int) -> Sink[Any, Any]:
        lake = self.poll.lakes[number]
        return sink_of(lake.hurried() if self.hung.is_set() else lake, self.poll.stream)

    def _timed_out(self, number: int, error: TimedOut) -> Outcome:
        self.hung.set()
        return Outcome(number, error=str(error))

    def prepared(self, share: Share) -> _Written | Outcome | None:
        """A share that is written, to be committed together with others; None: it is delivered by itself."""
        number = share.destination
        try:
            sink = self._sink(number)
            if sink.shared is None:
                return None
            prepared = prepare_share(sink, self.poll.table, share, self.poll.stretch(number))
        except TimedOut as error:
            return self._timed_out(number, error)
        except (HeadwaterError, Elsewhere):
            return None  # by itself it will say what is wrong, or begin elsewhere
        return _Written(number, sink, prepared) if isinstance(prepared, Prepared) else None

    def together(self, prepared: Sequence[_Written]) -> dict[int, Outcome]:
        """What became of those that landed or kept us waiting; the others are delivered by themselves."""
        done: dict[int, Outcome] = {}
        by_shared: defaultdict[str | None, list[_Written]] = defaultdict(list)
        for part in prepared:
            by_shared[part.sink.shared].append(part)
        for parts in by_shared.values():
            landed = parts[0].sink.land_together([(each.delivery, each.reports, each.upto) for _, _, each in parts])
            for (number, _, each), outcome in zip(parts, landed, strict=True):
                if isinstance(outcome, Landed):
                    shared = each.landed(outcome)
                    done[number] = Outcome(number, shared.position, shared.counts)
                    continue
                if isinstance(outcome, TimedOut):
                    done[number] = self._timed_out(number, outcome)
                if not isinstance(outcome, CommitUnknown):
                    each.delivery.discard(each.reports)
        return done

    def outcome(self, share: Share) -> Outcome:
        """What became of a share that is delivered by itself."""
        number = share.destination
        try:
            done = self._landed(share)
            return Outcome(number, done.position, done.counts)
        except TimedOut as error:
            return self._timed_out(number, error)
        except HeadwaterError as error:
            return Outcome(number, error=str(error), needs_seed=isinstance(error, CannotFollow))
        except Exception as error:  # a destination's trouble stays its own
            logger.exception("delivery to %s failed", self.poll.lakes[number].source)
            return Outcome(number, error=f"{type(error).__name__}: {error}")

    def _landed(self, share: Share) -> Shared:
        number, table = share.destination, self.poll.table
        sink = self._sink(number)
        stretch = self.poll.stretch(number)
        with sink.kept_open():
            try:
                return deliver_share(sink, table, share, stretch)
            except Elsewhere as moved:
                if not stretch.after <= moved.position < stretch.upto:
                    return Shared(moved.position)
                # Another poll has delivered to it, and was killed before it could note that.
                mine = self.events.filter(pc.equal(self.events[DESTINATION], number))
                rest = list(shares(mine, table.key_kinds, {number: moved.position.value}))
                stretch = replace(stretch, after=moved.position, stands=moved.position)
                # Without events it may still lack a column.
                return deliver_share(sink, table, rest[0] if rest else _nothing(number, table), stretch)


def _nothing(number: int, table: RoutedTable) -> Share:
    """A share without events."""
    schema = pa.schema([pa.field(name, kind.arrow) for name, kind in table.kinds.items()])
    none = pa.array([], pa.binary())
    return Share(number, schema.empty_table(), none, none)


def _done(found: Sequence[Outcome | Sighted]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"outcome": pickle.dumps(each)} for each in found], schema=DONE)
