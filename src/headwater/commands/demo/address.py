"""Where the demo's page is: known before anything is started, and the same when the mirror is started again."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["PageAddress", "reserved"]

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class PageAddress:
    """As text it has the token for the browser, which keeps what is after # to itself."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(16))

    def __str__(self) -> str:
        return f"http://{_HOST}:{self.port}/#token={self.token}"


@contextmanager
def reserved() -> Iterator[PageAddress]:
    """An address whose port no other program is given within the block; the mirror can listen there."""
    # Bound, and not listening: Linux lets a socket with SO_REUSEADDR share such a port, and gives it to no one else.
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((_HOST, 0))
        yield PageAddress(kept.getsockname()[1])
