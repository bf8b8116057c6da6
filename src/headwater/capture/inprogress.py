"""Transactions in progress, as the server streams them: in blocks, several at once, other transactions in between."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headwater.capture import pgoutput
from headwater.capture.buffer import Arrived, Defined, Notice, Rows, numbers

__all__ = [
    "Ended",
    "LivingRows",
    "RolledBack",
    "StreamedRows",
    "StreamedTransaction",
    "TransactionsInProgress",
    "living_notices",
    "living_rows",
]


@dataclass(frozen=True, slots=True)
class StreamedRows:
    """Rows of a transaction in progress, raw: each has the xid of its subtransaction after its tag."""

    xid: int  # of the transaction as a whole
    rows: Rows
    first_seq: int
    aborted: npt.NDArray[np.int64]  # subtransactions that are rolled back already


@dataclass(frozen=True, slots=True)
class Ended:
    """The transaction has committed; nothing more comes of it."""

    commit: pgoutput.StreamCommit
    aborted: npt.NDArray[np.int64]  # subtransactions that were rolled back after rows of theirs may have been handed on


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The transaction was rolled back."""

    xid: int


@dataclass(frozen=True, slots=True)
class LivingRows:
    """A piece's rows without the aborted ones, in the one layout of a staged message: the xid is beside them."""

    rows: Rows
    xid: npt.NDArray[np.int64]
    seq: npt.NDArray[np.int64]


@dataclass(slots=True)
class StreamedTransaction(Arrived):
    """What is in memory of one transaction in progress."""

    xid: int
    aborted: array[int] = field(default_factory=lambda: array("q"))
    handed: int = 0  # rows that are no longer here

    def take(self) -> StreamedRows:
        """Hand on what is here."""
        rows = Rows(self.messages, np.array(self.sizes, np.int32), tuple(self.notices), tuple(self.truncates))
        taken = StreamedRows(self.xid, rows, self.handed, np.array(self.aborted, np.int64))
        if not self.handed:
            self.aborted = array("q")  # all their rows are among these: an aborted subtransaction gets no more
        self.handed += len(self.sizes)
        self.messages, self.sizes, self.notices, self.truncates = bytearray(), array("i"), [], []
        return taken

    def ended(self, commit: pgoutput.StreamCommit) -> Ended:
        return Ended(commit, np.array(self.aborted, np.int64))


class TransactionsInProgress:
    """All transactions in progress that the server has begun to stream."""

    def __init__(self) -> None:
        self._open: dict[int, StreamedTransaction] = {}
        self.inside: StreamedTransaction | None = None  # whose block it is just now

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(len(each.messages) for each in self._open.values())

    def largest(self) -> StreamedTransaction:
        return max(self._open.values(), key=lambda each: len(each.messages))

    def start(self, start: pgoutput.StreamStart) -> None:
        if self.inside is not None or start.first == (start.xid in self._open):
            raise pgoutput.ProtocolError(f"a block of transaction {start.xid} begins where none can")
        if start.first:
            self._open[start.xid] = StreamedTransaction(start.xid)
        self.inside = self._open[start.xid]

    def stop(self) -> None:
        self.inside = None

    def abort(self, abort: pgoutput.StreamAbort) -> StreamedTransaction | None:
        """Leave out a subtransaction, or forget the transaction, which is returned then."""
        if self.inside is None and abort.xid not in self._open:
            return None  # PostgreSQL 18 sends it also for one that it found rolled back before it began to stream it
        streamed = self._known(abort.xid)
        if abort.whole:
            return self._open.pop(abort.xid)
        streamed.aborted.append(abort.subxid)  # its rows are left out when they are handed on: all at once is cheaper
        return None

    def commit(self, commit: pgoutput.StreamCommit) -> StreamedTransaction:
        """The transaction, which is no longer in progress."""
        self._known(commit.xid)
        return self._open.pop(commit.xid)

    def _known(self, xid: int) -> StreamedTransaction:
        if self.inside is not None or xid not in self._open:
            raise pgoutput.ProtocolError(f"transaction {xid} ends, and it was not being streamed")
        return self._open[xid]


def living_notices(notices: Iterable[Notice], aborted: npt.NDArray[np.int64]) -> list[Notice]:
    """Without the definitions of aborted subtransactions. Relations stay: the server sends them again if need be."""
    gone = set(aborted.tolist())
    return [each for each in notices if not gone or not isinstance(each.what, Defined) or each.what.xid not in gone]


def living_rows(streamed: StreamedRows) -> LivingRows:
    """Take the xid out of every message, and the aborted rows out of the streamed."""
    sizes = streamed.rows.sizes
    start = np.cumsum(sizes) - sizes
    raw = np.frombuffer(streamed.rows.messages, np.uint8)
    keep = np.ones(len(raw), np.bool_)
    xid = numbers(raw, start + 1)
    for byte in range(1, 1 + pgoutput.XID_BYTES):
        keep[start + byte] = False
    alive = np.ones(len(sizes), np.bool_)
    if len(streamed.aborted):
        alive = ~np.isin(xid, streamed.aborted)
        keep &= np.repeat(alive, sizes)
    before = np.concatenate(([0], np.cumsum(alive)))  # living rows before each row
    rows = Rows(
        raw[keep].data,
        (sizes - np.int32(pgoutput.XID_BYTES))[alive],
        tuple(
            each._replace(row=int(before[each.row])) for each in living_notices(streamed.rows.notices, streamed.aborted)
        ),
        tuple((int(before[row]), oid) for row, oid in streamed.rows.truncates if alive[row]),
    )
    seq = np.arange(streamed.first_seq, streamed.first_seq + len(sizes))
    return LivingRows(rows, xid[alive], seq[alive])
