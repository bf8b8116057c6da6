"""The fold on Arrow: what `fold.py` says in plain Python, done for a slot's worth of changes at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["CHANGE", "DELETE", "INSERT", "TRUNCATE", "UPDATE", "Net", "fold_table", "split_tables"]

INSERT, UPDATE, DELETE, TRUNCATE = (ord(op) for op in "IUDT")

# The one row shape Spark sees, whatever the tables look like.
CHANGE = pa.schema(
    [
        pa.field("slot", pa.int32()),
        pa.field("oid", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("lsn", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("op", pa.int32()),
        pa.field("relation", pa.int64()),
        pa.field("message", pa.binary()),
    ]
)


class Net(NamedTuple):
    """What a table's changes amount to, by key."""

    truncated: bool
    upserts: pa.Table  # key, relation, message, replaces: whether the lake may hold an older row
    touched: pa.Array  # keys whose row in the lake, if there is one, goes
    removed: int  # keys whose last operation is a delete of a row that existed before


def split_tables(changes: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The changes of each table, in commit order."""
    ordered = changes.take(
        pc.sort_indices(changes, sort_keys=[("oid", "ascending"), ("lsn", "ascending"), ("seq", "ascending")])
    ).combine_chunks()
    oids = ordered["oid"].to_numpy()
    edges = np.flatnonzero(np.diff(oids, prepend=-1, append=-1)).tolist()
    for first, last in pairwise(edges):
        yield int(oids[first]), ordered.slice(first, last - first)


def fold_table(changes: pa.Table) -> Net:
    """One table's changes in commit order → its net change per key: the last operation wins."""
    ops = changes["op"].to_numpy()
    truncates = np.flatnonzero(ops == TRUNCATE)
    if len(truncates):
        changes, ops = changes.slice(truncates[-1] + 1), ops[truncates[-1] + 1 :]
    first, last = _ends(changes["key"])
    existed = ops[first] != INSERT
    kept = ops[last] != DELETE
    upserts = changes.take(pa.array(last[kept])).select(["key", "relation", "message"])
    upserts = upserts.append_column("replaces", pa.array(existed[kept]))
    touched = changes["key"].take(pa.array(first[existed]))
    return Net(bool(len(truncates)), upserts, touched.combine_chunks(), int((existed & ~kept).sum()))


def _ends(keys: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """For each distinct key the index of its first and of its last occurrence."""
    codes = keys.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    index = np.arange(len(codes))
    first = np.empty(codes.max(initial=-1) + 1, np.int64)
    last = np.empty_like(first)
    first[codes[::-1]] = index[::-1]
    last[codes] = index
    return first, last
