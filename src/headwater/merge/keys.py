"""Canonical bytes of a key: equal exactly when PostgreSQL's unique index calls the keys equal.

They are made from typed values, so that a key from the WAL and the same key read from the lake's Parquet agree.
Numbers, dates and times are eight bytes whatever their width, so a widened column keeps its keys.
Not made canonical, because PostgreSQL tells the old spelling whenever it changes: types carried as text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import TableError
from headwater.types import LakeType

__all__ = ["key_bucket", "key_bytes", "leading_bounds"]


def key_bytes(columns: Sequence[pa.Array], types: Sequence[LakeType]) -> pa.Array:
    """One binary value per row for the key made of `columns`, whose types are brought to `types` first."""
    parts = [_column(array, kind) for array, kind in zip(columns, types, strict=True)]
    if len(parts) == 1:
        return parts[0].cast(pa.binary())
    if all(pa.types.is_fixed_size_binary(part.type) for part in parts):
        return _side_by_side(parts).cast(pa.binary())
    pieces = [piece.cast(pa.binary()) for part in parts for piece in _framed(part)]
    return pc.binary_join_element_wise(*pieces, b"")


def key_bucket(keys: pa.Array, buckets: int) -> npt.NDArray[np.int64]:
    """A bucket for each key, a function of the key's bytes alone, for ever: files may be laid out by it."""
    if len(keys) == 0:
        return np.zeros(0, np.int64)
    _, offsets, data = keys.buffers()
    width = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    edges = np.frombuffer(offsets, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    padded = np.concatenate([np.frombuffer(data or b"", np.uint8)[edges[0] : edges[-1]], np.zeros(8, np.uint8)])
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))  # the words that start at any byte
    sizes = np.diff(edges)
    mixed = _scramble(sizes.astype(np.uint64))
    at, rows = edges[:-1] - edges[0], np.arange(len(keys))
    for done in range(0, int(sizes.max()), 8):
        rows = rows[sizes[rows] > done]
        word = words[at[rows] + done]
        spare = np.maximum(done + 8 - sizes[rows], 0).astype(np.uint64) * np.uint64(8)  # bits of the next key
        mixed[rows] = _scramble(mixed[rows] ^ ((word << spare) >> spare))
    return (mixed % np.uint64(buckets)).astype(np.int64)


def leading_bounds(keys: pa.Array, kind: LakeType) -> tuple[int, int] | None:
    """The lowest and highest value of the key's first column, if its type is a whole number, a date or a time."""
    to = kind.arrow
    if len(keys) == 0 or not (pa.types.is_integer(to) or pa.types.is_temporal(to)):
        return None
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys)]
    numbers = np.ndarray((len(data) - 7,), ">i8", data, strides=(1,))[starts]  # the first eight bytes of each key
    return int(numbers.min()), int(numbers.max())


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
    to = kind.arrow
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
    if pa.types.is_floating(to):
        return _fixed(_one_zero_one_nan(array.to_numpy().astype(np.float64)).astype(">f8"))
    whole = array.view(pa.int32() if to.bit_width == 32 else pa.int64() if to.bit_width == 64 else to)
    return _fixed(whole.to_numpy().astype(">i8"))


def _one_zero_one_nan(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(np.isnan(values), np.nan, values + 0.0)  # -0.0 + 0.0 is 0.0


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
    """The pieces of one column among several; a variable one tells its length first: keys cannot run together."""
    if pa.types.is_fixed_size_binary(part.type):
        return [part]
    lengths = pc.binary_length(part).to_numpy().astype(">i8")
    return [_fixed(lengths), part]
