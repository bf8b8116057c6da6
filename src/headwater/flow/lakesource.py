"""A table of a DuckLake as the source of a route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.change import Column, Relation, SnapshotId
from headwater.errors import TableError
from headwater.feed.source import Bound, SourceTable, TableAt
from headwater.feed.types import Field, condition_type, lake_type, postgres_text
from headwater.flow.routesource import Changed, RouteRules, SourceAt
from headwater.lake.stream import FEED, Stream
from headwater.route.units import EventUnit

__all__ = ["LakeSource"]

EXPIRED = "the source's snapshots that it has not read yet have expired"


@dataclass(frozen=True, slots=True)
class LakeSource:
    """Implements `headwater.flow.routesource.RouteSource`."""

    table: SourceTable
    rules: RouteRules
    most: Bound  # of one read

    @property
    def stream(self) -> Stream[SnapshotId]:
        return FEED

    def id(self) -> str:
        return self.table.lake_id()

    def newest(self) -> SourceAt:
        return self._described(self.table.newest())

    def oldest(self) -> SourceAt:
        return self._described(self.table.oldest())

    def at(self, position: int) -> SourceAt | None:
        found = self.table.at(position)
        return None if found is None else self._described(found)

    def gap(self, position: int) -> str | None:
        return EXPIRED if self.table.at(position) is None else None

    def changes(self, after: int, upto: SourceAt) -> Changed:
        found = self.table.at(upto.position.value)
        if found is None:
            raise TableError(f"snapshot {upto.position} of the source lake has expired meanwhile", hint="try again")
        done = self.table.changes(after, found, self.most)
        return Changed(self._described(done.upto), done.units)

    def scan(self, at: SourceAt) -> Sequence[EventUnit]:
        found = self.table.at(at.position.value)
        if found is None:
            raise TableError(f"snapshot {at.position} of the source lake has expired meanwhile", hint="try again")
        return self.table.scan(found)

    def _described(self, at: TableAt) -> SourceAt:
        """A relation's attribute numbers are the ids of the lake's columns: both survive a rename."""
        fields = {each.name: each for each in at.table.columns}
        kinds = {name: lake_type(field) for name, field in fields.items() if self.rules.carries(name)}
        key = set(self.rules.keys or self.table.key(at))
        columns = tuple(_column(fields[name], key=name in key) for name in kinds)
        relation = Relation(at.table.id, at.table.id, self.table.name, "d", columns)
        types = {name: condition_type(field) for name, field in fields.items()}
        schema = pa.schema([(name, type_) for name, type_ in types.items() if type_ is not None])
        return SourceAt(SnapshotId(at.snapshot), at.table.id, relation, kinds, fields, schema)


def _column(field: Field, *, key: bool) -> Column:
    shown = postgres_text(field)  # what rows show that are older than the column
    return Column(field.name, 0, -1, key, field.id, nullable=field.nullable, missing=shown)
