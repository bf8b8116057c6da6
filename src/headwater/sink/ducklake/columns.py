"""From a source table's newest columns to those that its lake table is to have: planned here, done by the commit."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from headwater.change import Column, Relation
from headwater.ducklake.evolution import check_names, promotable
from headwater.ducklake.model import Field, LakeTable, numbered
from headwater.ducklake.texts import text_of
from headwater.ducklake.types import ducklake_type
from headwater.errors import CannotFollow, TableError
from headwater.lake import history
from headwater.lake.mirrored import MirroredColumns
from headwater.values.decode import decode
from headwater.values.types import LakeType

__all__ = ["evolved", "fields_of", "follows"]


def fields_of(
    relation: Relation, kinds: dict[str, LakeType], *, with_history: bool
) -> tuple[tuple[Field, ...], MirroredColumns]:
    """The columns of a new lake table for this relation."""
    head = tuple(_field(name, kind) for name, kind in history.COLUMNS.items()) if with_history else ()
    fields = numbered((*head, *(_field(column.name, kinds[column.name]) for column in relation.columns)))
    numbers = [column.attnum for column in relation.columns]
    return fields, MirroredColumns.of(
        relation, dict(zip(numbers, (each.id for each in fields[len(head) :]), strict=True))
    )


def evolved(
    table: LakeTable, mirrored: MirroredColumns, relation: Relation, kinds: dict[str, LakeType], next_id: int
) -> tuple[tuple[Field, ...], MirroredColumns]:
    """The table's columns once they follow the relation, and whom they mirror; CannotFollow if only a new copy could.

    Columns that another client added to the lake's table stay.
    """
    have = {field.id: field for field in table.columns}
    ours = set(mirrored.fields.values())
    lost = [number for number, field in mirrored.fields.items() if field not in have]
    if lost:
        raise CannotFollow(f"another client has dropped a column of the mirror of {relation.table} in the lake")
    fields = [field for field in table.columns if field.id not in ours]
    kept: dict[int, int] = {}
    for column in relation.columns:
        if column.attnum in mirrored.fields:
            field = _changed(relation, column, have[mirrored.fields[column.attnum]], kinds[column.name])
        else:
            (field,) = numbered((_added(relation, column, kinds[column.name]),), next_id)
            next_id += _size(field)
        fields.append(field)
        kept[column.attnum] = field.id
    order = {field.id: place for place, field in enumerate(table.columns)}
    return tuple(sorted(fields, key=lambda field: order.get(field.id, field.id + len(order)))), MirroredColumns.of(
        relation, kept
    )


@lru_cache(maxsize=4096)  # of tables that are alike one is looked at
def follows(
    columns: tuple[Field, ...], mirrored: MirroredColumns, source: tuple[Column, ...], kinds: tuple[LakeType, ...]
) -> bool:
    """Whether a table with these columns is as `evolved` would have it for such a source, and has sound names."""
    have = {field.id: field for field in columns}
    mine = [have.get(mirrored.fields.get(column.attnum, -1)) for column in source]
    same = all(
        field is not None and field.name == column.name and _same(field, _field(column.name, kind))
        for field, column, kind in zip(mine, source, kinds, strict=True)
    )
    try:
        check_names("", columns)
    except TableError:
        return False
    return (
        same and mirrored == MirroredColumns.of_columns(source, mirrored.fields) and len(source) == len(mirrored.fields)
    )


@lru_cache(maxsize=4096)
def _field(name: str, kind: LakeType) -> Field:
    parts = kind.fields if kind.element is None else (("element", kind.element),)
    return Field(0, name, ducklake_type(kind), children=tuple(_field(*part) for part in parts))


def _changed(relation: Relation, column: Column, field: Field, kind: LakeType) -> Field:
    want = _field(column.name, kind)
    if _same(field, want):
        return field if field.name == column.name else replace(field, name=column.name)
    if want.children or field.children or not promotable(field.type, want.type):
        raise CannotFollow(
            f"{relation.table} column {column.name!r} became {kind.pg}: {field.type} cannot be read as {want.type}"
        )
    return replace(field, name=column.name, type=want.type)


def _same(one: Field, other: Field) -> bool:
    if one.type != other.type or len(one.children) != len(other.children):
        return False
    named = one.type != "struct" or [each.name for each in one.children] == [each.name for each in other.children]
    return named and all(map(_same, one.children, other.children))


def _added(relation: Relation, column: Column, kind: LakeType) -> Field:
    field = _field(column.name, kind)
    if column.volatile:
        raise CannotFollow(f"{relation.table} got a column {column.name!r} whose older rows have values of their own")
    if column.missing is None:
        return field
    if field.children:
        raise CannotFollow(f"{relation.table} got a nested column {column.name!r} with a default")
    shown = decode(pa.array([column.missing.encode()], pa.large_binary()), kind)
    if shown.bad:
        raise CannotFollow(
            f"{relation.table} got a column {column.name!r} whose default {column.missing!r} does not fit"
        )
    return replace(field, initial_default=text_of(shown.array[0], field.type))


def _size(field: Field) -> int:
    return 1 + sum(map(_size, field.children))
