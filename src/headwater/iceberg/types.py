"""From logical types to Iceberg's, and from these to the Arrow types that they are written from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from headwater.errors import TableError
from headwater.lake.casting import plain
from headwater.lake.parquet import field_with_id
from headwater.values.types import LakeType

__all__ = ["arrow_schema", "arrow_type", "field_ids", "field_type", "iceberg_type", "plain_type"]

_TYPES: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "int8": IntegerType(),
    "int16": IntegerType(),
    "uint8": IntegerType(),
    "uint16": IntegerType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "uint32": LongType(),
    "uint64": DecimalType(20, 0),  # Iceberg has no unsigned integers
    "float32": FloatType(),
    "float64": DoubleType(),
    "string": StringType(),
    "json": StringType(),
    "binary": BinaryType(),
    "uuid": UUIDType(),
    "date": DateType(),
    "time": TimeType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
}
_ARROW: dict[IcebergType, pa.DataType] = {
    BooleanType(): pa.bool_(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    FloatType(): pa.float32(),
    DoubleType(): pa.float64(),
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    UUIDType(): pa.uuid(),
    DateType(): pa.date32(),
    TimeType(): pa.time64("us"),
    TimestampType(): pa.timestamp("us"),
    TimestamptzType(): pa.timestamp("us", "UTC"),
}


def iceberg_type(kind: LakeType) -> str:
    """The type as Iceberg spells it."""
    return str(field_type(kind, itertools.count())).replace(", ", ",")


def field_type(kind: LakeType, ids: Iterator[int]) -> IcebergType:
    """Iceberg's type; the parts of a nested one are fields of their own, and get the next ids."""
    if kind.element is not None:
        id_ = next(ids)
        return ListType(element_id=id_, element=field_type(kind.element, ids), element_required=False)
    if kind.fields:
        parts = [NestedField(next(ids), name, field_type(part, ids), required=False) for name, part in kind.fields]
        return StructType(*parts) if kind.logical == "struct" else _map(*parts)
    if kind.logical == "decimal":
        return DecimalType(kind.arrow.precision, kind.arrow.scale)
    return _TYPES[kind.logical]


def _map(key: NestedField, value: NestedField) -> MapType:
    return MapType(key.field_id, key.field_type, value.field_id, value.field_type, value_required=False)


def field_ids(type_: IcebergType) -> Iterator[int]:
    """The ids of a nested type's parts, in the order in which `field_type` takes them."""
    match type_:
        case ListType():
            parts: tuple[NestedField, ...] = (type_.element_field,)
        case MapType():
            parts = (type_.key_field, type_.value_field)
        case StructType():
            parts = type_.fields
        case _:
            parts = ()
    for part in parts:
        yield part.field_id
        yield from field_ids(part.field_type)


def arrow_type(type_: IcebergType) -> pa.DataType:
    """The Arrow type that a column is written from, with the field ids of its parts."""
    if isinstance(type_, ListType):
        return pa.list_(_arrow_field(type_.element_field))
    if isinstance(type_, StructType):
        return pa.struct([_arrow_field(each) for each in type_.fields])
    if isinstance(type_, MapType):
        return pa.map_(_arrow_field(type_.key_field), _arrow_field(type_.value_field))
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, FixedType):
        return pa.binary(len(type_))
    if type_ not in _ARROW:
        raise TableError(
            f"the lake's table has a column of type {str(type_)!r}, which Headwater does not write",
            hint="another client added it: drop the column in the lake, or keep it in a separate table",
        )
    return _ARROW[type_]


def _arrow_field(field: NestedField) -> pa.Field:
    return field_with_id(field.name, arrow_type(field.field_type), field.field_id, nullable=not field.required)


def plain_type(type_: IcebergType) -> pa.DataType:
    """The Arrow type a column is read as: no extension types, so a uuid is 16 bytes."""
    return plain(arrow_type(type_))


def arrow_schema(schema: Schema) -> pa.Schema:
    """The schema of a data file; every column is optional in the file, whatever the table says."""
    return pa.schema([field_with_id(each.name, arrow_type(each.field_type), each.field_id) for each in schema.fields])
