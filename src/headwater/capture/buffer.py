"""What was read from the slot and not handed on yet. Per change it does next to nothing; the rest is done by column."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.capture import pgoutput
from headwater.change import Lsn, Relation

__all__ = ["Arrived", "Buffer", "Chunk", "Rows", "Telling", "numbers"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages one after the other, as they came."""

    messages: bytearray | memoryview
    sizes: npt.NDArray[np.int32]
    relations: tuple[tuple[int, Relation], ...]  # from this row on, its oid means this relation
    truncates: tuple[tuple[int, int], ...]  # row, oid: a Truncate names several, its row is one of them


@dataclass(frozen=True, slots=True)
class Chunk:
    """Changes in commit order. `upto` is the position after them; None inside a transaction."""

    rows: Rows
    transactions: tuple[tuple[int, int, int, int], ...]  # commit_lsn, commit_ts, xid, rows in this chunk
    first_seq: int  # of the first transaction, when its beginning was handed on before
    upto: Lsn | None


class Telling(NamedTuple):
    """A Relation message, and how many came before it."""

    number: int
    relation: Relation


@dataclass(slots=True)
class Arrived:
    """Messages in memory; relations and truncates as in `Rows`."""

    messages: bytearray = field(default_factory=bytearray, init=False)
    sizes: array[int] = field(default_factory=lambda: array("i"), init=False)
    relations: list[tuple[int, Relation]] = field(default_factory=list, init=False)
    truncates: list[tuple[int, int]] = field(default_factory=list, init=False)
    told: dict[int, Telling] = field(default_factory=dict, init=False)  # by oid, the last

    def relation(self, telling: Telling) -> None:
        """Note a relation's shape. It may be the one known: only the catalog tells what the message does not."""
        relation = telling.relation
        self.relations.append((len(self.sizes), relation))
        self.told[relation.oid] = telling

    def truncate(self, message: bytes, oids: tuple[int, ...]) -> None:
        """One row for each table truncated."""
        for oid in oids:
            self.truncates.append((len(self.sizes), oid))
            self.messages += message
            self.sizes.append(len(message))


@dataclass(slots=True)
class Buffer(Arrived):
    """Whole transactions, then perhaps the beginning of one that is still coming."""

    position: Lsn  # after the last whole transaction, or further by a keepalive
    done: list[tuple[int, int, int, int]] = field(default_factory=list)
    first_seq: int = 0
    open: pgoutput.Begin | None = None
    open_row: int = 0  # where the open transaction begins here
    open_byte: int = 0

    def begin(self, begin: pgoutput.Begin) -> None:
        self._check_order(begin.xid, begin.commit_lsn)
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

    def adopt(self, commit: pgoutput.StreamCommit, rows: Rows, told: Mapping[int, Telling]) -> bool:
        """A transaction that was streamed and is here as a whole, like any other now; whether it changed anything."""
        self._check_order(commit.xid, commit.commit_lsn)
        base = len(self.sizes)
        self.relations += [(base + row, relation) for row, relation in rows.relations]
        self.truncates += [(base + row, oid) for row, oid in rows.truncates]
        self.messages += rows.messages
        self.sizes.frombytes(rows.sizes.tobytes())
        if len(rows.sizes):
            self.done.append((commit.commit_lsn.value, commit.commit_ts, commit.xid, len(rows.sizes)))
        self.pass_by(commit, told)
        return len(rows.sizes) > 0

    def pass_by(self, commit: pgoutput.StreamCommit, told: Mapping[int, Telling]) -> None:
        """A streamed transaction has committed here; what it told of relations, and when, counts for those to come.

        Not where another one has told the relation since: pgoutput forgets what it told once the relation has changed,
        and takes what it told last, of what is committed, for known.
        """
        self._check_order(commit.xid, commit.commit_lsn)
        self.position = commit.end_lsn
        for oid, telling in told.items():
            since = self.told.get(oid, telling)
            if since.number > telling.number:
                self.relation(since)
            else:
                self.told[oid] = telling

    def reach(self, position: Lsn) -> None:
        """The server has sent everything before this position, unless it is in the middle of a transaction."""
        if self.open is None:
            self.position = max(self.position, position)

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

    def _check_order(self, xid: int, commit_lsn: Lsn) -> None:
        if self.open is not None or commit_lsn < self.position:
            raise pgoutput.ProtocolError(
                f"transaction {xid} commits at {commit_lsn}, but the stream is at {self.position} already"
            )

    def _close_transaction(self) -> bool:
        assert self.open is not None
        rows = len(self.sizes) - self.open_row
        if rows:
            self.done.append((self.open.commit_lsn.value, self.open.commit_ts, self.open.xid, rows))
        return rows > 0

    def _chunk(self, count: int, upto: Lsn | None) -> Chunk:
        sizes = np.array(self.sizes[:count], np.int32)
        relations = tuple(each for each in self.relations if each[0] < count)
        truncates = tuple(each for each in self.truncates if each[0] < count)
        chunk = Chunk(Rows(self.messages, sizes, relations, truncates), tuple(self.done), self.first_seq, upto)
        if self.done:  # else the open transaction is the one that was begun before
            self.done, self.first_seq = [], 0
        return chunk


def numbers(raw: npt.NDArray[np.uint8], at: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The 32-bit numbers that begin at these bytes."""
    found = np.zeros(len(at), np.int64)
    for byte in range(4):
        found = found << 8 | raw[at + byte]
    return found
