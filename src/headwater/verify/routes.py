"""Compare the destinations of a route with its source, each with the source's snapshot that it shows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from headwater.change import TableName
from headwater.config import Config
from headwater.errors import HeadwaterError
from headwater.flow.routesource import Columns, RouteRules, SourceAt
from headwater.lake.sink import Plan, Reader, Sink
from headwater.route.destinations import Routing
from headwater.route.lakes import DestinationLake
from headwater.state import State
from headwater.state.routes import DestinationRow, complete_upto
from headwater.supervise.destinations import Finder
from headwater.supervise.sources import route_rules
from headwater.verify import Verified
from headwater.verify.compare import Compared
from headwater.verify.origins import Moment, Origin, opened_origin
from headwater.verify.shares import CarriedColumn, DestinationSide, Shape, SourceSide, compare_shares

__all__ = ["verify_route"]

LAKES_AT_ONCE = 8
ONLY_CHANGES = "it began with `seed: latest`, and has only what has changed since"


def verify_route(
    config: Config, env: Mapping[str, str], state: State, spark: SparkSession, name: str, only: Collection[str]
) -> list[Verified]:
    """Compare the destinations of a route, or `only` those of these ids, also while a process delivers to them."""
    route = config.routes[name]
    rows = [row for row in state.destinations(name) if not only or row.id in only]
    if route.seed == "latest":
        return [_not_compared(row, ONLY_CHANGES, ok=True) for row in rows]
    try:
        with opened_origin(config, env, state, spark, name) as origin, ExitStack() as held:
            return list(_Sides(config, env, name, origin, route_rules(route), state, held).verdicts(spark, rows))
    except HeadwaterError as error:
        return [_not_compared(row, error.message) for row in rows]


@dataclass(frozen=True, slots=True)
class _Landed:
    """A destination as its lake has it.

    It was brought to `position` of the source, and shows `shows`, as nothing came for it from there to there.
    """

    position: int
    shows: int
    table: TableName
    snapshot_id: int | None
    reader: Reader


@dataclass(frozen=True, slots=True)
class _Sides:
    """Finds what is to be compared with what."""

    config: Config
    env: Mapping[str, str]
    name: str
    origin: Origin
    rules: RouteRules
    state: State
    held: ExitStack  # the pins of what is read

    def verdicts(self, spark: SparkSession, rows: list[DestinationRow]) -> Iterator[Verified]:
        source = self.origin.source
        newest = source.newest()
        finder = Finder(self.config, self.env, self.name, self.state, source.id(), "")
        found = finder.look(newest.schema.field(self.rules.by).type)
        numbers = found.numbers({row.id for row in rows})
        instances = {row.instance: row for row in self.state.routes() if row.name == self.name}
        complete = {row.id: complete_upto(row, instances) for row in rows}  # before their lakes are looked at

        def looked_at(row: DestinationRow) -> _Landed | str:
            if row.id not in numbers:
                return "it is no longer in the config"
            lake = found.lakes[numbers[row.id]]
            return self._landed(row, lake, newest.table, complete[row.id])

        with ThreadPoolExecutor(LAKES_AT_ONCE) as pool:
            asked = dict(zip((row.id for row in rows), pool.map(looked_at, rows), strict=True))
        landed = {numbers[id_]: each for id_, each in asked.items() if isinstance(each, _Landed)}
        moments = {shows: self.origin.moment(shows, self.held) for shows in {each.shows for each in landed.values()}}
        compared = self._compared(spark, landed, moments, found.routing)
        for row in rows:
            each = asked[row.id]
            if isinstance(each, str):
                yield _not_compared(row, each, ok=row.id not in numbers)
            elif moments[each.shows] is None:
                shows = newest.position.at(each.shows)
                yield _not_compared(row, f"it shows the source at {shows}, of which the snapshot has expired")
            else:
                yield self._verdict(row, each, compared[numbers[row.id]])

    def _landed(self, row: DestinationRow, lake: DestinationLake, table: int, complete: int | None) -> _Landed | str:
        """The destination, or why there is nothing to compare. Its snapshot does not expire meanwhile."""
        if row.reseed is not None:
            return f"it waits to be seeded: {row.reseed}"
        if complete is None:
            return "it has not been seeded yet"
        try:
            sink = lake.address.find(lake.source, self.origin.source.stream)
            if sink is None:
                return f"there is no lake in {lake.address}"
            with closing(sink):
                plan = self._pinned(sink)
                standing = plan.standings.get(table)
                if standing is None:
                    return f"the lake {lake.address} has no table of this route"
                position, number = standing.position.value, plan.snapshot_id if sink.lake_snapshots else None
                shows = max(position, complete)
                return _Landed(position, shows, standing.name, number, sink.reader(plan.snapshot_id))
        except HeadwaterError as error:
            return error.message

    def _pinned(self, sink: Sink[Any, Any]) -> Plan[Any]:
        """On the newest snapshot, which may not be the newest for long: the pin comes before it can expire."""
        plan = sink.plan()
        self.held.enter_context(self.state.pinned(sink.lake_id(), plan.snapshot_id))
        return plan

    def _compared(
        self,
        spark: SparkSession,
        landed: Mapping[int, _Landed],
        moments: Mapping[int, Moment | None],
        routing: Routing,
    ) -> dict[int, Compared]:
        """Compare those whose moments are there: one read of the source for each moment."""
        sides: list[SourceSide | DestinationSide] = []
        for shows, moment in moments.items():
            mine = {number: each for number, each in landed.items() if each.shows == shows}
            if moment is not None:
                shape, by, where = self._shape(moment.at), self.rules.by, self.rules.where
                numbers = frozenset(mine)
                sides.append(SourceSide(moment.reader, moment.table, shape, by, routing, numbers, where))
                sides += [self._destination(moment.at, number, each, routing) for number, each in mine.items()]
        return compare_shares(spark, sides) if sides else {}

    def _shape(self, at: SourceAt) -> Shape:
        table = Columns.of(at, self.rules).table
        columns = tuple(CarriedColumn(each.name, at.kinds[each.name], each.missing) for each in table.relation.columns)
        key = tuple(index for index, each in enumerate(columns) if each.name in table.key)
        return Shape(columns, key)

    def _destination(self, at: SourceAt, number: int, landed: _Landed, routing: Routing) -> DestinationSide:
        """Its columns have the names that they had when it was last written to."""
        then = self.origin.source.at(landed.position) or at
        names = {column.attnum: column.name for column in then.relation.columns}
        named = {column.name: names.get(column.attnum) for column in at.relation.columns}
        columns, by = tuple(named.values()), named.get(self.rules.by)
        return DestinationSide(landed.reader, landed.table, self._shape(at), columns, by, routing, number)

    def _verdict(self, row: DestinationRow, landed: _Landed, each: Compared) -> Verified:
        if each.error:
            return _not_compared(row, each.error)
        return Verified(
            group=None,
            table=str(self.config.routes[self.name].source.table),
            lake_table=str(landed.table),
            verdict="equal" if each.equal else "differs",
            ok=each.equal,
            reason=each.fault,
            position=str(self.origin.source.stream.position(landed.shows)),
            snapshot_id=landed.snapshot_id,
            source_rows=None if each.fault else each.source_rows,
            lake_rows=None if each.fault else each.lake_rows,
            differences=each.differences,
            route=row.route,
            destination=str(row),
        )


def _not_compared(row: DestinationRow, reason: str, *, ok: bool = False) -> Verified:
    return Verified(
        None, "", str(row.name), "not compared", ok=ok, reason=reason, route=row.route, destination=str(row)
    )
