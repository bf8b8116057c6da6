"""The processes that have one log: the service that leads, and those that deliver, each by a lock while it lives."""

from __future__ import annotations

import threading

from headwater.errors import HeadwaterError
from headwater.postgres.connect import Connection, connect, translated
from headwater.state.lock import CLASS, HELD

__all__ = ["Share", "leader"]


def leader(log: str) -> str:
    """The lock of the one service that captures into a log, and does what is asked for."""
    return f"lead:{log}"


class Share:
    """This process's share of the groups of a log; the others take the rest. May be used from several threads."""

    def __init__(self, url: str, log: str) -> None:
        self._url, self._name = url, f"deliverers:{log}"
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._taken: set[str] = set()
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

    def take(self, group: str) -> bool:
        """Whether we may have the group; if so, it counts until it is given up."""
        with self._lock:
            if group not in self._taken and len(self._taken) >= self._most:
                return False
            self._taken.add(group)
            return True

    def give_up(self, group: str) -> None:
        with self._lock:
            self._taken.discard(group)

    def is_too_much(self) -> bool:
        """Whether we have more than our share, since another process has come."""
        with self._lock:
            return len(self._taken) > self._most

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
