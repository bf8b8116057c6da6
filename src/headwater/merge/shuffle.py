"""Changes on their way through Spark's shuffle: every column costs, so what is rare shares the others' columns."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.merge.net import CHANGE

__all__ = ["SHUFFLED", "packed", "unpacked"]

SHUFFLED = pa.schema(
    [
        ("bucket", pa.int32()),
        ("key", pa.binary()),
        ("lsn", pa.int64()),
        ("seq", pa.int64()),
        ("op", pa.int32()),  # with flags
        ("relation", pa.int64()),  # which names the table, too
        ("message", pa.binary()),  # of a change that moved with holes, after the key it had
    ]
)
_HOLES, _MOVED = 1 << 8, 1 << 9
_LENGTH = struct.Struct("!I")


def packed(
    changes: Mapping[str, pa.Array | np.ndarray], holes: npt.NDArray[np.bool_], origin: pa.Array
) -> pa.RecordBatch:
    """A batch for the shuffle: SHUFFLED's columns, and what flags and messages take up beside."""
    columns = dict(changes)
    if holes.any():
        moved = pc.is_valid(origin).to_numpy(zero_copy_only=False)
        columns["op"] = changes["op"] + holes * _HOLES + moved * _MOVED
        columns["message"] = _framed(changes["message"], origin, np.flatnonzero(moved))
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in SHUFFLED], schema=SHUFFLED)


def unpacked(shuffled: pa.Table, tables: Mapping[int, int]) -> pa.Table:
    """The changes as they were, under their tables; `tables` has the table of every relation version."""
    flags = shuffled["op"].to_numpy()
    moved = np.flatnonzero(flags & _MOVED)
    columns = {name: shuffled[name] for name in shuffled.schema.names} | {
        "oid": _tables(shuffled["relation"].to_numpy(), tables),
        "op": pa.array(flags & 0xFF, pa.int32()),
        "holes": pa.array(flags & _HOLES != 0),
        "origin": pa.nulls(len(flags), pa.binary()),
    }
    if len(moved):
        columns["origin"], columns["message"] = _unframed(shuffled["message"].to_pylist(), moved)
    return pa.table([columns[field.name] for field in CHANGE], schema=CHANGE)


def _tables(versions: npt.NDArray[np.int64], tables: Mapping[int, int]) -> pa.Array:
    known = sorted(tables)
    oids = np.array([tables[version] for version in known], np.int64)
    return pa.array(oids[np.searchsorted(known, versions)])


def _framed(messages: pa.Array, origin: pa.Array, at: npt.NDArray[np.int64]) -> pa.Array:
    if not len(at):
        return messages
    found = messages.to_pylist()
    for index, key in zip(at.tolist(), origin.take(pa.array(at)).to_pylist(), strict=True):
        found[index] = _LENGTH.pack(len(key)) + key + (found[index] or b"")
    return pa.array(found, pa.binary())


def _unframed(found: list[Any], at: npt.NDArray[np.int64]) -> tuple[pa.Array, pa.Array]:
    origin: list[bytes | None] = [None] * len(found)
    for index in at.tolist():
        end = _LENGTH.size + _LENGTH.unpack_from(found[index])[0]
        origin[index], found[index] = found[index][_LENGTH.size : end], found[index][end:]
    return pa.array(origin, pa.binary()), pa.array(found, pa.binary())
