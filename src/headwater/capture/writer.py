"""The thread that stages and registers, so that reading the slot goes on meanwhile."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from headwater import failpoints
from headwater.capture.buffer import Chunk, Defined, Notice
from headwater.capture.columns import Versions, chunk_columns
from headwater.capture.describer import Describer
from headwater.capture.inprogress import Ended, RolledBack, StreamedRows
from headwater.capture.quota import Quota
from headwater.capture.spill import Spill
from headwater.capture.staging import Complete, Staging
from headwater.change import Lsn, Relation
from headwater.errors import HeadwaterError
from headwater.source.naming import object_name
from headwater.state import State

__all__ = ["Order", "Writer"]

Order = Chunk | StreamedRows | Ended | RolledBack
_QUEUED = 2  # orders waiting: with the one being read and the one being written, four rolls of memory
_FENCE_POLL = 0.5  # seconds between looks at the fences, when there is nothing to write


class _Described:
    """A chunk's relations and definitions, each at the place of its transaction."""

    def __init__(self, chunk: Chunk, versions: Versions, describer: Describer) -> None:
        self._chunk, self._versions, self._describer = chunk, versions, describer
        self._ends = np.cumsum([rows for *_, rows in chunk.transactions])

    def describe(self, message: Relation, row: int) -> int:
        lsn, _, xid, _ = self._chunk.transactions[int(np.searchsorted(self._ends, row, side="right"))]
        return self._describer.described(message, Lsn(lsn), xid).id

    def define(self, notice: Notice) -> None:
        assert isinstance(notice.what, Defined)
        lsn, *_ = self._chunk.transactions[notice.transaction]
        version = self._describer.defined(notice.what.content, Lsn(lsn))
        if version is not None and version.oid in self._versions:
            self._versions[version.oid] = version.id  # where the columns are others, a Relation message follows


class Writer(threading.Thread):
    """Takes orders in turn; `captured` follows, and `wakeup` is readable when it has moved or the thread failed."""

    def __init__(
        self, state: State, log: Staging[Any], group: str, captured: Lsn, complete: Complete, quota: Quota
    ) -> None:
        super().__init__(name=f"capture-writer-{group}", daemon=True)
        self.captured = captured
        self.wanted = Lsn(0)  # the furthest position that another process waits for
        self.wakeup, self._signal = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._state, self._log, self._group = state, log, group
        publication = object_name(group)
        self._describer = Describer(log, publication, complete, lambda: _traced(state, group))
        self._queue: queue.Queue[Order | None] = queue.Queue(_QUEUED)
        self._failure: BaseException | None = None
        self._abandoned = False
        self._staged: list[Any] = []  # files of a transaction whose commit has not come yet
        self._versions: Versions = {}
        self._quota = quota
        self._spill = Spill(log, self._describer, self._stage)
        self._polled = 0.0

    @property
    def busy(self) -> bool:
        """Whether another order would have to wait."""
        return self._queue.full()

    @property
    def waits_for_room(self) -> bool:
        """Whether the log is full: nothing more is registered for now."""
        return self._quota.waits

    def put(self, order: Order | None, timeout: float) -> bool:
        """Hand over an order (None: the last was it); False if there was no room in time."""
        self.check()
        try:
            self._queue.put(order, timeout=timeout)
        except queue.Full:
            return False
        return True

    def check(self) -> None:
        """Raise what the thread died of, if it did."""
        if self._failure is not None:
            raise self._failure

    def heard(self) -> None:
        """Make `wakeup` quiet again."""
        with suppress(BlockingIOError):
            os.read(self.wakeup, 4096)

    def close(self) -> None:
        """End the thread after what it is doing now; what is not registered by then is given up."""
        self._abandoned = True
        self._quota.give_up()
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self.join()
        os.close(self.wakeup)
        os.close(self._signal)
        with suppress(HeadwaterError):  # else the next session does it
            self._spill.drop_all()
        self._log.forget()

    def run(self) -> None:
        try:
            while (order := self._next()) is not None:
                self._do(order)
                self._wake()
        except BaseException as exc:  # not swallowed: the reader raises it
            self._failure = exc
        self._wake()

    def _next(self) -> Order | None:
        while not self._abandoned:
            self._poll_fences()
            with suppress(queue.Empty):
                return self._queue.get(timeout=_FENCE_POLL)
        return None

    def _poll_fences(self) -> None:
        # Also how we learn that the state's server goes down: then the stream must end, or it would keep a source
        # that is the same server from shutting down.
        if time.monotonic() - self._polled < _FENCE_POLL:
            return
        self._polled = time.monotonic()
        wanted = self._state.awaited(self._group)
        if wanted != self.wanted:
            self.wanted = wanted
            self._wake()

    def _do(self, order: Order) -> None:
        match order:
            case Chunk():
                self._write(order)
            case StreamedRows():
                self._spill.write(order)
            case Ended():
                files, meaning = self._spill.commit(order)
                self._versions |= meaning
                self._staged += files
                self._register(order.commit.end_lsn)
            case RolledBack():
                self._spill.drop([order.xid])

    def _write(self, chunk: Chunk) -> None:
        if len(chunk.rows.sizes) or chunk.rows.notices:
            columns = chunk_columns(chunk, self._versions, _Described(chunk, self._versions, self._describer))
            if len(chunk.rows.sizes):
                self._staged.append(self._stage(columns))
                failpoints.hit("capture.written")
        if chunk.upto is not None:
            self._register(chunk.upto)

    def _stage(self, columns: Mapping[str, pa.Array]) -> Any:
        return self._quota.stage(columns, self._unregistered)

    def _unregistered(self) -> int:
        """Bytes of files that are not part of the log yet."""
        sizes: list[int] = [each.file_bytes for each in self._staged]
        return self._spill.file_bytes + sum(sizes)

    def _register(self, upto: Lsn) -> None:
        self._log.register(self._staged, self.captured, upto)
        failpoints.hit("capture.registered")
        self._staged, self.captured = [], upto

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._signal, b"!")


def _traced(state: State, group: str) -> Lsn | None:
    row = state.group(group)
    return None if row is None else row.ddl_lsn
