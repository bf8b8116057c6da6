"""What destinations are compared with: the source of their route as it was at a position, for DuckDB to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession

from headwater.change import Lsn, TableName
from headwater.config import Config
from headwater.errors import TableError
from headwater.flow import Mirroring
from headwater.flow.logsource import LogSource
from headwater.flow.routesource import RouteSource, SourceAt
from headwater.lake.sink import Reader, TableSnapshot
from headwater.lake.stream import FEED
from headwater.sink.addresses import lake_addresses
from headwater.state import State
from headwater.supervise.opening import mirroring
from headwater.supervise.sources import opened_source, route_rules

__all__ = ["Moment", "Origin", "opened_origin"]


@dataclass(frozen=True, slots=True)
class Moment:
    """The source at a position: its columns, and the table of a lake that has its rows."""

    at: SourceAt
    reader: Reader
    table: TableName


class Origin(Protocol):
    """A route's source, and its moments."""

    @property
    def source(self) -> RouteSource: ...

    def moment(self, position: int, held: ExitStack) -> Moment | None:
        """None if no snapshot shows it any more. Else that one does not expire before the end of `held`."""
        ...


@contextmanager
def opened_origin(
    config: Config, env: Mapping[str, str], state: State, spark: SparkSession, name: str
) -> Iterator[Origin]:
    """What a route reads, opened."""
    route = config.routes[name]
    if route.source.group is None:
        with opened_source(config, env, name) as source:
            yield _LakeOrigin(config, env, state, name, source)
        return
    with closing(mirroring(config, env, state, route.source.group, spark)) as m:
        yield _LogOrigin(m, LogSource(m, route.source.table, route_rules(route), route.batch.rows))


@dataclass(frozen=True, slots=True)
class _LakeOrigin:
    config: Config
    env: Mapping[str, str]
    state: State
    name: str
    source: RouteSource

    def moment(self, position: int, held: ExitStack) -> Moment | None:
        held.enter_context(self.state.pinned(self.source.id(), position))
        at, source = self.source.at(position), self.config.routes[self.name].source
        if at is None:
            return None
        lake = lake_addresses(self.config, self.env, [source.lake or ""])[source.lake or ""].find(self.name, FEED)
        assert lake is not None, "it has been opened"
        with closing(lake):
            return Moment(at, lake.reader(position), source.table)


@dataclass(frozen=True, slots=True)
class _LogOrigin:
    """A group's log has the changes alone. All rows at a position are in a snapshot of the mirror."""

    m: Mirroring
    source: LogSource

    def moment(self, position: int, held: ExitStack) -> Moment | None:
        at = self.source.at(position)
        row = next((row for row in self.m.state.tables(self.m.group) if at and row.oid == at.table), None)
        if at is None or row is None:
            return None
        if row.options.mode == "history":
            raise TableError("its source is a history, of which no snapshot shows the rows alone")
        found = self._showing(row.oid, position)
        if found is None:
            return None
        held.enter_context(self.m.state.pinned(self.m.lake_id, found.snapshot_id))
        if self._showing(row.oid, position) != found:
            return None  # it has expired just before
        number = found.snapshot_id if self.m.sink.lake_snapshots else position
        return Moment(at, self.m.sink.reader(number), found.name)

    def _showing(self, oid: int, position: int) -> TableSnapshot[Lsn] | None:
        found = self.m.sink.snapshots_at(Lsn(position)).get(oid)
        return found if found is not None and found.position == Lsn(position) else None
