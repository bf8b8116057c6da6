"""Canonical bytes of a key: equal exactly when PostgreSQL's unique index calls the keys equal.

They are made from typed values, so that a key from the WAL and the same key read from the lake's Parquet agree.
Numbers, dates and times are eight bytes whatever their width, so a widened column keeps its keys.
Not made canonical, because PostgreSQL sends the old spelling whenever it changes: types carried as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import TableError
from headwater.values.types import LakeType

__all__ = [
    "are_numbers",
    "key_bucket",
    "key_bytes",
    "key_hashes",
    "key_numbers",
    "key_values",
    "keys_of_tables",
    "known_by",
    "leading_bounds",
    "number_keys",
    "row_bytes",
    "row_keys",
]

# Before the bytes of a key that has a NULL in it, which those of no other key begin with.
_WITH_NULL = bytes.fromhex("ff8f1c6b5a0e4d7c93b2e1f04a6d8c3b")


def key_bytes(columns: Sequence[pa.Array], types: Sequence[LakeType]) -> pa.Array:
    """One binary value per row for the key made of `columns`, whose types are brought to `types` first."""
    parts = [_column(array, kind) for array, kind in zip(columns, types, strict=True)]
    if len(parts) == 1:
        return parts[0].cast(pa.binary())
    if all(pa.types.is_fixed_size_binary(part.type) for part in parts):
        return _side_by_side(parts).cast(pa.binary())
    return _joined([piece for part in parts for piece in _framed(part)])


def keys_of_tables(tables: npt.NDArray[np.int64], keys: pa.Array) -> pa.Array:
    """Keys of several tables, whose numbers are given: equal exactly when both the table and the key are."""
    return _joined([_fixed(tables.astype(">i8")), keys])


def known_by(columns: Sequence[pa.Array], types: Sequence[LakeType]) -> pa.Array:
    """Like `key_bytes`, for a key whose columns may be NULL: that is a value like any other there."""
    lacking = np.any([array.is_null().to_numpy(zero_copy_only=False) for array in columns], axis=0)
    if not lacking.any():
        return key_bytes(columns, types)
    whole = [array.filter(pa.array(~lacking)) for array in columns]
    rest = [array.filter(pa.array(lacking)) for array in columns]
    pieces = [piece for array, kind in zip(rest, types, strict=True) for piece in _nullable(array, _bytes_as(kind))]
    marked = _joined([pa.array([_WITH_NULL] * int(lacking.sum()), pa.binary()), *pieces])
    at = np.where(lacking, np.cumsum(lacking) - 1 + int((~lacking).sum()), np.cumsum(~lacking) - 1)
    return pa.concat_arrays([key_bytes(whole, types), marked]).take(pa.array(at))


def _bytes_as(kind: LakeType) -> Callable[[pa.Array], pa.Array]:
    return lambda array: _column(array, kind)


def row_keys(rows: pa.Table, key: Mapping[str, LakeType]) -> pa.Array:
    """What each row is known by: its key, or without one all its values."""
    if key:
        return key_bytes([rows[name].combine_chunks() for name in key], list(key.values()))
    return row_bytes([column.combine_chunks() for column in rows.columns])


def row_bytes(columns: Sequence[pa.Array]) -> pa.Array:
    """One binary value per row, equal exactly when PostgreSQL prints all its values alike; they may be null."""
    return _joined([piece for array in columns for piece in _nullable(array, _verbatim)])


def key_bucket(keys: pa.Array, buckets: int) -> npt.NDArray[np.int64]:
    """A bucket for each key, a function of the key's bytes alone, for ever: files may be laid out by it."""
    if buckets == 1:
        return np.zeros(len(keys), np.int64)
    return (key_hashes(keys) % np.uint64(buckets)).astype(np.int64)


def key_hashes(keys: pa.Array) -> npt.NDArray[np.uint64]:
    """64 bits for each key, as good as never the same for two."""
    if len(keys) == 0:
        return np.zeros(0, np.uint64)
    data, edges = keys.buffers()[2], _edges(keys)
    padded = np.concatenate([np.frombuffer(data or b"", np.uint8)[edges[0] : edges[-1]], np.zeros(8, np.uint8)])
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))  # the words that start at any byte
    sizes = np.diff(edges)
    mixed = _scramble(sizes.astype(np.uint64))
    if sizes[0] % 8 == 0 and np.all(sizes == sizes[0]):  # most keys: whole words, found without looking for them
        for column in padded[:-8].view("<u8").reshape(len(keys), -1).T:
            mixed = _scramble(mixed ^ column)
        return mixed
    at, rows = edges[:-1] - edges[0], np.arange(len(keys))
    for done in range(0, int(sizes.max()), 8):
        rows = rows[sizes[rows] > done]
        word = words[at[rows] + done]
        spare = np.maximum(done + 8 - sizes[rows], 0).astype(np.uint64) * np.uint64(8)  # bits of the next key
        mixed[rows] = _scramble(mixed[rows] ^ ((word << spare) >> spare))
    return mixed


