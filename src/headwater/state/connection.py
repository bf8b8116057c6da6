"""One connection shared by the threads of a process, opened again when the server has restarted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from headwater.errors import Unreachable
from headwater.postgres.connect import Connection, connect, translated

__all__ = ["SharedConnection"]

Result = TypeVar("Result")


class SharedConnection:
    """A connection to the state's database, used by one transaction at a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._lock = threading.RLock()
        self._connection: Connection | None = None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction, tried once: Unreachable may mean that it was committed and the answer was lost."""
        with self._lock, translated(self.url):
            connection = self._open()
            try:
                with connection.transaction():
                    yield connection
            finally:
                if connection.broken:
                    self.close()

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Do `work`, which must be idempotent, in a transaction; once more on a new connection if this one breaks."""
        try:
            with self.transaction() as connection:
                return work(connection)
        except Unreachable:
            with self.transaction() as connection:
                return work(connection)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.url)
        return self._connection
