"""PostgreSQL connections for catalogs: all lakes in one database share them, however many lakes there are.

psycopg's own pool connects in the background: of a server that refuses it reports a timeout, and not the reason.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from headwater.postgres.settings import SETTINGS, prepare

__all__ = ["WAIT_SECONDS", "Connection", "Connections", "connections_to"]

WAIT_SECONDS = 10  # for another writer's lock, before we give way and try again
_KEPT = 4  # idle ones
_KEPT_SECONDS = 30.0  # to connect takes longer than to commit, and lakes are often opened and closed one by one

Connection = psycopg.Connection[tuple[Any, ...]]


@cache
def connections_to(conninfo: str) -> Connections:
    """The connections of this process to a database."""
    return Connections(conninfo)


os.register_at_fork(after_in_child=connections_to.cache_clear)  # the parent goes on using its own


class Connections:
    """As many connections as there are transactions at the same time; a few stay open for a while."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Connection]] = []  # and since when, the latest at the end
        self._expiry: threading.Timer | None = None
        atexit.register(self.close)

    def begun(self, begin: str) -> Connection:
        """A connection on which the SQL `begin` was executed, to be given back at the end of its transaction."""
        while (connection := self._taken()) is not None:
            try:
                connection.execute(begin.encode())
                return connection
            except (psycopg.OperationalError, psycopg.InterfaceError):
                connection.close()  # it was lost while idle: the server restarted or was unreachable
        connection = self._opened()
        try:
            settings = SETTINGS | {"lock_timeout": f"{WAIT_SECONDS}s"}
            prepare(lambda text: connection.execute(text.encode()), settings)
            connection.execute(begin.encode())
        except BaseException:
            connection.close()
            raise
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next transaction; one that is lost, or still in a transaction, is closed."""
        with self._lock:
            kept = len(self._idle) < _KEPT and connection.info.transaction_status == TransactionStatus.IDLE
            if kept:
                self._idle.append((time.monotonic(), connection))
                self._expect_expiry()
        if not kept:
            connection.close()

    def close(self) -> None:
        """Close the connections that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        _close(idle)

    def _taken(self) -> Connection | None:
        with self._lock:
            return self._idle.pop()[1] if self._idle else None

    def _opened(self) -> Connection:
        asked = conninfo_to_dict(self._conninfo)
        defaults: dict[str, Any] = {"connect_timeout": 10, "application_name": "headwater"}
        ours = {name: value for name, value in defaults.items() if name not in asked}
        # Statements are not prepared: in the next transaction, with its search_path, they mean other tables.
        return psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None, **ours)

    def _expect_expiry(self) -> None:
        if self._expiry is None:
            self._expiry = threading.Timer(_KEPT_SECONDS, self._expire)
            self._expiry.daemon = True
            self._expiry.start()

    def _expire(self) -> None:
        with self._lock:
            last = time.monotonic() - _KEPT_SECONDS
            old = [each for each in self._idle if each[0] <= last]
            self._idle = self._idle[len(old) :]
            self._expiry = None
            if self._idle:
                self._expect_expiry()
        _close(old)


def _close(idle: Iterable[tuple[float, Connection]]) -> None:
    for _, connection in idle:
        connection.close()
