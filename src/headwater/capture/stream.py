"""Reading a slot: the loop between the walsender and the log's writer thread, and the feedback to the server."""

from __future__ import annotations

import threading
import time
from array import array
from contextlib import suppress
from itertools import count

from headwater import failpoints
from headwater.capture import pgoutput
from headwater.capture.buffer import Arrived, Buffer, RelationMessage
from headwater.capture.inprogress import RolledBack, StreamedTransaction, TransactionsInProgress, living_rows
from headwater.capture.quota import GivenUp
from headwater.capture.writer import Order, Writer
from headwater.change import Lsn, Relation
from headwater.postgres.replication import KEEPALIVE, XLOG_DATA, Replication, keepalive, standby_status
from headwater.source.triggers import PREFIX

__all__ = ["ROLL_BYTES", "Stream"]

ROLL_BYTES = 16 << 20  # about five of them are in memory at once: 50 MiB more than at rest; with 64 it was 170
_ROLL_SECONDS = 0.25
_STATUS_SECONDS = 10.0  # feedback at least this often: the server's patience is a minute by default
_IDLE_SECONDS = 10.0  # an idle position is recorded this often, not oftener: recording it makes WAL itself
_IDLE_BYTES = 8 << 20  # ... or when it has moved this far
_ASK_SECONDS = 0.2  # how often to ask the server for its position while a fence waits for it
# The walsender sends each change by itself. Woken for each, we would spend more on waking than on reading: after a
# small gulp we let some gather, for less time than it takes to fill the socket's buffer (about 230 small changes).
_GULP = 8192  # bytes
_NAP = 0.0003  # seconds
_HEADER = 25  # of XLogData: 'w', start, end, clock
_ROWS = frozenset(b"IUD")
_COMMITS = frozenset(b"Cc")


