"""Single writer: a session-level advisory lock, held by a dedicated connection."""

from __future__ import annotations

import time

import psycopg

from headwater.errors import LockHeld
from headwater.postgres.connect import Connection, connect, translated, worked_before

__all__ = ["CLASS", "HELD", "PATIENCE", "Lock"]

CLASS = 0x48454144  # 'HEAD': the first key of all our advisory locks; the second is the hash of the name, or 0
# A condition on pg_locks, as `l`: our lock of that name is held in this database. pg_locks has only the hash of a name.
HELD = (
    f"l.locktype = 'advisory' AND l.granted AND l.classid::bigint = {CLASS} AND l.objsubid = 2"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND l.objid::bigint = hashtext({name})::bigint & 4294967295"
)
PATIENCE = 3.0  # seconds: the server needs a moment to notice that a predecessor was killed


class Lock:
    """Held from `acquire` to `release`; `keep` takes it again when the server has restarted meanwhile."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self.name = name
        self._connection: Connection | None = None

    def acquire(self, patience: float) -> None:
        """Take the lock or raise LockHeld, naming the holder."""
        connection = connect(self._url, application_name=f"headwater lock {self.name}", attentive=True)
        deadline = time.monotonic() + patience
        with translated(self._url):
            try:
                while not self._try(connection):
                    if time.monotonic() >= deadline:
                        raise LockHeld(
                            f"another headwater holds the lock {self.name!r}: {self._holder(connection)}",
                            hint="stop that headwater, or end its session with SELECT pg_terminate_backend(...) and"
                            " the PostgreSQL pid above",
                        )
                    time.sleep(0.1)
            except BaseException:
                connection.close()
                raise
        self._connection = connection

    def keep(self) -> None:
        """Make sure it is held: a restarted server has lost it. After Unreachable, call `keep` again.

        LockHeld: another process was faster than this one.
        """
        if self._connection is None or not self._alive(self._connection):
            self.release()
            with worked_before():
                self.acquire(PATIENCE)

    def touch(self) -> int | None:
        """Use the lock's session, so that the server notes the time; return the pid of its backend.

        None: there is no session just now, which `keep` deals with. This method may be called from any thread.
        """
        connection = self._connection
        return connection.info.backend_pid if connection is not None and self._alive(connection) else None

    def release(self) -> None:
        if self._connection is not None:
            self._connection.close()  # the session's end is the lock's end
            self._connection = None

    def _alive(self, connection: Connection) -> bool:
        try:
            connection.execute("SELECT 1")
        except (psycopg.OperationalError, psycopg.InterfaceError):  # the latter: closed by another thread
            return False
        return True

    def _try(self, connection: Connection) -> bool:
        row = connection.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", (CLASS, self.name)).fetchone()
        return row is not None and bool(row[0])

    def _holder(self, connection: Connection) -> str:
        row = connection.execute(
            "SELECT l.pid, a.application_name, a.client_addr::text, a.backend_start::timestamptz(0)::text"
            " FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)"
            f" WHERE {HELD.format(name='%s')}",
            (self.name,),
        ).fetchone()
        if row is None:
            return "it has just been released"
        pid, application, address, since = row
        return f"PostgreSQL pid {pid}, {application!r} from {address or 'the same machine'}, since {since}"
