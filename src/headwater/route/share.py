"""One destination's share of a poll, inside a Spark task: its old rows are found, the new ones written, all committed.

The commit carries the route's position and lands only on the position that it was planned on. A task may therefore be
run again, by Spark or by the next poll: what has landed is not delivered a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater import failpoints
from headwater.change import Position, Relation
from headwater.errors import AlreadyDelivered, CannotFollow, CommitConflict, CommitUnknown, TableError
from headwater.lake.counts import Counts
from headwater.lake.sink import Delivery, Inline, Kinds, Landed, Plan, Sink, Standing, Volume
from headwater.lake.target import Destination, Place, Sought, rows_of
from headwater.route.net import Share
from headwater.values.keys import known_by, leading_bounds
from headwater.values.keyset import KeySet

__all__ = ["Elsewhere", "NotSeeded", "Prepared", "RoutedTable", "Shared", "Stretch", "deliver_share", "prepare_share"]

TRIES = 5  # at a commit that others were faster than
SEARCHED_ROWS = 100_000  # of several files, for keys


class NotSeeded(CannotFollow):
    """The destination's lake does not have the table, or another one: only seeding helps."""


class Elsewhere(Exception):
    """The destination does not stand where it was last seen: it was delivered to since, or restored from a backup."""

    def __init__(self, position: Position) -> None:
        super().__init__(position)
        self.position = position


@dataclass(frozen=True, slots=True)
class RoutedTable:
    """The table that a route carries, as it is at the end of a poll: its columns are those that destinations get."""

    relation: Relation
    kinds: Kinds
    key: tuple[str, ...]  # none: rows only come
    inline_rows: int | None = None  # that a destination may have in its catalog; None: rows go into files only

    @property
    def key_kinds(self) -> Kinds:
        return {name: self.kinds[name] for name in self.key}


class Shared(NamedTuple):
    """Where the destination stands now, and what it got."""

    position: Position
    counts: Counts = Counts()
    snapshot_id: int | None = None  # None: nothing was written


@dataclass(frozen=True, slots=True)
class Stretch:
    """From where to where a poll brings a destination, and under which attempt files are written.

    `stands` is the position in its own lake, which is before `after` if there was nothing to write for a while.
    """

    after: Position
    upto: Position
    stands: Position
    attempt: str


def deliver_share(sink: Sink[Any, Any], table: RoutedTable, share: Share, stretch: Stretch) -> Shared:
    """Land a share of the events of a stretch; Elsewhere if the destination does not stand where it should."""
    for tries in range(TRIES):
        try:
            prepared = prepare_share(sink, table, share, stretch)
            return prepared if isinstance(prepared, Shared) else prepared.commit()
        except (CommitConflict, AlreadyDelivered):
            if tries + 1 == TRIES:
                raise
        except CommitUnknown:
            standing = sink.standings().get(table.relation.oid)
            if standing is None or standing.position < stretch.upto:
                raise
            return Shared(standing.position)
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A share that is written and not committed."""

    delivery: Delivery[Any]
    reports: dict[Destination, list[bytes]]
    upto: Mapping[int, Position]
    name: str  # of the table

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Leave no files behind, unless they may have landed."""
        try:
            yield
        except CommitUnknown:
            raise
        except Exception:
            self.delivery.discard(self.reports)
            raise

    def commit(self) -> Shared:
        with self.undone_on_error():
            landed = self.delivery.commit(self.reports, (), self.upto, {})
        return self.landed(landed)

    def landed(self, landed: Landed) -> Shared:
        ((oid, position),) = self.upto.items()
        failpoints.hit("route.committed", self.name)
        if oid in landed.missed:
            raise CommitConflict(f"another client changed {self.name} meanwhile", hint="plan again")
        return Shared(position, landed.counts.get(oid, Counts()), landed.snapshot_id)


def prepare_share(sink: Sink[Any, Any], table: RoutedTable, share: Share, stretch: Stretch) -> Prepared | Shared:
    """Write a share without committing it; Elsewhere if the destination does not stand where it should."""
    _check(table, share)
    with sink.at_once():
        return _Delivery(sink.plan(), table, share, stretch).prepare()


def _check(table: RoutedTable, share: Share) -> None:
    if not table.key and len(share.gone):
        raise TableError(
            "a row was updated or deleted in the source of an append-only route",
            hint="remove `mode: append` from the route: it then needs `keys`",
        )


