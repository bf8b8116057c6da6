"""The fold on Arrow: what `fold.py` says in plain Python, done for a bucket's worth of changes at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "CHANGE",
    "DELETE",
    "INSERT",
    "TRUNCATE",
    "UPDATE",
    "UPSERT",
    "NetChanges",
    "NetTables",
    "fold_bag",
    "fold_table",
    "fold_tables",
    "in_order",
    "of_plain_tables",
    "split_tables",
]

INSERT, UPDATE, DELETE, TRUNCATE = (ord(op) for op in "IUDT")

# A change to fold; every table's changes have these columns.
CHANGE = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("oid", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("lsn", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("op", pa.int32()),
        pa.field("relation", pa.int64()),
        pa.field("message", pa.binary()),
        # The row (of a delete: the row that moves on) has TOASTed values that its message omits.
        pa.field("holes", pa.bool_()),
        pa.field("origin", pa.binary()),  # of a row with holes that moved here: the key it had
    ]
)

# A row to write. With holes: the messages before it, newest first, until one that omits nothing; if all do,
# `base` is the key, before the batch, of the row in the lake that has the rest.
UPSERT = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("lsn", pa.int64()),
        pa.field("relation", pa.int64()),
        pa.field("message", pa.binary()),
        pa.field("older", pa.list_(pa.binary())),
        pa.field("older_relations", pa.list_(pa.int64())),
        pa.field("base", pa.binary()),
    ]
)


class NetChanges(NamedTuple):
    """What a table's changes amount to, by key."""

    truncated: bool
    upserts: pa.Table  # of UPSERT
    touched: pa.Array  # keys whose row in the lake, if there is one, goes; as often as rows of a bag go
    scattered: bool = False  # a row with holes moved to another bucket, and some of its past is here


def in_order(changes: pa.Table) -> pa.Table:
    """By table, and each table's changes in commit order."""
    return changes.take(
        pc.sort_indices(changes, sort_keys=[("oid", "ascending"), ("lsn", "ascending"), ("seq", "ascending")])
    ).combine_chunks()


