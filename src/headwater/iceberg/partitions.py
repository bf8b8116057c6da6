"""Iceberg's partitions: a table's spec, and the value of each partition field for rows that are written."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from headwater.errors import CannotFollow
from headwater.iceberg.model import Partition
from headwater.iceberg.types import plain_type
from headwater.lake.casting import fitted
from headwater.lake.hashing import buckets, hashed_binaries, hashed_numbers, hashed_texts, unscaled
from headwater.lake.partitioning import PartitionBy, PartitionSupport

__all__ = [
    "SUPPORT",
    "check_kept",
    "fits",
    "misread_by_duckdb",
    "new_spec",
    "not_computable",
    "partition_at",
    "partition_values",
    "sources_of",
]

_WHOLE = frozenset({"int16", "int32", "int64", "uint32", "uint64", "decimal"})
_TIMES = frozenset({"date", "timestamp", "timestamptz"})
_TEXTS = frozenset({"string", "json", "binary"})
SUPPORT = PartitionSupport(
    "Iceberg",
    {
        "identity": _WHOLE | _TIMES | _TEXTS | {"boolean", "uuid", "time"},  # floating numbers have several zeros
        "year": _TIMES,
        "month": _TIMES,
        "day": _TIMES,
        "hour": _TIMES - {"date"},
        "bucket": _WHOLE | _TIMES | _TEXTS | {"uuid", "time"},
        "truncate": _WHOLE | _TEXTS,
    },
    redundant_times=False,
)
_UNITS: Mapping[type[Transform[Any, Any]], str] = {YearTransform: "Y", MonthTransform: "M", DayTransform: "D"}
_KNOWN = (
    IdentityTransform,
    YearTransform,
    MonthTransform,
    DayTransform,
    HourTransform,
    BucketTransform,
    TruncateTransform,
)
_HOUR = 3_600_000_000  # microseconds


def new_spec(wanted: Sequence[PartitionBy], schema: Schema, metadata: TableMetadata | None = None) -> PartitionSpec:
    """The spec for these expressions; of a table that is there, one that it has already or one under a new id."""
    specs = metadata.partition_specs if metadata else []
    had = {(field.source_id, str(field.transform), field.name): field for spec in specs for field in spec.fields}
    ids = itertools.count(((metadata and metadata.last_partition_id) or PARTITION_FIELD_ID_START - 1) + 1)
    taken = {field.name for field in schema.fields}
    fields: list[PartitionField] = []
    for each in wanted:
        name, transform = _name(each, taken), _transform(each)
        taken.add(name)
        source = schema.find_field(each.column).field_id
        same = had.get((source, str(transform), name))
        fields.append(same or PartitionField(source, next(ids), transform, name))
    same_spec = (spec for spec in specs if spec.fields == tuple(fields))
    return next(same_spec, PartitionSpec(*fields, spec_id=max((spec.spec_id for spec in specs), default=-1) + 1))


def _name(wanted: PartitionBy, taken: Collection[str]) -> str:
    """As Iceberg's own clients would name it; one that is a column's name means that column to them."""
    if wanted.transform == "identity":
        return wanted.column
    short = "trunc" if wanted.transform == "truncate" else wanted.transform
    name = f"{wanted.column}_{short}" + ("" if wanted.argument is None else f"_{wanted.argument}")
    while name in taken:
        name += "_partition"
    return name


def _transform(wanted: PartitionBy) -> Transform[Any, Any]:
    match wanted.transform:
        case "bucket":
            return BucketTransform(wanted.argument or 1)
        case "truncate":
            return TruncateTransform(wanted.argument or 1)
        case "year":
            return YearTransform()
        case "month":
            return MonthTransform()
        case "day":
            return DayTransform()
        case "hour":
            return HourTransform()
    return IdentityTransform()


def sources_of(spec: PartitionSpec) -> set[int]:
    """The field ids of the columns that rows are partitioned by."""
    return {field.source_id for field in spec.fields}


def not_computable(spec: PartitionSpec, schema: Schema) -> str | None:
    """The first field of a spec, as another client may have made it, whose values we cannot tell."""
    by_id = {field.field_id: field.field_type for field in schema.fields}
    for field in spec.fields:
        if isinstance(field.transform, VoidTransform):
            continue
        type_ = by_id.get(field.source_id)
        if type_ is None or not isinstance(field.transform, _KNOWN) or isinstance(type_, FloatType | DoubleType):
            return field.name
        if not field.transform.can_transform(type_):
            return field.name
    return None


def misread_by_duckdb(spec: PartitionSpec, schema: Schema, partition: Partition) -> bool:
    """Whether DuckDB 1.5 may skip a file of this partition though a filter is true for its rows.

    It puts a uuid into another bucket than Iceberg does, and counts months and days of timestamps before 1970
    otherwise; truncated decimals of more than 18 digits overflow.
    """
    types = {field.field_id: field.field_type for field in schema.fields}
    return any(
        _is_misread(field.transform, types.get(field.source_id), value)
        for field, value in zip(spec.fields, partition, strict=False)  # another client may be less exact
    )


def _is_misread(transform: Transform[Any, Any], type_: IcebergType | None, value: Any) -> bool:
    if isinstance(transform, BucketTransform):
        return isinstance(type_, UUIDType)
    if isinstance(transform, TruncateTransform):
        return isinstance(type_, DecimalType) and type_.precision > 18
    before_1970 = isinstance(transform, DayTransform | MonthTransform) and value is not None and value < 0
    return before_1970 and isinstance(type_, TimestampType | TimestamptzType)


def fits(spec: PartitionSpec, schema: Schema) -> bool:
    """Whether the columns that it divides rows by are there, and no other column has the name of one of its fields.

    Iceberg's library for Java, and so Spark and Trino, opens no table that has another spec, be it one of its past.
    """
    types = {field.field_id: field.field_type for field in schema.fields}
    names = {field.name: field.field_id for field in schema.fields}
    return all(
        field.source_id in types
        and field.transform.can_transform(types[field.source_id])
        and names.get(field.name, field.source_id) == field.source_id
        for field in spec.fields
    )


def check_kept(table: str, metadata: TableMetadata, schema: Schema) -> None:
    """CannotFollow if rows could not be partitioned as they are any more under this schema.

    Specs that are not the table's any more count too: files may have been written under them.
    """
    before = {field.field_id: field.name for field in metadata.schema().fields}
    types = {field.field_id: field.field_type for field in schema.fields}
    names = {field.name: field.field_id for field in schema.fields}
    for field in (field for spec in metadata.partition_specs for field in spec.fields if field.source_id in before):
        name, type_ = before[field.source_id], types.get(field.source_id)
        if type_ is None:
            raise CannotFollow(f"{table} is partitioned by column {name!r}, which is dropped")
        if not field.transform.can_transform(type_):
            raise CannotFollow(f"{table} is partitioned by {field.transform} of column {name!r}, which is {type_} now")
        if names.get(field.name, field.source_id) != field.source_id:
            raise CannotFollow(f"{table} now has a column with the name of its partition field {field.name!r}")


def partition_values(spec: PartitionSpec, schema: Schema, columns: Mapping[str, pa.Array]) -> dict[int, pa.Array]:
    """By the number of the partition field, its values as Iceberg keeps them, for rows with these columns.

    Fields whose column is not given are left out.
    """
    by_id = {field.field_id: field for field in schema.fields}
    found = {}
    for at, field in enumerate(spec.fields):
        source = by_id.get(field.source_id)
        if isinstance(field.transform, VoidTransform):
            found[at] = pa.nulls(len(next(iter(columns.values()))), pa.int32())
        elif source is not None and source.name in columns:
            array = fitted(columns[source.name], plain_type(source.field_type))
            found[at] = _transformed(field.transform, source.field_type, array)
    return found


def partition_at(spec: PartitionSpec, schema: Schema, values: Mapping[int, pa.Array], row: int) -> Partition:
    """The partition of one of the rows: its values for those fields that `values` has."""
    types = {field.field_id: field.field_type for field in schema.fields}
    return tuple(
        _kept(spec.fields[at], types.get(spec.fields[at].source_id), array[row]) for at, array in values.items()
    )


def _kept(field: PartitionField, type_: IcebergType | None, value: pa.Scalar) -> Any:
    if isinstance(type_, UUIDType) and isinstance(field.transform, IdentityTransform) and value.is_valid:
        return uuid.UUID(bytes=value.as_py())
    return value.as_py()


def _transformed(transform: Transform[Any, Any], type_: IcebergType, array: pa.Array) -> pa.Array:
    if isinstance(transform, BucketTransform):
        return buckets(array, _hashes(type_, array), transform.num_buckets)
    if isinstance(transform, TruncateTransform):
        return _truncated(type_, array, transform.width)
    if isinstance(transform, HourTransform):
        return _numbers(array, lambda moments: moments // _HOUR)
    if unit := _UNITS.get(type(transform)):
        of = "D" if pa.types.is_date(array.type) else "us"
        return _numbers(array, lambda moments: moments.view(f"M8[{of}]").astype(f"M8[{unit}]").astype(np.int64))
    if pa.types.is_temporal(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array


def _numbers(array: pa.Array, of: Any) -> pa.Array:
    whole = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).cast(pa.int64()).fill_null(0)
    return pa.array(of(whole.to_numpy()).astype(np.int32), mask=array.is_null().to_numpy(zero_copy_only=False))


def _hashes(type_: IcebergType, array: pa.Array) -> Any:
    if isinstance(type_, DecimalType):
        distinct = array.dictionary_encode().dictionary
        return hashed_texts(array, map(_shortest, unscaled(distinct)))
    if isinstance(type_, UUIDType):
        return hashed_binaries(array)
    return hashed_texts(array) if isinstance(type_, StringType | BinaryType) else hashed_numbers(array)


def _shortest(number: int) -> bytes:
    """Two's complement in as few bytes as hold it, the highest first."""
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _truncated(type_: IcebergType, array: pa.Array, width: int) -> pa.Array:
    if isinstance(type_, StringType):
        return pc.utf8_slice_codeunits(array, 0, width)
    if isinstance(type_, BinaryType):
        return pc.binary_slice(array, 0, width)
    if isinstance(type_, DecimalType):
        encoded = array.dictionary_encode()
        cut = b"".join(
            (each - each % width).to_bytes(16, "little", signed=True) for each in unscaled(encoded.dictionary)
        )
        kind = encoded.dictionary.type
        return pa.Array.from_buffers(kind, len(encoded.dictionary), [None, pa.py_buffer(cut)]).take(encoded.indices)
    numbers = array.fill_null(0).to_numpy()
    return pa.array(numbers - numbers % numbers.dtype.type(width), array.type, mask=array.is_null().to_numpy(False))
