"""PostgreSQL connections for catalogs: all lakes in one database share them, however many lakes there are.

psycopg's own pool connects in the background: of a server that refuses it reports a timeout, and not the reason.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Generator, Iterable
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from headwater.postgres.settings import SETTINGS, prepare

__all__ = ["WAIT_SECONDS", "Connection", "Connections", "Silent", "connections_to"]

WAIT_SECONDS = 10  # for another writer's lock, before we give way and try again
ANSWER_SECONDS = 30  # for the answer to a statement, of a server that may not keep us waiting; a lock takes less
_KEPT = 4  # idle ones
_KEPT_SECONDS = 30.0  # to connect takes longer than to commit, and lakes are often opened and closed one by one

Connection = psycopg.Connection[tuple[Any, ...]]
Done = TypeVar("Done")


@cache
def connections_to(conninfo: str, wait: int | None) -> Connections:
    """The connections of this process to a database; `wait` is as in a `PostgresUrl`."""
    return Connections(conninfo, wait)


os.register_at_fork(after_in_child=connections_to.cache_clear)  # the parent goes on using its own


class Silent(psycopg.OperationalError):
    """The server has not answered in time. The connection is closed: an answer would be taken for another's."""


class _Impatient(psycopg.Connection[tuple[Any, ...]]):
    """A connection to a server that may be up and still not answer. TCP notices that late, or not at all."""

    patience: float = ANSWER_SECONDS

    def wait(self, gen: Generator[Any, Any, Done], *args: Any, **kwargs: Any) -> Done:
        try:
            return super().wait(_bounded(gen, self.patience), *args, **kwargs)
        except Silent:
            self.close()
            raise


def _bounded(gen: Generator[Any, Any, Done], seconds: float) -> Generator[Any, Any, Done]:
    """The same, until the answer has taken too long. psycopg wakes it up ten times a second, with nothing to read."""
    ends = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= ends:
                raise Silent(f"no answer for {seconds} seconds")
            wanted = gen.send(ready)
    except StopIteration as done:
        value: Done = done.value
        return value


class Connections:
    """As many connections as there are transactions at the same time; a few stay open for a while."""

    def __init__(self, conninfo: str, wait: int | None = None) -> None:
        self._conninfo, self._wait = conninfo, wait
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Connection]] = []  # and since when, the latest at the end
        self._expiry: threading.Timer | None = None
        self._silent: tuple[float, Silent] | None = None  # until when we do not ask again, and what was said
        atexit.register(self.close)

    def begun(self, begin: str) -> Connection:
        """A connection on which the SQL `begin` was executed, to be given back at the end of its transaction."""
        if self._wait is None:
            return self._begun(begin)
        if self._silent is not None and time.monotonic() < self._silent[0]:
            raise Silent(*self._silent[1].args)  # of a thousand lakes in this database, not each waits by itself
        try:
            return self._begun(begin)
        except (Silent, psycopg.errors.ConnectionTimeout) as error:
            self._silent = time.monotonic() + self._wait, Silent(str(error))
            self.close()
            raise Silent(str(error)) from error

    def _begun(self, begin: str) -> Connection:
        while (connection := self._taken()) is not None:
            try:
                self._begin(connection, begin)
                return connection
            except Silent:
                raise
            except (psycopg.OperationalError, psycopg.InterfaceError):
                connection.close()  # it was lost while idle: the server restarted or was unreachable
        connection = self._opened()
        try:
            settings = SETTINGS | {"lock_timeout": f"{self._wait or WAIT_SECONDS}s"}
            prepare(lambda text: connection.execute(text.encode()), settings)
            self._begin(connection, begin)
        except BaseException:
            connection.close()
            raise
        return connection

    def _begin(self, connection: Connection, begin: str) -> None:
        if isinstance(connection, _Impatient):
            connection.patience = self._wait or ANSWER_SECONDS  # nothing that takes long is asked yet
            connection.execute(begin.encode())
            connection.patience = ANSWER_SECONDS
        else:
            connection.execute(begin.encode())

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
        defaults: dict[str, Any] = {"connect_timeout": self._wait or 10, "application_name": "headwater"}
        ours = {name: value for name, value in defaults.items() if name not in asked}
        # Statements are not prepared: in the next transaction, with its search_path, they mean other tables.
        kind = psycopg.Connection if self._wait is None else _Impatient
        return kind.connect(self._conninfo, autocommit=True, prepare_threshold=None, **ours)

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
