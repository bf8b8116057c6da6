"""The 32-bit murmur3 hash, by which both lakes distribute values to buckets."""

from __future__ import annotations

from collections.abc import Iterable

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["buckets", "hashed_binaries", "hashed_numbers", "hashed_texts", "unscaled"]

_Hashes = npt.NDArray[np.uint32]


def buckets(array: pa.Array, hashes: _Hashes, count: int) -> pa.Array:
    """The bucket of each value, null for a null; `hashes` are those of the array's values."""
    numbers = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)
    return pa.array(numbers.astype(np.int32), mask=array.is_null().to_numpy(zero_copy_only=False))


def hashed_numbers(array: pa.Array) -> _Hashes:
    """Whole numbers, dates and times, each hashed as eight bytes whatever its width; nulls have some hash."""
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    numbers = array.cast(pa.int64()).fill_null(0).to_numpy()
    return _murmur(numbers.astype("<i8").view("<u4").reshape(len(numbers), 2))


def hashed_binaries(array: pa.Array) -> _Hashes:
    """Values of a fixed size that is a multiple of four bytes."""
    width = array.type.byte_width
    filled = array.fill_null(bytes(width))
    found = np.frombuffer(filled.buffers()[1] or b"", np.uint8)[filled.offset * width :][: len(filled) * width]
    return _murmur(np.ascontiguousarray(found).view("<u4").reshape(len(filled), width // 4))


def hashed_texts(array: pa.Array, spelled: Iterable[bytes] | None = None) -> _Hashes:
    """Texts and bytes of any length, each different one hashed once; or what the distinct values are `spelled` as."""
    encoded = array.dictionary_encode()
    if spelled is None:
        spelled = encoded.dictionary.cast(pa.large_binary()).to_pylist()
    hashes = np.array([mmh3.hash(each, signed=False) for each in spelled], np.uint32)
    at = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return hashes[at] if len(hashes) else np.zeros(len(array), np.uint32)


def unscaled(array: pa.Array) -> list[int]:
    """Decimals without nulls as the whole numbers that they are multiples of 10^-scale by."""
    data = array.buffers()[1].to_pybytes()
    return [
        int.from_bytes(data[at * 16 : at * 16 + 16], "little", signed=True)
        for at in range(array.offset, array.offset + len(array))
    ]


def _murmur(words: npt.NDArray[np.uint32]) -> _Hashes:
    """Of each row of words."""
    state = np.zeros(len(words), np.uint32)
    for word in words.T:
        mixed = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        state = _rotated(state ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    state ^= np.uint32(words.shape[1] * 4)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _rotated(words: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))
