"""One client's connection, which is ended when the client keeps us waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["PATIENCE", "PatientConnection"]

PATIENCE = 15.0  # seconds: for a whole request, from its first byte or from the connection's begin
_LOOKS = 3  # within them


class PatientConnection(H11Protocol):
    """Uvicorn bounds only the time between two requests: a client that sends a byte a minute would stay for ever."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._owed = 0  # looks in a row at which the client had not sent all of the same request
        self._answered: object = None
        self._looking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._looking = self.loop.call_later(PATIENCE / _LOOKS, self._look)

    def _look(self) -> None:
        owes = self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and self.cycle is self._answered
        self._owed = self._owed + 1 if owes else 0
        self._answered = self.cycle
        if self._owed >= _LOOKS:
            self.transport.close()
        else:
            self._look_later()
