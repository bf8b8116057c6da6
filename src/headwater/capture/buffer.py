"""What was read from the slot and not handed on yet. Per change it does next to nothing; the rest is done by column."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.capture import pgoutput
from headwater.change import Lsn, Relation

__all__ = ["Arrived", "Buffer", "Chunk", "Defined", "Notice", "RelationMessage", "Rows", "numbers"]


@dataclass(frozen=True, slots=True)
class Defined:
    """What an event trigger has reported: a definition, as JSON."""

    content: bytes

    @property
    def xid(self) -> int:
        """The subtransaction that it is part of; 0: not known."""
        return int(json.loads(self.content).get("xid", 0))

    @property
    def oid(self) -> int:
        """The table; 0: an event trigger could not report one."""
        return int(json.loads(self.content).get("oid", 0))


class Notice(NamedTuple):
    """Between two rows: what a relation is from here on, or which definition it has got."""

    row: int  # it comes before
    transaction: int  # and is part of, by its place among those that are here
    what: Relation | Defined


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages one after the other, as they came."""

    messages: bytearray | memoryview
    sizes: npt.NDArray[np.int32]
    notices: tuple[Notice, ...]
    truncates: tuple[tuple[int, int], ...]  # row, oid: a Truncate names several, its row is one of them


@dataclass(frozen=True, slots=True)
class Chunk:
    """Changes in commit order. `upto` is the position after them; None inside a transaction."""

    rows: Rows
    transactions: tuple[tuple[int, int, int, int], ...]  # commit_lsn, commit_ts, xid, rows in this chunk
    first_seq: int  # of the first transaction, when its beginning was handed on before
    upto: Lsn | None


class RelationMessage(NamedTuple):
    """A Relation message, and how many came before it."""

    number: int
    relation: Relation


@dataclass(slots=True)
class Arrived:
    """Messages in memory; notices and truncates as in `Rows`."""

    messages: bytearray = field(default_factory=bytearray, init=False)
    sizes: array[int] = field(default_factory=lambda: array("i"), init=False)
    notices: list[Notice] = field(default_factory=list, init=False)
    truncates: list[tuple[int, int]] = field(default_factory=list, init=False)
    relations: dict[int, RelationMessage] = field(default_factory=dict, init=False)  # by oid, the last

    @property
    def transactions(self) -> int:
        """How many whole transactions are here."""
        return 0

    def relation(self, message: RelationMessage) -> None:
        """Note a relation's columns. They may be the known ones: the message does not contain everything."""
        self.notices.append(Notice(len(self.sizes), self.transactions, message.relation))
        self.relations[message.relation.oid] = message

    def define(self, content: bytes) -> None:
        """Note what an event trigger has reported."""
        self.notices.append(Notice(len(self.sizes), self.transactions, Defined(content)))

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

    @property
    def transactions(self) -> int:
        return len(self.done)

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

    def adopt(self, commit: pgoutput.StreamCommit, rows: Rows, relations: Mapping[int, RelationMessage]) -> bool:
        """A transaction that was streamed and is here as a whole, like any other now; whether it changed anything."""
        self._check_order(commit.xid, commit.commit_lsn)
        base, place = len(self.sizes), len(self.done)
        self.notices += [Notice(base + each.row, place, each.what) for each in rows.notices]
        self.truncates += [(base + row, oid) for row, oid in rows.truncates]
        self.messages += rows.messages
        self.sizes.frombytes(rows.sizes.tobytes())
        changed = self._add_transaction(
            pgoutput.Begin(commit.commit_lsn, commit.commit_ts, commit.xid), len(rows.sizes)
        )
        self.pass_by(commit, relations)
        return changed

    def pass_by(self, commit: pgoutput.StreamCommit, relations: Mapping[int, RelationMessage]) -> None:
        """A streamed transaction has committed here; the Relation messages it sent count for the transactions to come.

        Not where another transaction has sent the relation since: pgoutput forgets what it sent once the relation has
        changed, and takes what it sent last, of what is committed, for known.
        """
        self._check_order(commit.xid, commit.commit_lsn)
        self.position = commit.end_lsn
        for oid, message in relations.items():
            since = self.relations.get(oid, message)
            if since.number > message.number:
                self.relation(since)
            else:
                self.relations[oid] = message

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
        self.first_seq = begun + rows
        return chunk

    def _check_order(self, xid: int, commit_lsn: Lsn) -> None:
        if self.open is not None or commit_lsn < self.position:
            raise pgoutput.ProtocolError(
                f"transaction {xid} commits at {commit_lsn}, but the stream is at {self.position} already"
            )

    def _close_transaction(self) -> bool:
        assert self.open is not None
        return self._add_transaction(self.open, len(self.sizes) - self.open_row)

    def _add_transaction(self, begin: pgoutput.Begin, rows: int) -> bool:
        """Whether it has anything to hand on."""
        here = takewhile(lambda each: each.transaction == len(self.done), reversed(self.notices))
        changed = rows > 0 or any(isinstance(each.what, Defined) for each in here)
        if changed:
            self.done.append((begin.commit_lsn.value, begin.commit_ts, begin.xid, rows))
        return changed

    def _chunk(self, count: int, upto: Lsn | None) -> Chunk:
        sizes, whole = np.array(self.sizes[:count], np.int32), len(self.done)
        notices = tuple(each for each in self.notices if each.transaction < whole)
        self.notices = [
            Notice(each.row - count, each.transaction - whole, each.what)
            for each in self.notices
            if each.transaction >= whole
        ]
        truncates = tuple(each for each in self.truncates if each[0] < count)
        chunk = Chunk(Rows(self.messages, sizes, notices, truncates), tuple(self.done), self.first_seq, upto)
        if self.done:  # else the open transaction is the one that was begun before
            self.done, self.first_seq = [], 0
        return chunk


def numbers(raw: npt.NDArray[np.uint8], at: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The 32-bit numbers that begin at these bytes."""
    found = np.zeros(len(at), np.int64)
    for byte in range(4):
        found = found << 8 | raw[at + byte]
    return found
