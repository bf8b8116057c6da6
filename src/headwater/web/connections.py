"""One client's connection, which is ended when the client keeps us waiting, as a sender or as a reader."""

from __future__ import annotations

import asyncio
import fcntl
import math
import struct
import termios
from contextlib import suppress
from typing import Any

import h11
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from headwater.web.security import Guarded

__all__ = ["MOST_CONNECTIONS", "PATIENCE", "PROBES", "PatientConnection"]

MOST_CONNECTIONS = 300  # at once; of the others, each gets a 503
PROBES = {"/healthz", "/readyz", "/metrics"}  # answered to the others as well
PATIENCE = (
    15.0  # seconds: for a whole request, from its first byte or from the connection's begin; and between two reads
)
_LOOKS = 3  # within them


class PatientConnection(H11Protocol):
    """Uvicorn bounds only the time between two requests: a client that sends a byte a minute would stay for ever.

    So would one that asks and never reads: what is written to it waits, and closing waits for what is written.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._served, self.app = self.app, self._bounded
        self._owed = 0  # looks in a row at which the client had not sent all of the same request
        self._answered: object = None
        self._unread = 0  # looks in a row at which it had taken nothing of what waits for it
        self._waiting = math.inf  # bytes that waited for it at the last look; infinite: since then it has taken all
        self._looking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > 2 * MOST_CONNECTIONS:  # the process needs file descriptors for other things, too
            transport.abort()
            return
        # Nothing is written as long as something waits, so that what waits shrinks whenever the client reads.
        transport.set_write_buffer_limits(high=1)
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._waiting = math.inf
        super().resume_writing()

    def _look_later(self) -> None:
        self._looking = self.loop.call_later(PATIENCE / _LOOKS, self._look)

    def _look(self) -> None:
        if self._keeps_unread() >= _LOOKS:
            self.transport.abort()
            return
        if self._keeps_owing() == _LOOKS:
            self.transport.close()
        self._look_later()

    def _keeps_owing(self) -> int:
        owes = self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and self.cycle is self._answered
        self._owed = self._owed + 1 if owes else 0
        self._answered = self.cycle
        return self._owed

    def _keeps_unread(self) -> int:
        ours = self.transport.get_write_buffer_size()
        waiting = ours + _in_kernel(self.transport) if ours else math.inf
        self._unread = self._unread + 1 if ours and waiting >= self._waiting else 0
        self._waiting = waiting
        return self._unread

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application, or a refusal if there are too many connections. Whoever watches us always gets through."""
        full = len(self.connections) > MOST_CONNECTIONS and scope["path"] not in PROBES
        await (_FULL if full else self._served)(scope, receive, send)


def _in_kernel(transport: asyncio.Transport) -> int:
    """Bytes that the client has not confirmed: of a slow one, the kernel takes more from us only now and then."""
    with suppress(OSError):  # no such question here
        return int(struct.unpack("i", fcntl.ioctl(transport.get_extra_info("socket"), termios.TIOCOUTQ, b"\0" * 4))[0])
    return 0


_FULL = Guarded(
    JSONResponse(
        {"error": f"{MOST_CONNECTIONS} clients are connected, which is the most", "hint": "try again later"},
        503,
        {"Connection": "close"},
    )
)
