"""Arrow's buffers seen as numpy arrays, and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["bits", "flat", "large_binary"]


def flat(raw: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The lengths and the concatenated bytes of a large binary array without nulls."""
    if len(raw) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.uint8)
    _, offsets, data = raw.buffers()
    ends = np.frombuffer(offsets, np.int64)[raw.offset : raw.offset + len(raw) + 1]
    return np.diff(ends), np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]


def large_binary(lengths: npt.NDArray[np.int64], body: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_]) -> pa.Array:
    """The reverse of `flat`, null where not `valid`."""
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return pa.Array.from_buffers(
        pa.large_binary(), len(lengths), [bits(valid), pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(body))]
    )


def bits(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Arrow's bitmap of these rows."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
