"""Keys of many tables, looked for in all their places as if these were one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.lake.target import Place, Target
from headwater.values.keys import key_bytes, keys_of_tables
from headwater.values.keyset import KeySet
from headwater.values.types import LakeType

__all__ = ["Match", "search", "valid_keys"]


class Match(NamedTuple):
    """Rows of a place that have one of the keys, whether they are still there or not."""

    place: Place
    at: npt.NDArray[np.int64]
    keys: pa.Array


def search(
    target: Target[Any], places: Sequence[Place], kinds: Sequence[LakeType], wanted: Mapping[int, Sequence[pa.Array]]
) -> list[Match]:
    """Where the keys of these tables are, all of which are of these types; `places` that have none are left out."""
    pieces = [(number, *piece) for number, place in enumerate(places) for piece in target.keys(place)]
    owners, firsts = (np.array([piece[which] for piece in pieces], np.int64) for which in (0, 1))
    sizes = np.array([len(columns[0]) for _, _, columns in pieces], np.int64)
    columns = [
        pa.concat_arrays([array if array.type == kind.arrow else array.cast(kind.arrow) for array in arrays])
        for arrays, kind in zip(zip(*(columns for _, _, columns in pieces), strict=True), kinds, strict=True)
    ]
    rows, here = valid_keys(columns, kinds)
    piece = np.repeat(np.arange(len(pieces)), sizes)[rows]
    tables = np.array([place.oid for place in places], np.int64)
    of = np.repeat(np.array(list(wanted), np.int64), [sum(map(len, each)) for each in wanted.values()])
    keys = KeySet(keys_of_tables(of, pa.concat_arrays([array for each in wanted.values() for array in each])))
    hits = keys.among(keys_of_tables(tables[owners[piece]], here))
    found, piece = here.take(pa.array(hits)), piece[hits]
    at = rows[hits] - (np.cumsum(sizes) - sizes)[piece] + firsts[piece]
    edges = np.searchsorted(owners[piece], np.arange(len(places) + 1)).tolist()
    return [
        Match(place, at[start:end], found.slice(start, end - start))
        for place, (start, end) in zip(places, pairwise(edges), strict=True)
        if start < end
    ]


def valid_keys(columns: Sequence[pa.Array], kinds: Sequence[LakeType]) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """The keys of rows, and which rows have one: not those that are gone, from before the key was what it is now."""
    at = np.arange(len(columns[0]))
    if any(array.null_count for array in columns):
        at = np.flatnonzero(np.all([array.is_valid().to_numpy(zero_copy_only=False) for array in columns], axis=0))
        columns = [array.take(pa.array(at)) for array in columns]
    return at, key_bytes(columns, kinds)