def key_numbers(keys: pa.Array) -> npt.NDArray[np.int64] | None:
    """The keys as numbers if each is eight bytes long, equal when they are; in order if they were made of numbers."""
    edges = _edges(keys)
    if not np.all(np.diff(edges) == 8):
        return None
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)[edges[0] : edges[-1]]
    return np.ascontiguousarray(data).view(">i8").astype(np.int64)


def are_numbers(types: Sequence[LakeType]) -> bool:
    """Whether every key that `key_bytes` makes for these types is one that `key_numbers` understands."""
    return len(types) == 1 and _width(types[0]) == 8


def number_keys(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """The keys of which `key_numbers` made these."""
    return _fixed(numbers.astype(">i8")).cast(pa.binary())


def leading_bounds(keys: pa.Array, kind: LakeType) -> tuple[int, int] | None:
    """The lowest and highest value of the key's first column, if its type is a whole number, a date or a time.

    None if a key has a NULL in it.
    """
    to = kind.arrow
    if len(keys) == 0 or to == pa.uint64() or not (pa.types.is_integer(to) or pa.types.is_temporal(to)):
        return None
    _, offsets, data = keys.buffers()
    edges = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    if np.diff(edges).max() >= len(_WITH_NULL) and pc.any(pc.starts_with(keys, _WITH_NULL)).as_py():
        return None
    starts = edges[:-1]
    numbers = np.ndarray((len(data) - 7,), ">i8", data, strides=(1,))[starts]  # the first eight bytes of each key
    return int(numbers.min()), int(numbers.max())


def key_values(keys: pa.Array, types: Sequence[LakeType]) -> list[pa.Array | None]:
    """The columns that `key_bytes` made these keys of; None for one whose values they do not determine."""
    edges = _edges(keys)
    content, at, columns = np.frombuffer(keys.buffers()[2] or b"", np.uint8), edges[:-1], []
    for kind in types:
        width = _width(kind)
        if width is None:
            alone = len(types) == 1
            sizes = np.diff(edges) if alone else _rows_at(content, at, 8).view(">i8")[:, 0].astype(np.int64)
            at = at if alone else at + 8
            columns.append(_text_values(_pieces(content, at, sizes), kind))
            at = at + sizes
        else:
            columns.append(_fixed_values(_rows_at(content, at, width), kind))
            at = at + width
    return columns


def _edges(keys: pa.Array) -> npt.NDArray[np.int64]:
    """Where in its data each key begins, and where the last one ends."""
    offsets = keys.buffers()[1]
    if offsets is None:
        return np.zeros(1, np.int64)
    width = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    return np.frombuffer(offsets, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)


def _width(kind: LakeType) -> int | None:
    """How many bytes `_column` makes of every value; None if that differs."""
    to = kind.arrow
    if kind.element is not None or pa.types.is_large_string(to) or pa.types.is_large_binary(to):
        return None
    return 16 if pa.types.is_fixed_size_binary(to) or pa.types.is_decimal(to) else 8


def _rows_at(content: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(content[at[:, None] + np.arange(width)])


def _pieces(content: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> pa.Array:
    edges = np.concatenate([[0], np.cumsum(sizes)])
    found = content[np.repeat(at - edges[:-1], sizes) + np.arange(edges[-1])]
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(found))]
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)


def _text_values(pieces: pa.Array, kind: LakeType) -> pa.Array | None:
    if kind.element is not None or kind.pg == "character":  # whose padding the key does not have
        return None
    return pieces.cast(kind.arrow)


def _fixed_values(rows: npt.NDArray[np.uint8], kind: LakeType) -> pa.Array | None:
    to = kind.arrow
    if pa.types.is_fixed_size_binary(to) or pa.types.is_decimal(to):
        return pa.Array.from_buffers(to, len(rows), [None, pa.py_buffer(rows)])
    if pa.types.is_floating(to):  # a zero has lost its sign
        return None
    unsigned = pa.types.is_unsigned_integer(to)
    numbers = rows.view(">u8" if unsigned else ">i8")[:, 0].astype(np.uint64 if unsigned else np.int64)
    if pa.types.is_temporal(to):
        whole = pa.int32() if to.bit_width == 32 else pa.int64()
        return pa.array(numbers).cast(whole).view(to)
    return pa.array(numbers).cast(to)


