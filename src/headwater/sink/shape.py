"""From a source table's newest shape to the columns its lake table is to have: planned here, done by the commit."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from dataclasses import field as made

import pyarrow as pa

from headwater.change import Column, Relation
from headwater.ducklake.evolution import promotable
from headwater.ducklake.model import Field, LakeTable, numbered
from headwater.ducklake.texts import text_of
from headwater.ducklake.types import ducklake_type
from headwater.errors import CannotFollow
from headwater.lake import history
from headwater.values.decode import decode
from headwater.values.types import LakeType

__all__ = ["Shape", "fields_of", "followed"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Which lake column mirrors which source column: field ids by attribute number; kept in the lake itself.

    `types` are the source's own (OID and modifier).
    """

    fields: dict[int, int]
    types: dict[int, tuple[int, int]] = made(default_factory=dict)
    key: frozenset[int] = frozenset()

    @classmethod
    def of(cls, relation: Relation, fields: dict[int, int]) -> Shape:
        types = {column.attnum: (column.type_oid, column.typmod) for column in relation.columns}
        return cls(fields, types, relation.key_attnums)

    @classmethod
    def parse(cls, text: str) -> Shape:
        kept = json.loads(text)
        types = {int(attnum): (oid, typmod) for attnum, (oid, typmod) in kept["types"].items()}
        fields = {int(attnum): id_ for attnum, id_ in kept["fields"].items()}
        return cls(fields, types, frozenset(kept["key"]))

    def __str__(self) -> str:
        return json.dumps({"fields": self.fields, "types": self.types, "key": sorted(self.key)})

    def same_key(self, relation: Relation) -> bool:
        """Whether rows are still told apart by the same columns; without a key, by all of them and as they were."""
        if self.key or relation.key_attnums or relation.identity != "f":
            return self.key == relation.key_attnums
        return self.types == Shape.of(relation, {}).types


def fields_of(relation: Relation, kinds: dict[str, LakeType], *, with_history: bool) -> tuple[tuple[Field, ...], Shape]:
    """The columns of a new lake table for this relation."""
    head = tuple(Field(0, name, kind) for name, _, kind in history.COLUMNS) if with_history else ()
    fields = numbered((*head, *(_field(column.name, kinds[column.name]) for column in relation.columns)))
    numbers = [column.attnum for column in relation.columns]
    return fields, Shape.of(relation, dict(zip(numbers, (each.id for each in fields[len(head) :]), strict=True)))


def followed(
    table: LakeTable, shape: Shape, relation: Relation, kinds: dict[str, LakeType], next_id: int
) -> tuple[tuple[Field, ...], Shape]:
    """The table's columns and shape once they follow the relation; CannotFollow if only a new copy could.

    Columns that somebody else added to the lake's table stay.
    """
    have = {field.id: field for field in table.columns}
    ours = set(shape.fields.values())
    lost = [number for number, field in shape.fields.items() if field not in have]
    if lost:
        raise CannotFollow(f"somebody has dropped a column of the mirror of {relation.table} in the lake")
    fields = [field for field in table.columns if field.id not in ours]
    kept: dict[int, int] = {}
    for column in relation.columns:
        if column.attnum in shape.fields:
            field = _changed(relation, column, have[shape.fields[column.attnum]], kinds[column.name])
        else:
            (field,) = numbered((_added(relation, column, kinds[column.name]),), next_id)
            next_id += _size(field)
        fields.append(field)
        kept[column.attnum] = field.id
    order = {field.id: place for place, field in enumerate(table.columns)}
    return tuple(sorted(fields, key=lambda field: order.get(field.id, field.id + len(order)))), Shape.of(relation, kept)


def _field(name: str, kind: LakeType) -> Field:
    children = (_field("element", kind.element),) if kind.element is not None else ()
    return Field(0, name, ducklake_type(kind), children=children)


def _changed(relation: Relation, column: Column, field: Field, kind: LakeType) -> Field:
    want = _field(column.name, kind)
    if _same(field, want):
        return replace(field, name=column.name)
    if want.children or field.children or not promotable(field.type, want.type):
        raise CannotFollow(
            f"{relation.table} column {column.name!r} became {kind.pg}: {field.type} cannot be read as {want.type}"
        )
    return replace(field, name=column.name, type=want.type)


def _same(one: Field, other: Field) -> bool:
    return one.type == other.type and all(map(_same, one.children, other.children))


def _added(relation: Relation, column: Column, kind: LakeType) -> Field:
    field = _field(column.name, kind)
    if column.volatile:
        raise CannotFollow(f"{relation.table} got a column {column.name!r} whose older rows have values of their own")
    if column.missing is None:
        return field
    if field.children:
        raise CannotFollow(f"{relation.table} got a list column {column.name!r} with a default")
    shown = decode(pa.array([column.missing.encode()], pa.large_binary()), kind)
    if shown.bad:
        raise CannotFollow(
            f"{relation.table} got a column {column.name!r} whose default {column.missing!r} does not fit"
        )
    return replace(field, initial_default=text_of(shown.array[0], field.type))


def _size(field: Field) -> int:
    return 1 + sum(map(_size, field.children))
