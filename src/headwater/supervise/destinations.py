"""The destinations of a route: those that the file lists, those of a table, those made for values that were seen."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.change import TableName
from headwater.config import Config, FromTable, FromTemplate, HashInstance, Route
from headwater.errors import ConfigError, HeadwaterError
from headwater.files import is_local
from headwater.flow.routing import Destinations
from headwater.lake.address import LakeAddress
from headwater.lake.template import allowed, escaped, filled
from headwater.master import is_cluster
from headwater.route.destinations import Routing
from headwater.route.lakes import DestinationLake
from headwater.route.values import canonical, canonical_patterns
from headwater.sink.addresses import lake_addresses, row_address, template_address
from headwater.state import State
from headwater.state.routes import DEFAULT, Found, RouteId, destination_id
from headwater.supervise.instances import instance_name
from headwater.supervise.listing import COLUMNS, listing

__all__ = ["Finder"]

logger = logging.getLogger(__name__)

MEMBERS_CHANGED = "which values have a destination of their own has changed"


class Named(NamedTuple):
    """A destination as it was found, before its value is brought to the column's type."""

    value: str
    address: LakeAddress
    table: TableName
    paused: bool = False


@dataclass(slots=True)
class Finder:
    """Finds a route's destinations, as often as it is asked; a table is read again when its time has come."""

    config: Config
    env: Mapping[str, str]
    name: str
    state: State
    source_id: str
    owner: str
    _rows: list[Named] = field(default_factory=list)
    _paused: set[str] = field(default_factory=set)  # by the table that lists them
    _read_at: float | None = None

    @property
    def route(self) -> Route:
        return self.config.routes[self.name]

    def find(self, type_: pa.DataType, seen: Collection[str] = ()) -> Destinations:
        """The destinations now; `seen` are values of the routing column that had none.

        They are made known in the state, and those that this process is to deliver to are claimed.
        """
        found, paused = self._found(type_, seen)
        self._note(found.ids, found.lakes, paused)
        return replace(found, mine=self._claimed(found.ids, type_))

    def look(self, type_: pa.DataType) -> Destinations:
        """The destinations now, none of which is ours: nothing is noted."""
        return self._found(type_, ())[0]

    def _found(self, type_: pa.DataType, seen: Collection[str]) -> tuple[Destinations, set[str]]:
        """The destinations, and which of them their table has paused."""
        to = self.route.to
        named = list(self._templated(to, type_, seen) if isinstance(to, FromTemplate) else self.named())
        default = self.route.default
        routing = Routing.of([each.value for each in named], type_, has_default=default is not None)
        ids = [destination_id(value) for value in routing.values]
        lakes = [self._lake(value, each.address, each.table) for value, each in zip(routing.values, named, strict=True)]
        paused = {id_ for id_, each in zip(ids, named, strict=True) if each.paused}
        if default is not None:
            address = lake_addresses(self.config, self.env, [default.lake])[default.lake]
            ids.append(DEFAULT)
            lakes.append(self._lake(None, address, self.route.target(default.renamed)))
        _check_apart(ids, lakes)
        return Destinations(ids, lakes, routing, frozenset()), paused

    def named(self) -> Iterator[Named]:
        """The destinations that the file or its table names, without the default; none of a template."""
        to = self.route.to
        if isinstance(to, FromTable):
            if self._read_at is None or time.monotonic() - self._read_at > to.every.total_seconds():
                self._read(to)
            yield from self._rows
        elif not isinstance(to, FromTemplate):
            lakes = lake_addresses(self.config, self.env, {each.lake for each in to})
            for each in to:
                yield Named(each.value, lakes[each.lake], self.route.target(each.renamed))

    # -- made for values that were seen

    def _templated(self, to: FromTemplate, type_: pa.DataType, seen: Collection[str]) -> Iterator[Named]:
        patterns = canonical_patterns(to.allow, type_)
        known = [row.value for row in self.state.destinations(self.name) if row.value is not None]
        wanted = [value for value in dict.fromkeys((*known, *sorted(seen))) if allowed(value, patterns)]
        if len(wanted) > to.limit:
            logger.warning(
                "route %s: %d values want a destination, and `limit` is %d: the others get none", self.name,
                len(wanted), to.limit,
            )  # fmt: skip
        secrets = self.config.secrets()
        for value in wanted[: to.limit]:
            renamed = to.renamed and TableName(*(filled(part, value) for part in to.renamed))
            address = template_address(to.lake, value, self.env, secrets)
            yield Named(value, address, self.route.target(renamed))

    # -- listed by a table

    def _read(self, to: FromTable) -> None:
        """Read the table; one that cannot be read leaves the destinations as they were, except at the start."""
        try:
            self._rows = [self._row(each) for each in listing(self.config, self.env, to)]
        except HeadwaterError as error:
            if self._read_at is None:
                raise
            logger.warning("route %s: the destinations stay as they are: %s", self.name, error)
        self._read_at = time.monotonic()

    def _row(self, row: Mapping[str, Any]) -> Named:
        if row.get("value") is None:
            raise ConfigError(
                f"the table of route {self.name!r} has a row without a `value`",
                hint=COLUMNS,
            )
        value = str(row["value"])
        try:
            renamed = TableName.parse(row["as"]) if row.get("as") else None
        except ValueError as error:
            raise ConfigError(f"destination {value!r} of route {self.name!r}: {error}") from error
        return Named(value, self._row_lake(value, row), self.route.target(renamed), bool(row.get("paused")))

    def _row_lake(self, value: str, row: Mapping[str, Any]) -> LakeAddress:
        if (name := row.get("lake")) is not None:
            if name not in self.config.lakes:
                raise ConfigError(
                    f"destination {value!r} of route {self.name!r} is in lake {name!r}, which the config does not have",
                    hint=f"known lakes: {', '.join(self.config.lakes)}",
                )
            return lake_addresses(self.config, self.env, [name])[name]
        if row.get("ducklake") is None or row.get("data_path") is None:
            raise ConfigError(
                f"destination {value!r} of route {self.name!r} has no lake",
                hint="fill its `lake`, or its `ducklake` and `data_path`",
            )
        ducklake, data_path = str(row["ducklake"]), str(row["data_path"])
        if is_cluster(self.config.spark.master) and (ducklake.startswith("sqlite:") or is_local(data_path)):
            raise ConfigError(
                f"destination {value!r} of route {self.name!r} is on a disk of this machine, and the executors of"
                " spark.master are on others",
                hint="give it a catalog in PostgreSQL and a `data_path` in s3://",
            )
        return row_address(ducklake, data_path, self.env)

    # -- known to the state

    def _lake(self, value: str | None, address: LakeAddress, table: TableName) -> DestinationLake:
        mine = "*" if value is None else escaped(value)
        return DestinationLake(address, table, f"{self.source_id}/{self.name}/{mine}")

    def _note(self, ids: Sequence[str], lakes: Sequence[DestinationLake], paused: Collection[str]) -> None:
        before = {row.id: row for row in self.state.destinations(self.name)}
        found = [Found(id_, str(lake.address), lake.table, id_ in paused) for id_, lake in zip(ids, lakes, strict=True)]
        same = {id_: (row.lake, row.name) for id_, row in before.items()} == {
            each.id: (each.lake, each.name) for each in found
        }
        if not same:
            self.state.ensure_destinations(self.name, found)
            self.state.forget_destinations(self.name, before.keys() - set(ids))
            if DEFAULT in before and DEFAULT in ids and before.keys() != set(ids):
                self.state.request_seed(self.name, [DEFAULT], MEMBERS_CHANGED)
        if paused != self._paused:
            self.state.pause_destinations(self.name, sorted(set(paused) - self._paused))
            self.state.resume_destinations(self.name, sorted(self._paused - set(paused)))
            self._paused = set(paused)

    def _claimed(self, ids: Sequence[str], type_: pa.DataType) -> frozenset[str]:
        mine = self._assigned(ids, type_)
        got = self.state.claim(RouteId(self.name, instance_name(self.config)), mine, self.owner)
        if refused := set(mine) - got:
            logger.warning("route %s: another process delivers to %s", self.name, ", ".join(sorted(refused)[:5]))
        return frozenset(got)

    def _assigned(self, ids: Sequence[str], type_: pa.DataType) -> list[str]:
        """The destinations that the config gives to this instance."""
        instance = self.config.instance
        if instance is None:
            return list(ids)
        if isinstance(instance, HashInstance):
            return [id_ for id_ in ids if _ordinal(id_, instance.total) == instance.ordinal]
        return [id_ for id_ in ids if id_ in {destination_id(canonical(each, type_)) for each in instance.values}]


def _ordinal(id_: str, total: int) -> int:
    """Spread by a hash that is the same in every process; the default is with the first instance."""
    return 0 if id_ == DEFAULT else int.from_bytes(hashlib.sha256(id_.encode()).digest()[:8]) % total


def _check_apart(ids: Sequence[str], lakes: Sequence[DestinationLake]) -> None:
    """ConfigError if two destinations have one table. To a lake, names that differ in case only are the same."""
    seen: dict[tuple[str, str], str] = {}
    for id_, lake in zip(ids, lakes, strict=True):
        first = seen.setdefault((str(lake.address), str(lake.table).lower()), id_)
        if first != id_:
            raise ConfigError(
                f"destinations {first.removeprefix('=')!r} and {id_.removeprefix('=')!r} have one table: {lake.table}"
                f" of {lake.address}",
                hint="give each a lake of its own, or another name with `as`",
            )
