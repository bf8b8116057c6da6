"""The processes that have one log: the service that leads, and those that deliver, each by a lock while it lives."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.errors import HeadwaterError
from headwater.postgres.connect import Connection, connect, translated
from headwater.state.lock import CLASS, HELD

__all__ = ["Part", "Share", "leader"]


def leader(log: str) -> str:
    """The lock of the one service that captures into a log, and does what is asked for."""
    return f"lead:{log}"


class Share:
    """This process's share of the groups of a log; the others take the rest. May be used from several threads."""

    def __init__(self, url: str, log: str) -> None:
        self._url, self._name = url, f"deliverers:{log}"
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._taken: set[Part] = set()
        self._most = 0

    def look(self, groups: int) -> None:
        """Count the processes, and with them how many of so many groups are ours at most."""
        try:
            with translated(self._url):
                processes = self._count()
        except HeadwaterError:
            self.close()  # the server has restarted: what we hold, we keep
            return
        with self._lock:
            self._most = -(-groups // max(processes, 1))

    def part(self) -> Part:
        """One group of the share, once it is taken: for one thread, also if another one comes to replace it."""
        return Part(self._lock, self._taken, lambda: self._most)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _count(self) -> int:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url, application_name="headwater deliverer", attentive=True)
            self._connection.execute("SELECT pg_advisory_lock_shared(%s, hashtext(%s))", (CLASS, self._name))
        row = self._connection.execute(
            f"SELECT count(*) FROM pg_locks l WHERE {HELD.format(name='%s')}", (self._name,)
        ).fetchone()
        assert row is not None
        return int(row[0])


class Part:
    """May be one of the groups that a process delivers."""

    def __init__(self, lock: threading.Lock, taken: set[Part], most: Callable[[], int]) -> None:
        self._lock, self._taken, self._most = lock, taken, most

    def take(self) -> bool:
        """Whether we may have a group; if so, it counts until it is given up."""
        with self._lock:
            if self not in self._taken and len(self._taken) >= self._most():
                return False
            self._taken.add(self)
            return True

    def give_up(self) -> None:
        with self._lock:
            self._taken.discard(self)

    def is_too_much(self) -> bool:
        """Whether the process has more than its share, since another one has come; if so, this part is given up."""
        with self._lock:
            too_much = len(self._taken) > self._most()
            if too_much:
                self._taken.discard(self)
            return too_much
