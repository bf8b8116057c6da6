"""Arrow columns cast to another type, inside lists, structs and maps too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["FIELD_ID", "fitted", "flattened", "plain", "unlabelled"]

FIELD_ID = b"PARQUET:field_id"  # the key under which Arrow keeps it in a field's metadata


def fitted(column: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """The column in this type; raises pa.ArrowInvalid for a value that the type cannot hold.

    The fields of a struct are found by their Parquet field ids, if both types have them, else by their names; missing
    ones are NULL, others are left out.
    """
    if _same(column.type, type_):
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_fitted(chunk, type_) for chunk in column.chunks], type_)
    return _fitted(column, type_)


def plain(type_: pa.DataType) -> pa.DataType:
    """The type without extension types: a uuid is 16 bytes, a json is text."""
    if isinstance(type_, pa.BaseExtensionType):
        return type_.storage_type
    if pa.types.is_list(type_):
        return pa.list_(_plain(type_.value_field))
    if pa.types.is_struct(type_):
        return pa.struct([_plain(field) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_plain(type_.key_field), _plain(type_.item_field))
    return type_


def _plain(field: pa.Field) -> pa.Field:
    return field.with_type(plain(field.type))


def unlabelled(type_: pa.DataType) -> pa.DataType:
    """The type without field ids: values that leave their table do not take along what it calls their parts."""
    if pa.types.is_list(type_):
        return pa.list_(_unlabelled(type_.value_field))
    if pa.types.is_struct(type_):
        return pa.struct([_unlabelled(field) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_unlabelled(type_.key_field), _unlabelled(type_.item_field))
    return type_


def _unlabelled(field: pa.Field) -> pa.Field:
    return field.with_type(unlabelled(field.type)).remove_metadata()


def flattened(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The innermost values of a column of lists, of lists of lists, and so on."""
    while pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        column = pc.list_flatten(column)
    return column


def _same(have: pa.DataType, type_: pa.DataType) -> bool:
    """Whether a column has this type, its structs' fields being the same ones and not only of the same names."""
    return bool(have.equals(type_, check_metadata=pa.types.is_nested(type_)))


def _fitted(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if _same(array.type, type_):
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), type_)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_list(type_):
        return _list(array, type_)
    if pa.types.is_struct(type_):
        return _struct(array, type_)
    if pa.types.is_map(type_):
        return _map(array, type_)
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, _fitted(array, type_.storage_type))
    return array.cast(type_)


def _list(array: pa.Array, type_: pa.DataType) -> pa.Array:
    # From the lengths, not from the offsets: a NULL may have elements hidden under it, which Parquet refuses.
    values = _fitted(array.flatten(), type_.value_type)
    return pa.ListArray.from_arrays(_offsets(array), values, type=type_, mask=pc.is_null(array))


def _offsets(array: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _struct(array: pa.Array, type_: pa.DataType) -> pa.Array:
    by_id = any(map(_id, array.type)) and all(map(_id, type_))
    places = {_id(field) if by_id else field.name: place for place, field in enumerate(array.type)}
    children = [places.get(_id(field) if by_id else field.name) for field in type_]
    fitting = [
        pa.nulls(len(array), field.type) if place is None else _fitted(array.field(place), field.type)
        for field, place in zip(type_, children, strict=True)
    ]
    return pa.StructArray.from_arrays(fitting, fields=list(type_), mask=pc.is_null(array))


def _id(field: pa.Field) -> bytes | None:
    found: bytes | None = (field.metadata or {}).get(FIELD_ID)
    return found


def _map(array: pa.Array, type_: pa.DataType) -> pa.Array:
    entries = pa.list_(pa.struct([array.type.key_field, array.type.item_field]))
    listed = array.cast(entries)
    flat = listed.flatten()
    keys, items = _fitted(flat.field(0), type_.key_type), _fitted(flat.field(1), type_.item_type)
    return pa.MapArray.from_arrays(_offsets(listed), keys, items, type=type_, mask=pc.is_null(array))