@dataclass(frozen=True, slots=True)
class _Delivery:
    plan: Plan[Any]
    table: RoutedTable
    share: Share
    stretch: Stretch

    def prepare(self) -> Prepared | Shared:
        """Write everything that is to be committed; Shared if there is nothing."""
        oid = self.table.relation.oid
        standing = _standing(self.plan, oid)
        if standing.position != self.stretch.stands:
            raise Elsewhere(standing.position)
        standing.check_writable()
        plan, evolved = self.plan.evolved(self.table.relation, self.table.kinds)
        delivery = plan.begin({oid: self.table.key}, attempt=self.stretch.attempt, inline=self._inline())
        prepared = Prepared(delivery, {rows_of(oid): []}, {oid: self.stretch.upto}, str(standing.name))
        with prepared.undone_on_error():
            self._write(delivery, prepared.reports[rows_of(oid)])
        if not prepared.reports[rows_of(oid)] and not evolved:
            return Shared(standing.position)  # rows that came and went again: there is nothing to write
        failpoints.hit("route.written", prepared.name)
        return prepared

    def _inline(self) -> Inline | None:
        if self.table.inline_rows is None:
            return None
        changes = self.share.upserts.num_rows + len(self.share.gone)
        volume = Volume(changes, self.share.upserts.get_total_buffer_size())  # which are its own: that is cheap to ask
        return Inline({self.table.relation.oid: volume}, self.table.inline_rows)

    def _write(self, delivery: Delivery[Any], reports: list[bytes]) -> None:
        found = list(self._taken_out(delivery, reports))
        keys = pa.concat_arrays([pa.array([], pa.binary()), *(each.keys for each in found)])
        ids = pa.concat_arrays([pa.array([], pa.int64()), *(each.row_ids for each in found)])
        places = pc.index_in(self.share.keys, value_set=keys)
        known = places.is_valid().to_numpy(zero_copy_only=False)
        new = len(known) - int(known.sum())
        sorted_rows = self.share.upserts.take(pa.array(np.argsort(known, kind="stable")))  # those that are new first
        fresh, replacing = (sorted_rows.slice(0, new), None), (sorted_rows.slice(new), ids.take(places.drop_null()))
        rows = [(each, row_ids) for each, row_ids in (fresh, replacing) if each.num_rows]
        if rows:
            reports += delivery.target.write(rows_of(self.table.relation.oid), rows)

    def _taken_out(self, delivery: Delivery[Any], reports: list[bytes]) -> Iterator[_Found]:
        """The rows of the keys that go, deleted; what the lake notes about it is added to `reports`."""
        if not len(self.share.gone):
            return
        bounds = leading_bounds(self.share.gone, next(iter(self.table.key_kinds.values())))
        wanted = KeySet(self.share.gone)
        for places in _together(delivery.places({self.table.relation.oid: Sought(bounds)})):
            for place, at, keys in self._found(delivery, places, wanted):
                taken = delivery.target.take_out(place, at)
                if taken is not None:
                    reports.append(taken.report)
                    yield _Found(keys.filter(taken.alive), taken.row_ids)

    def _found(
        self, delivery: Delivery[Any], places: Sequence[Place], wanted: KeySet
    ) -> Iterator[tuple[Place, pa.Array, pa.Array]]:
        """The files that have keys that are looked for, where they have them, and which."""
        pieces = [(number, *piece) for number, place in enumerate(places) for piece in delivery.target.keys(place)]
        owners, firsts = (np.array([piece[at] for piece in pieces], np.int64) for at in (0, 1))
        columns = [pa.concat_arrays(each) for each in zip(*(piece[2] for piece in pieces), strict=True)]
        ends = np.cumsum([len(piece[2][0]) for piece in pieces])
        here = known_by(columns, list(self.table.key_kinds.values()))
        hits = wanted.among(here)
        piece = np.searchsorted(ends, hits, side="right")
        positions = hits - (ends - np.diff(ends, prepend=0))[piece] + firsts[piece]
        for number in np.unique(owners[piece]).tolist():
            mine = np.flatnonzero(owners[piece] == number)
            yield places[number], pa.array(positions[mine]), here.take(pa.array(hits[mine]))


class _Found(NamedTuple):
    keys: pa.Array
    row_ids: pa.Array


def _standing(plan: Plan[Any], oid: int) -> Standing[Any]:
    standing = plan.standings.get(oid)
    if standing is None:
        raise NotSeeded("the lake has no table of this route, or that of another source table")
    return standing


def _together(places: Sequence[Place]) -> Iterator[Sequence[Place]]:
    """Files to search as one: many small ones, or a single large one."""
    held: list[Place] = []
    for place in places:
        if held and sum(each.rows for each in held) + place.rows > SEARCHED_ROWS:
            yield held
            held = []
        held.append(place)
    if held:
        yield held
