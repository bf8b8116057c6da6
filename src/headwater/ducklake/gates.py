"""Who uses a catalog's SQLite file in this process: Python, from any thread, or DuckDB, which brings its own SQLite.

The two do not know of each other, and POSIX drops all locks of a process on a file when any descriptor of it is closed.
DuckDB closing a catalog would therefore unlock it in the middle of a transaction of ours, and the other way round.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from headwater.ducklake.url import LakeUrl, SqliteUrl
from headwater.errors import Unreachable

__all__ = ["for_duckdb", "for_transaction"]

PATIENCE = 60.0  # seconds


class _Gate:
    """Any number of transactions, or DuckDB."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._transactions = 0
        self._duckdb = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._changed:
            self._wait(lambda: not self._duckdb)
            self._transactions += 1
        try:
            yield
        finally:
            with self._changed:
                self._transactions -= 1
                self._changed.notify_all()

    @contextmanager
    def duckdb(self) -> Iterator[None]:
        with self._changed:
            self._wait(lambda: not self._duckdb and not self._transactions)
            self._duckdb = True
        try:
            yield
        finally:
            with self._changed:
                self._duckdb = False
                self._changed.notify_all()

    def _wait(self, free: Callable[[], bool]) -> None:
        if not self._changed.wait_for(free, PATIENCE):
            raise Unreachable("a catalog stayed in use by another part of this process", hint="try again")


_gates: defaultdict[str, _Gate] = defaultdict(_Gate)  # by the file's path


def for_transaction(path: str) -> AbstractContextManager[None]:
    """Inside, DuckDB does not have the file."""
    return _gates[path].transaction()


def for_duckdb(url: LakeUrl) -> AbstractContextManager[None]:
    """Inside, no thread of this process has a transaction on the catalog, if that is a SQLite file."""
    return _gates[url.path].duckdb() if isinstance(url, SqliteUrl) else nullcontext()
