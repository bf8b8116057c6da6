"""What was read from the slot and not handed on yet. Per change it does next to nothing; the rest is done by column."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.capture import pgoutput
from headwater.change import Lsn, Relation

__all__ = ["Buffer", "Chunk", "columns"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Changes in commit order, compact. `upto` is the position after them; None inside a transaction."""

    messages: bytearray
    sizes: npt.NDArray[np.int32]
    transactions: tuple[tuple[int, int, int, int], ...]  # commit_lsn, commit_ts, xid, rows in this chunk
    first_seq: int  # of the first transaction, when its beginning was handed on before
    relations: tuple[tuple[int, Relation], ...]  # from this row on, its oid means this relation
    truncates: tuple[tuple[int, int], ...]  # row, oid: a Truncate names several, its row is one of them
    upto: Lsn | None


@dataclass(slots=True)
class Buffer:
    """Whole transactions, then perhaps the beginning of one that is still coming."""

    position: Lsn  # after the last whole transaction, or further by a keepalive
    messages: bytearray = field(default_factory=bytearray)
    sizes: array[int] = field(default_factory=lambda: array("i"))
    done: list[tuple[int, int, int, int]] = field(default_factory=list)
    first_seq: int = 0
    relations: list[tuple[int, Relation]] = field(default_factory=list)
    truncates: list[tuple[int, int]] = field(default_factory=list)
    open: pgoutput.Begin | None = None
    open_row: int = 0  # where the open transaction begins here
    open_byte: int = 0
    seen: dict[int, Relation] = field(default_factory=dict)

    def begin(self, begin: pgoutput.Begin) -> None:
        if self.open is not None or begin.commit_lsn < self.position:
            raise pgoutput.ProtocolError(
                f"transaction {begin.xid} commits at {begin.commit_lsn}, but the stream is at {self.position} already"
            )
        self.open, self.open_row, self.open_byte = begin, len(self.sizes), len(self.messages)

    def commit(self, commit: pgoutput.Commit) -> bool:
        """Whether the transaction has changed anything, here or in what was handed on before."""
        if self.open is None or self.open.commit_lsn != commit.commit_lsn:
            raise pgoutput.ProtocolError(f"a commit at {commit.commit_lsn} without its begin")
        changed = self._close_transaction() or self.first_seq > 0
        if not self.done:
            self.first_seq = 0  # every row of it was handed on before
        self.open, self.position = None, commit.end_lsn
        return changed

    def reach(self, position: Lsn) -> None:
        """The server has sent everything before this position, unless it is in the middle of a transaction."""
        if self.open is None:
            self.position = max(self.position, position)

    def relation(self, relation: Relation) -> None:
        """Note a relation's shape, if it is news."""
        if self.seen.get(relation.oid) != relation:
            self.seen[relation.oid] = relation
            self.relations.append((len(self.sizes), relation))

    def truncate(self, message: bytes, oids: tuple[int, ...]) -> None:
        """One row for each table truncated."""
        for oid in oids:
            self.truncates.append((len(self.sizes), oid))
            self.messages += message
            self.sizes.append(len(message))

    def take_whole(self) -> Chunk:
        """Hand on the whole transactions; the open one stays."""
        row, byte = (self.open_row, self.open_byte) if self.open else (len(self.sizes), len(self.messages))
        rest = self.messages[byte:]
        del self.messages[byte:]
        chunk = self._chunk(row, self.position)
        self.messages, self.sizes = rest, self.sizes[row:]
        self.relations = [(at - row, each) for at, each in self.relations if at >= row]
        self.truncates = [(at - row, each) for at, each in self.truncates if at >= row]
        self.open_row = self.open_byte = 0
        return chunk

    def take_open(self) -> Chunk:
        """Hand on what there is of the open transaction, when nothing else is here."""
        begun = self.first_seq
        rows = len(self.sizes)
        self._close_transaction()
        chunk = self._chunk(rows, None)
        self.messages, self.sizes, self.truncates = bytearray(), array("i"), []
        self.relations = [(at - rows, each) for at, each in self.relations if at >= rows]
        self.first_seq = begun + rows
        return chunk

    def _close_transaction(self) -> bool:
        assert self.open is not None
        rows = len(self.sizes) - self.open_row
        if rows:
            self.done.append((self.open.commit_lsn.value, self.open.commit_ts, self.open.xid, rows))
        return rows > 0

    def _chunk(self, rows: int, upto: Lsn | None) -> Chunk:
        sizes = np.array(self.sizes[:rows], np.int32)
        relations = tuple(each for each in self.relations if each[0] < rows)
        truncates = tuple(each for each in self.truncates if each[0] < rows)
        chunk = Chunk(self.messages, sizes, tuple(self.done), self.first_seq, relations, truncates, upto)
        if self.done:  # else the open transaction is the one that was begun before
            self.done, self.first_seq = [], 0
        return chunk


def columns(chunk: Chunk, versions: dict[int, int]) -> dict[str, pa.Array]:
    """The chunk as the log's columns. `versions` maps oid to relation version where the chunk begins."""
    count = len(chunk.sizes)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(chunk.sizes, out=ends[1:])
    raw = np.frombuffer(chunk.messages, np.uint8)
    start = ends[:-1]
    oid = np.zeros(count, np.int64)
    for byte in range(1, 5):
        oid = oid << 8 | raw[start + byte]
    for row, truncated in chunk.truncates:
        oid[row] = truncated
    lsn, clock, xid, rows = np.array(chunk.transactions, np.int64).reshape(-1, 4).T
    begins = np.cumsum(rows) - rows
    begins[:1] -= chunk.first_seq
    return {
        "commit_lsn": pa.array(np.repeat(lsn, rows)),
        "seq": pa.array(np.arange(count) - np.repeat(begins, rows)),
        "xid": pa.array(np.repeat(xid, rows)),
        "commit_ts": pa.array(np.repeat(clock, rows)).cast(pa.timestamp("us", tz="UTC")),
        "op": pa.array(raw[start]),
        "relation": pa.array(_versions(chunk, oid, versions)),
        "message": pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(chunk.messages)]),
    }


def _versions(chunk: Chunk, oid: npt.NDArray[np.int64], versions: dict[int, int]) -> npt.NDArray[np.int64]:
    """The relation version of every row: constant between two relation messages."""
    found = np.empty(len(oid), np.int64)
    versions = dict(versions)
    edges = [*(row for row, _ in chunk.relations), len(oid)]
    _fill(found[: edges[0]], oid[: edges[0]], versions)
    for (row, relation), stop in zip(chunk.relations, edges[1:], strict=True):
        versions[relation.oid] = relation.id
        _fill(found[row:stop], oid[row:stop], versions)
    return found


def _fill(found: npt.NDArray[np.int64], oid: npt.NDArray[np.int64], versions: dict[int, int]) -> None:
    if not len(oid):
        return
    encoded = pa.array(oid).dictionary_encode()  # by hashing: np.unique would sort
    names = encoded.dictionary.to_pylist()
    unknown = [name for name in names if name not in versions]
    if unknown:
        raise pgoutput.ProtocolError(f"a change of relation {unknown[0]} came before its description")
    found[:] = np.array([versions[name] for name in names], np.int64)[encoded.indices.to_numpy()]