def split_tables(ordered: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Changes that are in order, by table."""
    oids = ordered["oid"].to_numpy()
    edges = np.flatnonzero(np.diff(oids, prepend=-1, append=-1)).tolist()
    for first, last in pairwise(edges):
        yield int(oids[first]), ordered.slice(first, last - first)


def fold_table(changes: pa.Table) -> NetChanges:
    """One table's changes in commit order → its net change per key: the last operation wins."""
    truncated, changes = _after_truncate(changes)
    ops = changes["op"].to_numpy()
    first, last = _ends(changes["key"])
    existed = ops[first] != INSERT
    kept = last[ops[last] != DELETE]
    holes = changes["holes"].to_numpy()
    pasts = _Pasts(changes) if holes[kept].any() else None
    chains = None if pasts is None else [pasts.of[at] if holes[at] else None for at in kept.tolist()]
    upserts = _upserts(changes, kept, chains)
    touched = changes["key"].take(pa.array(first[existed])).combine_chunks()
    return NetChanges(truncated, upserts, touched, _scattered(changes, ops, holes, first))


def of_plain_tables(changes: pa.Table, bags: Sequence[int]) -> np.ndarray:
    """Which changes are of tables that `fold_tables` folds; `bags` are those without a key."""
    oids, ops = changes["oid"].to_numpy(), changes["op"].to_numpy()
    plain = (ops == INSERT) | (ops == UPDATE) | (ops == DELETE)
    special = oids[~plain | changes["holes"].to_numpy()]
    return ~np.isin(oids, np.concatenate([np.array(bags, np.int64), np.unique(special)]))


class NetTables(NamedTuple):
    """What the changes of many tables amount to: `NetChanges` of one table after the other, without any holes."""

    tables: list[int]  # by their OIDs, ascending
    upserts: pa.Table  # of UPSERT
    upsert_edges: list[int]  # where each table's begin, and where the last one's end
    touched: pa.Array
    touched_edges: list[int]

    def each(self) -> Iterator[tuple[int, NetChanges]]:
        for oid, (start, end), (first, last) in self.spans():
            yield (
                oid,
                NetChanges(False, self.upserts.slice(start, end - start), self.touched.slice(first, last - first)),
            )

    def spans(self) -> Iterator[tuple[int, tuple[int, int], tuple[int, int]]]:
        """Of each table, where its upserts and its touched keys are."""
        return zip(self.tables, pairwise(self.upsert_edges), pairwise(self.touched_edges), strict=True)


def fold_tables(changes: pa.Table) -> NetTables:
    """Like `fold_table` for many tables at once, whose changes are in order: no truncate, and no row with holes."""
    oids, ops = changes["oid"].to_numpy(), changes["op"].to_numpy()
    tables, numbers = np.unique(oids, return_inverse=True)
    first, last = _ends(changes["key"], numbers)
    touched, kept = first[ops[first] != INSERT], last[ops[last] != DELETE]
    upserts, keys = _upserts(changes, kept, None), changes["key"].take(pa.array(touched)).combine_chunks()
    # Keys come in the order in which they are first seen, so both are still by table.
    upsert_edges, key_edges = (
        np.searchsorted(numbers[at], np.arange(len(tables) + 1)).tolist() for at in (kept, touched)
    )
    return NetTables(tables.tolist(), upserts, upsert_edges, keys, key_edges)


def _scattered(changes: pa.Table, ops: np.ndarray, holes: np.ndarray, first: np.ndarray) -> bool:
    """Whether a row with holes has left for another bucket after something had been done to it here."""
    left = np.setdiff1d(np.flatnonzero((ops == DELETE) & holes), first)
    if not len(left):
        return False
    arrived = pc.equal(changes["origin"].take(pa.array(np.minimum(left + 1, len(ops) - 1))),
                       changes["key"].take(pa.array(left)))  # fmt: skip
    return not pc.all(pc.fill_null(arrived, False)).as_py()


def fold_bag(changes: pa.Table) -> NetChanges:
    """The same for a table without a key, whose 'keys' are entire rows: how many of each come, how many go.

    The rows that come are the last that came: their values are the same, but of those that do not fit the text may not.
    """
    truncated, changes = _after_truncate(changes)
    codes = _codes(changes["key"].combine_chunks())
    ops = changes["op"].to_numpy()
    came, went = np.flatnonzero(ops == INSERT), np.flatnonzero(ops == DELETE)
    count = int(codes.max(initial=-1)) + 1
    more = np.bincount(codes[came], minlength=count) - np.bincount(codes[went], minlength=count)
    coming, going = _last(codes, came, more), _last(codes, went, -more)
    return NetChanges(truncated, _upserts(changes, coming, None), changes["key"].take(pa.array(going)).combine_chunks())


def _last(codes: np.ndarray, rows: np.ndarray, many: np.ndarray) -> np.ndarray:
    """For each code as many of its rows as `many` says, the last ones."""
    rows = rows[np.argsort(codes[rows], kind="stable")]
    ends = np.cumsum(np.bincount(codes[rows], minlength=len(many)))
    from_behind = ends[codes[rows]] - np.arange(len(rows))  # 1: the last of its code
    chosen: np.ndarray = rows[from_behind <= many[codes[rows]]]
    return chosen


def _after_truncate(changes: pa.Table) -> tuple[bool, pa.Table]:
    truncates = np.flatnonzero(changes["op"].to_numpy() == TRUNCATE)
    return bool(len(truncates)), changes.slice(truncates[-1] + 1) if len(truncates) else changes


def _upserts(changes: pa.Table, rows: np.ndarray, pasts: list[_Past | None] | None) -> pa.Table:
    found = changes.select(["key", "lsn", "relation", "message"]).take(pa.array(rows))
    if pasts is None:
        rest = [pa.nulls(len(rows), UPSERT.field(name).type) for name in ("older", "older_relations", "base")]
    else:
        messages, relations = changes["message"], changes["relation"]
        chains = [past and past.older() for past in pasts]
        rest = [
            pa.array(
                [chain and [messages[at].as_py() for at in chain] for chain in chains], UPSERT.field("older").type
            ),
            pa.array([chain and [relations[at].as_py() for at in chain] for chain in chains], pa.list_(pa.int64())),
            pa.array([past and past.base for past in pasts], pa.binary()),
        ]
    return pa.table([*found.columns, *rest], schema=UPSERT)


@dataclass(frozen=True, slots=True)
class _Past:
    """A version of a row, the one before it in the batch, or the key of the one in the lake."""

    at: int
    before: _Past | None = None
    base: bytes | None = None

    def older(self) -> list[int]:
        found, past = [], self.before
        while past is not None:
            found.append(past.at)
            past = past.before
        return found


class _Pasts:
    """Where the values of rows with holes come from, one change after the other as `fold.py` has it.

    A loop over rows, but only for tables whose batch has UNCHANGED values.
    """

    def __init__(self, changes: pa.Table) -> None:
        self.of: dict[int, _Past] = {}
        now: dict[bytes, _Past] = {}
        gone: tuple[bytes, _Past | None] | None = None  # what the delete just before was about
        columns = (changes[name].to_pylist() for name in ("key", "op", "holes", "origin"))
        for at, (key, op, holes, origin) in enumerate(zip(*columns, strict=True)):
            if op == DELETE:
                gone = key, now.pop(key, None)
                continue
            if not holes:
                past = _Past(at)
            elif origin is None:
                before = now.get(key)
                past = _Past(at, before, before.base if before else key)
            else:
                before = gone[1] if gone is not None and gone[0] == origin else None
                past = _Past(at, before, before.base if before else origin)
            now[key] = self.of[at] = past


def _ends(keys: pa.ChunkedArray, tables: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """For each distinct key, of each of these tables, the index of its first and of its last occurrence."""
    codes = _codes(keys.combine_chunks())
    if tables is not None:
        codes = _codes(pa.array(tables * (int(codes.max(initial=-1)) + 1) + codes))
    index = np.arange(len(codes))
    first = np.empty(codes.max(initial=-1) + 1, np.int64)
    last = np.empty_like(first)
    first[codes[::-1]] = index[::-1]
    last[codes] = index
    return first, last


def _codes(values: pa.Array) -> np.ndarray:
    """A number for each distinct value, in the order in which they are first seen."""
    found: np.ndarray = values.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return found
