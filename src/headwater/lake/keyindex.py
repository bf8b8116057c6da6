"""The key index of a data file: where each key's row is, found without reading the file's keys.

A delivery of random keys has some for every file, so it does not help to know which files to read: it must be cheap to
look into one. The index has all keys of a file, ordered by a word of 64 bits, with the position of the row and its id
if the file has one. Keys of eight bytes are that word themselves; of others it is a hash, and the key's own bytes stand
beside it. So two keys with one hash are distinguished without a look into the data file: reading a thousand rows
scattered over a Parquet file means decompressing all of it.

A file of many rows has several parts, each in order for itself, so that no more than one part is ever in memory to be
sorted. An index is mapped into memory. It is read as a whole once, when a worker opens it and compares its checksum;
after that a search touches the pages that its keys need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.values.keys import key_hashes, key_numbers, number_keys
from headwater.values.keyset import KeySet, runs

__all__ = ["Found", "KeyIndex", "Keys", "index_parts", "index_schema"]

PART_ROWS, PART_BYTES = 1_000_000, 256 << 20  # a part is closed at whichever comes first

Positions = npt.NDArray[np.int64]
Keys = Iterable[tuple[Positions, pa.Array]]  # of a file, in pieces: the positions of some rows, and their keys


class Found(NamedTuple):
    """Rows that have one of the keys, in the order of their positions."""

    at: Positions
    keys: pa.Array
    row_ids: pa.Array | None  # None: the file has none


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """An index, as `index_parts` makes it."""

    parts: Sequence[pa.RecordBatch]

    def among(self, wanted: KeySet) -> Found:
        """All rows with one of the keys, live or not."""
        return _joined([_among(part, wanted) for part in self.parts])


def index_schema(*, numbers: bool, row_ids: bool) -> pa.Schema:
    """The columns of an index; `numbers` if every key has eight bytes."""
    key = [] if numbers else [("key", pa.binary())]
    ids = [("row_id", pa.int64())] if row_ids else []
    return pa.schema([("word", pa.int64() if numbers else pa.uint64()), ("at", pa.uint32()), *ids, *key])


def index_parts(
    keys: Keys, row_ids: pa.Array | None, schema: pa.Schema, part_rows: int = PART_ROWS
) -> Iterator[pa.RecordBatch]:
    """The parts of an index. `row_ids` has an id for each row of the file, if it has them at all."""
    held: list[tuple[Positions, pa.Array]] = []
    for piece in keys:
        held.append(piece)
        rows, size = sum(len(at) for at, _ in held), sum(here.nbytes for _, here in held)
        if rows >= part_rows or size >= PART_BYTES:
            yield _part(held, row_ids, schema)
            held = []
    if held:
        yield _part(held, row_ids, schema)


def _part(held: Sequence[tuple[Positions, pa.Array]], row_ids: pa.Array | None, schema: pa.Schema) -> pa.RecordBatch:
    at, keys = np.concatenate([at for at, _ in held]), pa.concat_arrays([here for _, here in held])
    numbers = None if "key" in schema.names else key_numbers(keys)
    words = key_hashes(keys) if numbers is None else numbers
    order = _order(words)
    columns = {"word": pa.array(words[order]), "at": pa.array(at[order].astype(np.uint32))}
    if row_ids is not None:
        columns["row_id"] = row_ids.take(pa.array(at[order]))
    if numbers is None:
        columns["key"] = _taken(keys, order)
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def _order(words: npt.NDArray[Any]) -> Positions:
    """The numbers of a copied file are in order already."""
    ascending = bool(np.all(words[1:] >= words[:-1]))
    return np.arange(len(words)) if ascending else np.argsort(words)


def _taken(keys: pa.Array, order: Positions) -> pa.Array:
    """Keys of one width as if they were of a type of that width: that takes a fifth of the time."""
    narrowest, width = pc.min_max(pc.binary_length(keys)).as_py().values()
    if not width or narrowest != width or keys.buffers()[2].size != width * len(keys):
        return keys.take(pa.array(order))
    fixed = pa.Array.from_buffers(pa.binary(width), len(keys), [None, keys.buffers()[2]])
    return fixed.take(pa.array(order)).cast(pa.binary())


def _among(part: pa.RecordBatch, wanted: KeySet) -> Found:
    words = part["word"].to_numpy()
    sought = wanted.hashes if "key" in part.schema.names else wanted.numbers
    hits = runs(words, sought)
    if "key" in part.schema.names:
        keys = part["key"].take(pa.array(hits))
        same = wanted.among_few(keys)
        hits, keys = hits[same], keys.take(pa.array(same))
    else:
        keys = number_keys(words[hits])
    row_ids = part["row_id"].take(pa.array(hits)) if "row_id" in part.schema.names else None
    return Found(part["at"].to_numpy()[hits].astype(np.int64), keys, row_ids)


def _joined(found: Sequence[Found]) -> Found:
    at = np.concatenate([np.empty(0, np.int64), *(each.at for each in found)])
    order = np.argsort(at)
    chosen = pa.array(order)
    ids = [each.row_ids for each in found if each.row_ids is not None]
    keys = pa.concat_arrays([pa.array([], pa.binary()), *(each.keys for each in found)])
    return Found(at[order], keys.take(chosen), pa.concat_arrays(ids).take(chosen) if ids else None)