class Stream:
    """One connection's life: from START_REPLICATION to a stop or an error. It sends feedback, the writer registers."""

    def __init__(self, connection: Replication, writer: Writer, roll_bytes: int = ROLL_BYTES) -> None:
        self._connection = connection
        self._writer = writer
        self._roll_bytes = roll_bytes
        self._buffer = Buffer(position=writer.captured)
        self._streams = TransactionsInProgress()
        self._relation_numbers = count()
        self._handed = writer.captured  # the position after what the writer was given
        self._confirmed = writer.captured
        self._unstaged_since: float | None = None
        self._recorded = self._fed_back = self._asked = time.monotonic()
        self._pressed = False  # the server asked for an answer: it may be waiting for us to shut down
        self._stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Read until `stop`; then everything that was read whole is registered and confirmed.

        While the log is full nothing more is read, and a stop leaves what was read to the source.
        """
        self._stop = stop
        with self._connection.translated(), suppress(GivenUp):
            self._feed_back(reply=True)
            while not stop.is_set():
                received = self._receive()
                if not received:
                    self._connection.wait(self._patience(), self._writer.wakeup)
                elif received < _GULP:
                    time.sleep(_NAP)
                self._tend()
            self._finish()

    def _receive(self) -> int:
        """Take in what has arrived; return how many bytes it was."""
        self._connection.consume()
        receive, rows = self._connection.receive, _ROWS  # locals: this loop runs for every change
        messages, sizes, full = self._filling()
        received = 0
        size, data = receive(1)
        while size > 0:
            received += size
            if data[0] == XLOG_DATA:
                kind = data[_HEADER]
                if kind in rows:
                    messages += data[_HEADER:]
                    sizes.append(size - _HEADER)
                    if len(messages) >= full:
                        self._make_room()
                        messages, sizes, full = self._filling()
                else:
                    self._other(bytes(data[_HEADER:]))
                    if kind in _COMMITS and len(self._buffer.messages) >= self._roll_bytes:
                        self._roll()
                    messages, sizes, full = self._filling()
            elif data[0] == KEEPALIVE:
                self._keepalive(data)
            else:
                raise pgoutput.ProtocolError(f"unknown replication message {bytes(data[:1])!r}")
            size, data = receive(1)
        if size < 0:
            raise self._connection.ended()
        return received

    def _filling(self) -> tuple[bytearray, array[int], int]:
        """Where rows go just now, and how many bytes of them are too many."""
        streamed = self._streams.inside
        if streamed is None:
            return self._buffer.messages, self._buffer.sizes, self._buffer.open_byte + self._roll_bytes
        # All transactions in progress share half a roll: to take the xids out, their pieces are copied once more.
        others = self._streams.size - len(streamed.messages)
        return streamed.messages, streamed.sizes, self._roll_bytes // 2 - others

    def _make_room(self) -> None:
        if self._streams.inside is None:
            self._spill()
        else:
            self._put(self._streams.largest().take())

    def _other(self, message: bytes) -> None:
        if self._streams.inside is not None:
            self._inside(message, self._streams.inside)
            return
        match pgoutput.decode(message):
            case pgoutput.Begin() as begin:
                self._buffer.begin(begin)
            case pgoutput.Commit() as commit:
                self._changed(self._buffer.commit(commit))
            case Relation() as relation:
                self._buffer.relation(RelationMessage(next(self._relation_numbers), relation))
            case pgoutput.Truncate(oids=oids):
                self._buffer.truncate(message, oids)
            case pgoutput.StreamStart() as start if self._buffer.open is None:
                self._streams.start(start)
            case pgoutput.StreamCommit() as commit:
                self._commit_streamed(commit)
            case pgoutput.StreamAbort() as abort:
                gone = self._streams.abort(abort)
                if gone is not None and gone.handed:
                    self._put(RolledBack(gone.xid))
            case pgoutput.Emitted() as emitted:
                self._emitted(emitted, self._buffer)
            case pgoutput.Ignored():
                pass
            case other:
                raise pgoutput.ProtocolError(f"out of place in the stream: {other!r}")

    def _inside(self, message: bytes, streamed: StreamedTransaction) -> None:
        """A message of a stream block that is not a row."""
        match pgoutput.decode_streamed(message):
            case pgoutput.StreamStop():
                self._streams.stop()
            case Relation() as relation:
                streamed.relation(RelationMessage(next(self._relation_numbers), relation))
            case pgoutput.Truncate(oids=oids):
                streamed.truncate(message, oids)
            case pgoutput.Emitted() as emitted:
                self._emitted(emitted, streamed)
            case pgoutput.Ignored():
                pass
            case other:
                raise pgoutput.ProtocolError(f"out of place in a block of transaction {streamed.xid}: {other!r}")

    def _emitted(self, emitted: pgoutput.Emitted, arrived: Arrived) -> None:
        """Of all messages in the WAL, those of our event triggers."""
        if emitted.transactional and emitted.prefix == PREFIX and emitted.content.startswith(b"{"):
            arrived.define(emitted.content)

    def _commit_streamed(self, commit: pgoutput.StreamCommit) -> None:
        """What fits into memory goes with the others; what does not is registered by itself, after those before it."""
        streamed = self._streams.commit(commit)
        if not streamed.handed:
            self._changed(self._buffer.adopt(commit, living_rows(streamed.take()).rows, streamed.relations))
            return
        if self._unstaged_since is not None:
            self._roll()
        self._buffer.pass_by(commit, streamed.relations)
        self._put(streamed.take())
        self._put(streamed.ended(commit))
        self._handed, self._recorded = self._buffer.position, time.monotonic()

    def _changed(self, changed: bool) -> None:
        """A transaction is whole; it waits to be staged if it changed anything."""
        if changed and self._unstaged_since is None:
            self._unstaged_since = time.monotonic()

    def _keepalive(self, data: memoryview) -> None:
        position, wants_reply = keepalive(data)
        self._buffer.reach(Lsn(position))
        if wants_reply:
            self._pressed = True
            self._feed_back()

    def _tend(self) -> None:
        """What the clock asks for: rolling, recording an idle position, feedback."""
        self._writer.heard()
        self._writer.check()
        now = time.monotonic()
        if self._unstaged_since is not None:
            if now - self._unstaged_since >= _ROLL_SECONDS and not self._writer.busy:
                self._roll()
        elif self._buffer.open is None and self._idle_position_due(now):
            self._roll()
        if self._writer.captured != self._confirmed or now - self._fed_back >= _STATUS_SECONDS:
            self._feed_back(reply=now - self._fed_back >= _STATUS_SECONDS)
        elif self._writer.wanted > self._buffer.position and now - self._asked >= _ASK_SECONDS:
            self._feed_back(reply=True)

    def _idle_position_due(self, now: float) -> bool:
        position, handed = self._buffer.position, self._handed
        if position == handed:
            return False
        return (
            self._pressed
            or handed < self._writer.wanted <= position
            or position.value - handed.value >= _IDLE_BYTES
            or now - self._recorded >= _IDLE_SECONDS
        )

    def _patience(self) -> float:
        if self._unstaged_since is not None:
            return max(0.0, self._unstaged_since + _ROLL_SECONDS - time.monotonic()) + 0.001
        return _ASK_SECONDS if self._writer.wanted > self._handed else 0.5

    def _roll(self) -> None:
        """Hand the whole transactions to the writer."""
        chunk = self._buffer.take_whole()
        self._handed, self._recorded = self._buffer.position, time.monotonic()
        self._unstaged_since, self._pressed = None, False
        self._put(chunk)

    def _spill(self) -> None:
        """A transaction larger than a roll: what there is of it goes to disk, to be registered with its commit."""
        if self._buffer.open_row or self._unstaged_since is not None:
            self._roll()
        if len(self._buffer.messages) >= self._roll_bytes:
            self._put(self._buffer.take_open())

    def _put(self, order: Order | None) -> None:
        failpoints.hit("capture.read")
        while not self._writer.put(order, timeout=1.0):
            self._writer.heard()
            self._feed_back()  # the writer is behind; the server must not take us for dead
            self._give_up_if_full()

    def _give_up_if_full(self) -> None:
        """When stopped, there is no use in waiting until the log has room: the source sends again what it has not."""
        if self._stop.is_set() and self._writer.waits_for_room:
            raise GivenUp

    def _feed_back(self, *, reply: bool = False) -> None:
        """Send feedback. The position that the slot is moved to was recorded before."""
        captured = self._writer.captured
        self._connection.send(standby_status(max(self._buffer.position, captured), captured, reply=reply))
        self._fed_back = time.monotonic()
        if reply:
            self._asked = self._fed_back
        if captured != self._confirmed:
            self._confirmed = captured
            failpoints.hit("capture.confirmed")

    def _finish(self) -> None:
        if self._unstaged_since is not None or (self._buffer.open is None and self._buffer.position > self._handed):
            self._roll()
        self._put(None)
        while self._writer.is_alive():
            self._writer.join(timeout=1.0)
            self._feed_back()
            self._give_up_if_full()
        self._writer.check()
        self._feed_back()
