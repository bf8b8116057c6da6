"""Sinks of every kind, driven by hand through their contract: no Spark, and rows read back by other means."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.change import BaseType, Column, Position, Relation, TableName
from headwater.lake.quarantine import SCHEMA
from headwater.lake.sink import Delivery, Inline, Kinds, Landed, MirrorSpec, Plan, Sink, Standing, Volume
from headwater.lake.stream import WAL, Stream
from headwater.lake.target import Destination, Place, Sought, misfits_of, rows_of
from headwater.values.types import lake_type

__all__ = [
    "OID",
    "OTHER",
    "Bench",
    "Row",
    "T",
    "U",
    "column",
    "kinds_of",
    "misfits",
    "relation",
    "taken",
    "typed",
    "written",
]

OID, OTHER = 77, 88
T, U = TableName("public", "t"), TableName("public", "u")
TYPES = {"int4": 23, "int8": 20, "text": 25}
Row = tuple[Any, ...]


def column(name: str, type: str, attnum: int, missing: str | None = None) -> Column:
    base = BaseType(TYPES[type], -1, 0, type)
    return Column(name, base.oid, -1, name == "id", attnum, base, missing=missing)


def relation(*columns: Column, oid: int = OID, name: TableName = T) -> Relation:
    return Relation(1, oid, name, "d", columns or (column("id", "int4", 1), column("v", "text", 2)))


def kinds_of(relation: Relation) -> Kinds:
    return {each.name: lake_type(each) for each in relation.columns}


def misfits(source: str, oid: int, *values: str) -> pa.Table:
    """Values in quarantine, each of a row whose key is the value's own text."""
    rows = [
        {"source": source, "table_oid": oid, "value": each, "row_key": each.encode(), "column_number": 2}
        for each in values
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@dataclass(frozen=True)
class Bench:
    """A lake; `sinks` opens a sink of it for a source and its stream, `read` gives a table's rows to an outsider.

    Some lakes know each row by an id, and show the default of a new column in older rows; others do not.
    """

    sinks: Callable[[str, Stream[Any]], Sink[Any, Any]]
    read: Callable[[TableName], list[dict[str, Any]]]
    source: str = "1/db/g"
    stream: Stream[Any] = WAL
    row_lineage: bool = True
    defaults: bool = True
    inlined: bool = False  # rows go into the catalog, where they can
    most: int = 10_000  # rows of a table there

    @property
    def sink(self) -> Sink[Any, Any]:
        return self.sinks(self.source, self.stream)

    def at(self, value: int) -> Any:
        """A position of the stream."""
        return self.stream.position(value)

    def rows(self, name: TableName = T) -> list[Row]:
        return sorted((tuple(row.values()) for row in self.read(name)), key=repr)

    def standing(self, oid: int = OID) -> Standing[Any]:
        return self.sink.standings()[oid]

    def copy(self, rows: Iterable[Row] = (), at: int = 100, of: Relation | None = None, **options: Any) -> Landed:
        """Create a table as a first copy does."""
        of = of or relation()
        sink = self.sink
        attempt = sink.begin_copy([sink.new_mirror(MirrorSpec(of, kinds_of(of), of.table, **options))], {})
        reports = {rows_of(of.oid): written(attempt.target, rows_of(of.oid), [(typed(of, rows), None)])}
        return attempt.commit({of.oid: self.at(at)}, reports)

    def deliver(self, upto: int, *, of: Relation | None = None, plan: Plan[Any] | None = None, **change: Any) -> Landed:
        return self.attempt(of=of, plan=plan, **change).commit(upto)

    def attempt(
        self,
        *,
        of: Relation | None = None,
        plan: Plan[Any] | None = None,
        insert: Iterable[Row] = (),
        update: Iterable[Row] = (),
        delete: Iterable[int] = (),
        truncate: bool = False,
        noted: str | None = None,
    ) -> Attempt:
        """What a merge does, up to the commit: rows are found by their keys, deleted, and written again.

        `noted` is an attempt of the caller's own.
        """
        of = of or relation()
        plan = plan or self.sink.plan()
        inline = Inline({of.oid: Volume(10, 100)}, self.most) if self.inlined else None
        delivery = plan.begin({of.oid: ("id",)}, attempt=noted, inline=inline)
        changed: dict[int, Row] = {row[0]: row for row in update}
        gone, found = set(delete), dict[int, int | None]()
        reports: list[bytes] = []
        target = pickle.loads(pickle.dumps(delivery.target))
        for place in delivery.places({of.oid: Sought()}) if changed or gone else ():
            ids, notes = taken(target, pickle.loads(pickle.dumps(place)), {*changed, *gone})
            found |= ids
            reports += notes
        replaced = [row for key, row in changed.items() if key in found]
        new = [*insert, *(row for key, row in changed.items() if key not in found)]
        loads: list[tuple[pa.Table, pa.Array | None]] = [(typed(of, new), None)] if new else []
        if replaced:
            loads.append((typed(of, replaced), pa.array([found[row[0]] for row in replaced], pa.int64())))
        reports += written(target, rows_of(of.oid), loads)
        wrote = {rows_of(of.oid): reports} if reports else {}
        return Attempt(delivery, self.stream.position, of.oid, wrote, {of.oid} if truncate else set())

    def row_ids(self, *keys: int) -> dict[int, int | None]:
        """The row ids that the lake has for these keys; nothing is committed."""
        delivery = self.sink.plan().begin({OID: ("id",)})
        found: dict[int, int | None] = {}
        for place in delivery.places({OID: Sought()}):
            ids, notes = taken(delivery.target, place, set(keys))
            found |= ids
            delivery.discard({rows_of(OID): notes})
        return found


@dataclass(frozen=True)
class Attempt:
    """Files that readers do not see yet."""

    delivery: Delivery[Any]
    position: type[Position]
    oid: int
    reports: Mapping[Destination, list[bytes]]
    truncated: set[int]

    def commit(self, upto: int, names: Mapping[int, TableName] | None = None) -> Landed:
        return self.delivery.commit(self.reports, self.truncated, {self.oid: self.position(upto)}, names or {})

    def discard(self) -> None:
        self.delivery.discard(self.reports)

    def with_misfits(self, source: str, *values: str) -> Attempt:
        to = misfits_of(self.oid)
        notes = written(self.delivery.target, to, [(misfits(source, self.oid, *values), None)])
        return replace(self, reports={**self.reports, to: notes})


def written(target: Any, to: Destination, loads: Iterable[tuple[pa.Table, pa.Array | None]]) -> list[bytes]:
    notes: list[bytes] = target.write(to, loads)
    return notes


def taken(target: Any, place: Place, keys: set[int]) -> tuple[dict[int, int | None], list[bytes]]:
    """Delete the rows of these keys in one place: their row ids by key, and the lake's report."""
    at: list[int] = []
    here: list[int] = []
    for first, (ids,) in target.keys(place):
        hits = [(first + index, key) for index, key in enumerate(ids.to_pylist()) if key in keys]
        at += [position for position, _ in hits]
        here += [key for _, key in hits]
    found = target.take_out(place, pa.array(at, pa.int64()))
    if found is None:
        return {}, []
    alive = np.array(here)[found.alive.to_numpy(zero_copy_only=False)].tolist()
    return dict(zip(alive, found.row_ids.to_pylist(), strict=True)), [found.report]


def typed(of: Relation, rows: Iterable[Row]) -> pa.Table:
    schema = pa.schema([pa.field(name, kind.arrow) for name, kind in kinds_of(of).items()])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
