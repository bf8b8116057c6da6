"""Arrow columns cast to another type, inside lists too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["fitted", "flattened", "plain"]


def fitted(column: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """The column in this type; raises pa.ArrowInvalid for a value that the type cannot hold."""
    if column.type == type_:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_fitted(chunk, type_) for chunk in column.chunks], type_)
    return _fitted(column, type_)


def plain(type_: pa.DataType) -> pa.DataType:
    """The type without extension types: a uuid is 16 bytes, a json is text."""
    if isinstance(type_, pa.BaseExtensionType):
        return type_.storage_type
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(plain(type_.value_type)))
    return type_


def flattened(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The innermost values of a column of lists, of lists of lists, and so on."""
    while pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        column = pc.list_flatten(column)
    return column


def _fitted(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == type_:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), type_)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_list(type_):
        return _list(array, type_)
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, _fitted(array, type_.storage_type))
    return array.cast(type_)


def _list(array: pa.Array, type_: pa.DataType) -> pa.Array:
    # From the lengths, not from the offsets: a NULL may have elements hidden under it, which Parquet refuses.
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = _fitted(array.flatten(), type_.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=type_, mask=pc.is_null(array))
