"""The thread that stages and registers, so that reading the slot goes on meanwhile."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from headwater import failpoints
from headwater.capture.buffer import Chunk, columns
from headwater.change import Lsn, Relation
from headwater.state import State

__all__ = ["Staging", "Writer"]

Staged = TypeVar("Staged")
_QUEUED = 2  # chunks waiting: with the one being read and the one being written, four rolls of memory
_FENCE_POLL = 0.5  # seconds between looks at the fences, when there is nothing to write


class Staging(Protocol[Staged]):
    """The log, as its one writer sees it."""

    def stage(self, columns: Mapping[str, pa.Array]) -> Staged: ...
    def register(self, written: Sequence[Staged], after: Lsn, upto: Lsn) -> None: ...
    def relation(self, relation: Relation, lsn: Lsn) -> Relation: ...
    def forget(self) -> None: ...
    def end(self) -> Lsn: ...


class Writer(threading.Thread):
    """Takes chunks in order; `captured` follows, and `wakeup` is readable when it has moved or the thread failed."""

    def __init__(self, state: State, log: Staging[Any], group: str, captured: Lsn) -> None:
        super().__init__(name=f"capture-writer-{group}", daemon=True)
        self.captured = captured
        self.wanted = Lsn(0)  # the furthest position somebody waits for
        self.wakeup, self._signal = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._state, self._log, self._group = state, log, group
        self._queue: queue.Queue[Chunk | None] = queue.Queue(_QUEUED)
        self._failure: BaseException | None = None
        self._abandoned = False
        self._staged: list[Any] = []  # files of a transaction whose commit has not come yet
        self._versions: dict[int, int] = {}
        self._polled = 0.0

    @property
    def busy(self) -> bool:
        """Whether another chunk would have to wait."""
        return self._queue.full()

    def put(self, chunk: Chunk | None, timeout: float) -> bool:
        """Hand over a chunk (None: the last was it); False if there was no room in time."""
        self.check()
        try:
            self._queue.put(chunk, timeout=timeout)
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
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self.join()
        os.close(self.wakeup)
        os.close(self._signal)
        self._log.forget()

    def run(self) -> None:
        try:
            while (chunk := self._next()) is not None:
                self._write(chunk)
                self._wake()
        except BaseException as exc:  # not swallowed: the reader raises it
            self._failure = exc
        self._wake()

    def _next(self) -> Chunk | None:
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
        wanted = max((fence.lsn for fence in self._state.fences(self._group)), default=Lsn(0))
        if wanted != self.wanted:
            self.wanted = wanted
            self._wake()

    def _write(self, chunk: Chunk) -> None:
        if chunk.relations:
            lsn = Lsn(chunk.transactions[0][0]) if chunk.transactions else self.captured
            described = tuple((row, self._log.relation(relation, lsn)) for row, relation in chunk.relations)
            chunk = replace(chunk, relations=described)
        if len(chunk.sizes):
            self._staged.append(self._log.stage(columns(chunk, self._versions)))
            failpoints.hit("capture.written")
        self._versions |= {relation.oid: relation.id for _, relation in chunk.relations}
        if chunk.upto is not None:
            self._log.register(self._staged, self.captured, chunk.upto)
            failpoints.hit("capture.registered")
            self._staged, self.captured = [], chunk.upto

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._signal, b"!")