def _scramble(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finisher of splitmix64: every input bit reaches every output bit."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _column(array: pa.Array, kind: LakeType) -> pa.Array:
    """One key column as fixed-size or large binary."""
    if array.null_count:
        raise TableError("a key column holds NULL", hint="the key must be a primary key")
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    array = array.cast(kind.arrow)
    to, element = kind.arrow, kind.element
    if element is not None:
        return _listed(array, lambda values: _column(values, element))
    if kind.pg == "character":
        array = pc.utf8_rtrim(array, characters=" ")  # char(n) compares without its padding
    if pa.types.is_large_string(to) or pa.types.is_large_binary(to):
        return array.cast(pa.large_binary())
    if pa.types.is_fixed_size_binary(to):
        return array
    if pa.types.is_decimal(to):
        return pa.Array.from_buffers(pa.binary(16), len(array), [None, array.buffers()[1]], offset=array.offset)
    if pa.types.is_boolean(to):
        return _fixed(array.cast(pa.uint8()).to_numpy().astype(">i8"))
    if pa.types.is_unsigned_integer(to):
        return _fixed(array.to_numpy().astype(">u8"))
    if pa.types.is_floating(to):
        return _fixed(_one_nan(array.to_numpy().astype(np.float64) + 0.0).astype(">f8"))  # -0.0 + 0.0 is 0.0
    whole = array.view(pa.int32() if to.bit_width == 32 else pa.int64() if to.bit_width == 64 else to)
    return _fixed(whole.to_numpy().astype(">i8"))


def _verbatim(array: pa.Array) -> pa.Array:
    """A column without nulls as fixed-size or large binary, bit by bit; only there is but one NaN, as in PostgreSQL."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_list(kind):
        return _listed(array, _verbatim)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif pa.types.is_floating(kind):
        array = pa.array(_one_nan(array.to_numpy()), kind)
    elif not pa.types.is_primitive(kind) and not pa.types.is_decimal(kind):
        return array.cast(pa.large_binary())
    width = array.type.bit_width // 8
    return pa.Array.from_buffers(pa.binary(width), len(array), [None, array.buffers()[1]], offset=array.offset)


def _nullable(array: pa.Array, value: Callable[[pa.Array], pa.Array]) -> list[pa.Array]:
    """The pieces of one column among several: a flag, the length and the bytes, which are none for a null."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    part = value(array if valid.all() else array.drop_null()).cast(pa.large_binary())
    if not valid.all():
        part = pc.fill_null(part.take(pa.array(np.cumsum(valid) - 1, mask=~valid)), b"")
    flag = pa.Array.from_buffers(pa.binary(1), len(valid), [None, pa.py_buffer(valid.astype(np.uint8))])
    return [flag, *_framed(part)]


def _listed(array: pa.Array, value: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Lists, none of them null, as large binary: the pieces of their elements one after the other."""
    elements = _joined(_nullable(array.flatten(), value))
    _, offsets, data = elements.buffers()
    ends = np.concatenate([[0], np.cumsum(pc.list_value_length(array).to_numpy())])
    edges = np.frombuffer(offsets, np.int32).astype(np.int64)[ends + elements.offset]
    return pa.Array.from_buffers(pa.large_binary(), len(array), [None, pa.py_buffer(edges), data])


def _joined(pieces: Sequence[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*(piece.cast(pa.binary()) for piece in pieces), b"")


def _one_nan(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)


def _fixed(values: npt.NDArray[np.generic]) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(8), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _side_by_side(parts: list[pa.Array]) -> pa.Array:
    rows = np.concatenate([_bytes_of(part) for part in parts], axis=1)
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(rows)])


def _bytes_of(part: pa.Array) -> npt.NDArray[np.uint8]:
    width = part.type.byte_width
    flat = np.frombuffer(part.buffers()[1] or b"", np.uint8)
    return flat[part.offset * width : (part.offset + len(part)) * width].reshape(len(part), width)


def _framed(part: pa.Array) -> list[pa.Array]:
    """The pieces of one column among several; a variable one has its length first, so that keys cannot run together."""
    if pa.types.is_fixed_size_binary(part.type):
        return [part]
    lengths = pc.binary_length(part).to_numpy().astype(">i8")
    return [_fixed(lengths), part]
