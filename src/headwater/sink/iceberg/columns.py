"""From a source table's newest columns to the schema that its Iceberg table is to have."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, IcebergType, IntegerType, LongType, NestedField, StructType

from headwater.change import Column, Relation
from headwater.errors import CannotFollow, TableError
from headwater.iceberg.types import field_ids, field_type
from headwater.lake import history
from headwater.lake.mirrored import MirroredColumns
from headwater.lake.sink import Kinds
from headwater.values.types import LakeType

__all__ = ["RESERVED", "Evolved", "columns_of", "evolved", "promotable"]

# Java's readers, Spark and Trino among them, refuse a table that has one. DuckDB and PyIceberg read any name.
RESERVED = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)


@dataclass(frozen=True, slots=True)
class Evolved:
    """A schema, whose columns mirror those of the source, and the highest field id that the table has ever used."""

    schema: Schema
    mirrored: MirroredColumns
    last_id: int


def columns_of(relation: Relation, kinds: Kinds, *, with_history: bool, before: TableMetadata | None = None) -> Evolved:
    """The schema of a new table, or of one that is filled anew and had columns `before`.

    Those of the same name and type keep their ids: so the table's partition specs, of which there is a list of all that
    it ever had, stay what they are. New ids are above all that were used.
    """
    ids = itertools.count(before.last_column_id + 1 if before else 1)
    head = history.COLUMNS if with_history else {}
    wanted = {**head, **{column.name: kinds[column.name] for column in relation.columns}}
    had = {field.name: field for field in before.schema().fields} if before else {}
    kept = {name: had[name] for name, kind in wanted.items() if name in had and _is_of(kind, had[name])}
    # Parents first, then the elements of lists, as Iceberg gives ids.
    numbers = [kept[name].field_id if name in kept else next(ids) for name in wanted]
    types = [kept[name].field_type if name in kept else field_type(kind, ids) for name, kind in wanted.items()]
    key = set() if with_history else _identifying(relation, kinds)
    fields = [
        NestedField(id_, name, type_, required=name in key)
        for id_, name, type_ in zip(numbers, wanted, types, strict=True)
    ]
    _check_names(relation, fields)
    mirrored = MirroredColumns.of(
        relation, dict(zip((column.attnum for column in relation.columns), numbers[len(head) :], strict=True))
    )
    schema = Schema(*fields, identifier_field_ids=[each.field_id for each in fields if each.required])
    return Evolved(schema, mirrored, next(ids) - 1)


def evolved(schema: Schema, last_id: int, mirrored: MirroredColumns, relation: Relation, kinds: Kinds) -> Evolved:
    """The schema once it follows the relation; CannotFollow if only a new copy could. Columns of other clients stay."""
    have = {field.field_id: field for field in schema.fields}
    if any(id_ not in have for id_ in mirrored.fields.values()):
        raise CannotFollow(f"another client has dropped a column of the mirror of {relation.table} in the lake")
    ids = itertools.count(last_id + 1)
    with_history = set(history.COLUMNS) <= {field.name for field in schema.fields}
    key = set() if with_history else _identifying(relation, kinds)
    ours: dict[int, NestedField] = {}
    for column in relation.columns:
        old = have.get(mirrored.fields.get(column.attnum, 0))
        kind = kinds[column.name]
        field = _added(relation, column, kind, ids) if old is None else _kept(relation, column, old, kind)
        ours[column.attnum] = NestedField(field.field_id, column.name, field.field_type, column.name in key, field.doc)
    gone = set(mirrored.fields.values()) - {field.field_id for field in ours.values()}
    by_id = {field.field_id: field for field in ours.values()}
    kept = [by_id.pop(id_, field) for id_, field in have.items() if id_ not in gone]
    fields = [*kept, *by_id.values()]
    _check_names(relation, fields)
    new = Schema(
        *fields,
        schema_id=schema.schema_id,
        identifier_field_ids=[field.field_id for field in fields if field.required and field.name in key],
    )
    return Evolved(
        new, MirroredColumns.of(relation, {number: field.field_id for number, field in ours.items()}), next(ids) - 1
    )


def _identifying(relation: Relation, kinds: Kinds) -> set[str]:
    """The key's columns, if Iceberg takes them for identifier fields: floating numbers and nested values are none."""
    key = {column.name for column in relation.columns if column.attnum in relation.key_attnums}
    fit = all(not kinds[name].nested and kinds[name].logical not in ("float32", "float64") for name in key)
    return key if fit else set()


def _is_of(kind: LakeType, field: NestedField) -> bool:
    return _like(kind, field.field_type) == field.field_type


def _kept(relation: Relation, column: Column, old: NestedField, kind: LakeType) -> NestedField:
    want = _like(kind, old.field_type)
    if want != old.field_type and not promotable(old.field_type, want):
        raise CannotFollow(
            f"{relation.table} column {column.name!r} became {kind.pg}: {old.field_type} cannot be read as {want}"
        )
    return NestedField(old.field_id, column.name, want, required=False, doc=old.doc)


def _added(relation: Relation, column: Column, kind: LakeType, ids: Iterator[int]) -> NestedField:
    if column.volatile:
        raise CannotFollow(f"{relation.table} got a column {column.name!r} whose older rows have values of their own")
    if column.missing is not None:
        raise CannotFollow(f"{relation.table} got a column {column.name!r} with a default, which format 2 cannot show")
    id_ = next(ids)
    return NestedField(id_, column.name, field_type(kind, ids), required=False)


def _like(kind: LakeType, type_: IcebergType) -> IcebergType:
    """The type of a column that is to have the field ids of this one, as far as it has the same parts."""
    return field_type(kind, itertools.chain(field_ids(type_), itertools.repeat(0)))


def promotable(old: IcebergType, new: IcebergType) -> bool:
    """Iceberg allows a float to become a double too, but DuckDB 1.5 then filters older files wrongly."""
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision < new.precision
    return isinstance(old, IntegerType) and isinstance(new, LongType)


def _check_names(relation: Relation, fields: Sequence[NestedField]) -> None:
    """Refuse names that DuckDB, which ignores case, could not distinguish from each other, and Iceberg's own."""
    names = [field.name for field in fields]
    for name in names:
        if name.lower() in RESERVED:
            raise TableError(
                f"table {str(relation.table)!r}: {name!r} is a column name that the lake keeps for itself",
                hint="rename it in the source, or leave it out with `exclude`",
            )
    if len({name.lower() for name in names}) != len(names):
        raise TableError(
            f"table {str(relation.table)!r} has columns that differ in case only, which DuckDB does not distinguish:"
            f" {names}",
            hint="rename one of them in the source, or leave it out with `exclude`",
        )
    for path, name in ((path, field.name) for field in fields for path in _paths(field.name, field.field_type)):
        if path in names:
            raise TableError(
                f"table {str(relation.table)!r}: {path!r} is also what Iceberg calls a part of {name!r}",
                hint="rename one of them in the source, or leave it out with `exclude`",
            )


def _paths(name: str, type_: IcebergType) -> Iterator[str]:
    """The names under which Iceberg knows the parts of a nested column."""
    for path in index_by_name(StructType(NestedField(0, name, type_))) if not type_.is_primitive else ():
        if path != name:
            yield path
