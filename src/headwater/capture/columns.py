"""Rows as the log's columns: whole arrays at a time, nothing per row."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.capture import pgoutput
from headwater.capture.buffer import Chunk, Notice, Rows, numbers
from headwater.capture.inprogress import LivingRows
from headwater.change import Relation

__all__ = ["Describing", "Versions", "chunk_columns", "streamed_columns"]

# What an oid means: a relation's version id, or the relation as its message has it, when no row has used it yet.
Versions = dict[int, int | Relation]
_Ints = npt.NDArray[np.int64]


class Describing(Protocol):
    """Who knows the versions of relations."""

    def describe(self, message: Relation, row: int) -> int:
        """The version id of a relation as its message has it, and the row that is the first to use it."""

    def define(self, notice: Notice) -> None:
        """Take in a definition, which counts from here on."""


def chunk_columns(chunk: Chunk, versions: Versions, describing: Describing) -> dict[str, pa.Array]:
    """The chunk as the log's columns. `versions` is what oids mean where it begins; it is brought to its end."""
    lsn, clock, xid, rows = np.array(chunk.transactions, np.int64).reshape(-1, 4).T
    begins = np.cumsum(rows) - rows
    begins[:1] -= chunk.first_seq
    seq = np.arange(len(chunk.rows.sizes)) - np.repeat(begins, rows)
    commit = {"commit_lsn": np.repeat(lsn, rows), "commit_ts": np.repeat(clock, rows)}
    return _columns(chunk.rows, commit | {"xid": np.repeat(xid, rows), "seq": seq}, versions, describing)


def streamed_columns(living: LivingRows, versions: Versions, describing: Describing) -> dict[str, pa.Array]:
    """The same of a transaction in progress, which has no commit yet."""
    none = np.zeros(len(living.rows.sizes), np.int64)
    facts = {"commit_lsn": none, "commit_ts": none, "xid": living.xid, "seq": living.seq}
    return _columns(living.rows, facts, versions, describing)


def _columns(rows: Rows, facts: dict[str, _Ints], versions: Versions, describing: Describing) -> dict[str, pa.Array]:
    count = len(rows.sizes)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(rows.sizes, out=ends[1:])
    raw = np.frombuffer(rows.messages, np.uint8)
    start = ends[:-1]
    oid = numbers(raw, start + 1)
    for row, truncated in rows.truncates:
        oid[row] = truncated
    relation = _relations(rows, oid, versions, describing)
    return {
        "commit_lsn": pa.array(facts["commit_lsn"]),
        "seq": pa.array(facts["seq"]),
        "xid": pa.array(facts["xid"]),
        "commit_ts": pa.array(facts["commit_ts"]).cast(pa.timestamp("us", tz="UTC")),
        "op": pa.array(raw[start]),
        "relation": pa.array(relation),
        "message": pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(rows.messages)]),
    }


def _relations(rows: Rows, oid: _Ints, versions: Versions, describing: Describing) -> _Ints:
    """The relation version of every row: constant between two notices."""
    found = np.empty(len(oid), np.int64)
    edges = [*(each.row for each in rows.notices), len(oid)]
    _fill(found, oid, range(edges[0]), versions, describing)
    for notice, stop in zip(rows.notices, edges[1:], strict=True):
        if isinstance(notice.what, Relation):
            versions[notice.what.oid] = notice.what
        else:
            describing.define(notice)
        _fill(found, oid, range(notice.row, stop), versions, describing)
    return found


def _fill(found: _Ints, oid: _Ints, where: range, versions: Versions, describing: Describing) -> None:
    if not where:
        return
    here = oid[where.start : where.stop]
    encoded = pa.array(here).dictionary_encode()  # by hashing: np.unique would sort
    names = encoded.dictionary.to_pylist()
    for name in names:
        known = versions.get(name)
        if known is None:
            raise pgoutput.ProtocolError(f"a change of relation {name} came before its description")
        if isinstance(known, Relation):
            versions[name] = describing.describe(known, where.start + int(np.argmax(here == name)))
    found[where.start : where.stop] = np.array([versions[name] for name in names], np.int64)[encoded.indices.to_numpy()]
