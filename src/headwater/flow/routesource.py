"""What a route reads from: a table as it was at a position, its changes since then, all its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from headwater.change import Position, Relation
from headwater.errors import ConfigError, TableError
from headwater.lake.sink import Kinds
from headwater.lake.stream import Stream
from headwater.route.condition import Condition
from headwater.route.destinations import Routing
from headwater.route.reading import Reading
from headwater.route.share import RoutedTable
from headwater.route.units import EventUnit

__all__ = ["Changed", "Columns", "RouteRules", "RouteSource", "SourceAt"]


@dataclass(frozen=True, slots=True)
class RouteRules:
    """What the config says about the rows of a route: which columns they have, which of them are carried, by what."""

    by: str
    keys: tuple[str, ...] = ()  # none: those of the source
    columns: tuple[str, ...] | None = None  # None: all
    exclude: tuple[str, ...] = ()
    where: str | None = None
    append: bool = False
    inline_rows: int | None = None  # that a destination may have in its catalog; None: rows go into files only

    def carries(self, column: str) -> bool:
        """Whether destinations get a column."""
        return column not in self.exclude and (self.columns is None or column in self.columns)


@dataclass(frozen=True, slots=True)
class SourceAt:
    """The source's table as it was at a position: its columns and their types, as destinations get them.

    `readable` are all columns that can be read, as the units know them, with their types in Arrow.
    """

    position: Position
    table: int
    relation: Relation
    kinds: Kinds
    readable: Mapping[str, Any]
    schema: pa.Schema


class Changed(NamedTuple):
    """The next changes: whole snapshots or transactions, up to where, and the units that they are read in."""

    upto: SourceAt
    units: Sequence[EventUnit]


class RouteSource(Protocol):
    """Where a route reads; `stream` tells what its positions are."""

    @property
    def stream(self) -> Stream[Any]: ...

    def id(self) -> str:
        """What identifies the source, wherever it is moved."""
        ...

    def newest(self) -> SourceAt: ...

    def oldest(self) -> SourceAt:
        """The oldest position at which all rows can still be read."""
        ...

    def at(self, position: int) -> SourceAt | None:
        """None if it is not known any more what there was."""
        ...

    def gap(self, position: int) -> str | None:
        """Why changes from there on are not known any more; None if they are."""
        ...

    def changes(self, after: int, upto: SourceAt) -> Changed:
        """The next changes after a position, up to another one or before it; beyond it only if that is unavoidable."""
        ...

    def scan(self, at: SourceAt) -> Sequence[EventUnit]:
        """All rows at a position."""
        ...


@dataclass(frozen=True, slots=True)
class Columns:
    """What a route reads and carries of a table: decided for each poll, by the columns at its end."""

    table: RoutedTable
    by: str
    read: Sequence[Any]
    of_deletes: Sequence[Any]
    condition: Condition | None

    def reading(self, units: Sequence[EventUnit], routing: Routing, after: Mapping[int, int]) -> Reading:
        """These units, for the destinations that are at these positions."""
        return Reading(units, self.read, self.of_deletes, self.by, routing, after, self.condition)

    @classmethod
    def of(cls, at: SourceAt, rules: RouteRules) -> Columns:
        """ConfigError or TableError if the table does not have what the route needs."""
        for problem in cls.problems(at, rules):
            raise problem
        key = _key(at, rules)
        condition = Condition(rules.where, at.schema) if rules.where else None
        needed = dict.fromkeys((rules.by, *key, *(at.schema.names if condition else ())))
        carried = dict.fromkeys((*at.kinds, *needed))
        return cls(
            RoutedTable(at.relation, at.kinds, key, rules.inline_rows),
            rules.by,
            [at.readable[name] for name in carried],
            [at.readable[name] for name in needed],
            condition,
        )

    @staticmethod
    def problems(at: SourceAt, rules: RouteRules) -> Iterator[ConfigError | TableError]:
        """Everything that the route needs and the table does not have."""
        table, key = at.relation.table, _key(at, rules)
        if not key and not rules.append:
            yield ConfigError(f"nothing tells what identifies a row of {table}", hint="name the columns under `keys`")
        for name in dict.fromkeys((rules.by, *key, *(rules.columns or ()), *rules.exclude)):
            if name not in at.readable:
                yield ConfigError(
                    f"{table} has no column {name!r}",
                    hint=f"it has {', '.join(at.readable)}: correct the route, or the table",
                )
        for name in (each for each in key if each in at.readable):
            if name not in at.kinds:
                yield ConfigError(f"the key column {name!r} is not among those that are carried", hint="carry it")
            elif at.kinds[name].nested:
                what = at.kinds[name].logical
                yield TableError(f"column {name!r} is a {what}, which cannot be a key", hint="name others under `keys`")


def _key(at: SourceAt, rules: RouteRules) -> tuple[str, ...]:
    return () if rules.append else rules.keys or tuple(each.name for each in at.relation.columns if each.key)
