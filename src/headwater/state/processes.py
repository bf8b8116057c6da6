"""Which processes capture and deliver a group, whether they run, and the age of their last heartbeat.

A running process holds an advisory lock, and every few seconds it runs a query in that lock's session: the server notes
the time, by its own clock, and nothing is written, so an idle source stays idle. A process that was killed has lost its
session, and the lock with it; one that hangs still has both, and its heartbeat gets old.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from headwater.errors import HeadwaterError
from headwater.state.lock import HELD, Lock
from headwater.state.rows import Stage
from headwater.state.store import State

__all__ = ["Process", "announced", "held", "processes", "supervised"]

HEARTBEAT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Process:
    """The process that captures or delivers a group, or did last."""

    host: str
    pid: int
    started_at: datetime
    stopped_at: datetime | None  # None: it runs, or it was killed
    running: bool
    heartbeat_seconds: float | None  # its age; None: it does not run, or the server does not say


@contextmanager
def announced(state: State, group: str, stage: Stage, lock: Lock) -> Iterator[None]:
    """Within the block, `processes` shows this process as the one that captures or delivers the group."""
    heart = _Heart(state, group, stage, lock)
    heart.start()
    try:
        yield
    finally:
        heart.stop()


def processes(state: State, group: str) -> dict[Stage, Process]:
    """The processes that run now, or else those that ran last."""
    rows = state.query(
        "SELECT p.part, p.host, p.pid, p.started_at, p.stopped_at, l.pid IS NOT NULL,"
        " extract(epoch FROM clock_timestamp() - a.state_change)::float"
        f" FROM headwater.processes p LEFT JOIN pg_locks l ON l.pid = p.session AND {HELD.format(name='p.lock')}"
        " LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE p.group_name = %s",
        (group,),
    )
    return {stage: Process(*row) for stage, *row in rows}


def supervised(state: State, group: str) -> bool:
    """Whether a `headwater run` serves the group: it starts processes that do not run."""
    return bool(held(state, [f"run:{group}"]))


def held(state: State, locks: Collection[str]) -> set[str]:
    """Those of these locks that a process holds now."""
    rows = state.query(
        "SELECT name FROM unnest(%s::text[]) AS wanted(name)"
        f" WHERE EXISTS (SELECT FROM pg_locks l WHERE {HELD.format(name='name')})",
        (list(locks),),
    )
    return {name for (name,) in rows}


class _Heart(threading.Thread):
    def __init__(self, state: State, group: str, stage: Stage, lock: Lock) -> None:
        super().__init__(name=f"heartbeat-{stage}-{group}", daemon=True)
        self._state, self._lock = state, lock
        self._key = group, stage
        self._session: int | None = None
        self._started_at: datetime | None = None
        self._ending = threading.Event()

    def run(self) -> None:
        self._beat()
        while not self._ending.wait(HEARTBEAT_SECONDS):
            self._beat()

    def stop(self) -> None:
        """End the thread, and note that the process ended in an orderly way."""
        self._ending.set()
        self.join(HEARTBEAT_SECONDS)  # no longer: it may be waiting for a server that does not answer
        with (
            suppress(HeadwaterError),
            self._state.transaction() as connection,
        ):  # then it looks as if it had been killed
            connection.execute(
                "UPDATE headwater.processes SET stopped_at = now()"
                " WHERE group_name = %s AND part = %s AND session = %s",
                (*self._key, self._session),
            )

    def _beat(self) -> None:
        with suppress(HeadwaterError):  # the state is unreachable, which the process itself deals with
            session = self._lock.touch()
            if session is not None and session != self._session:
                self._announce(session)
                self._session = session

    def _announce(self, session: int) -> None:
        """Record this process: once, and again when the server has restarted and the lock has another session."""
        with self._state.transaction() as connection:
            row = connection.execute(
                "INSERT INTO headwater.processes AS p (group_name, part, host, pid, lock, session, started_at)"
                " VALUES (%s, %s, %s, %s, %s, %s, coalesce(%s, now())) ON CONFLICT (group_name, part) DO UPDATE"
                " SET host = excluded.host, pid = excluded.pid, lock = excluded.lock, session = excluded.session,"
                " started_at = excluded.started_at, stopped_at = NULL RETURNING started_at",
                (*self._key, socket.gethostname(), os.getpid(), self._lock.name, session, self._started_at),
            ).fetchone()
        assert row is not None
        self._started_at = row[0]
