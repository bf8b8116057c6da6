"""The state's database: one connection, statements on it, and locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self, TypeVar

from psycopg.rows import class_row

from headwater.postgres.connect import Connection
from headwater.state.connection import SharedConnection
from headwater.state.lock import PATIENCE, Lock
from headwater.state.migrations import migrate

__all__ = ["Database", "storable"]

Row = TypeVar("Row")
Parameters = tuple[Any, ...] | dict[str, Any]


class Database:
    """May be used from several threads; survives a restart of its server; raises Unreachable while there is none."""

    def __init__(self, connection: SharedConnection) -> None:
        self._connection = connection

    @classmethod
    def connect(cls, url: str) -> Self:
        """Open the database now, so that a wrong URL is known now."""
        connection = SharedConnection(url)
        with connection.transaction():
            return cls(connection)

    @property
    def url(self) -> str:
        return self._connection.url

    def migrate(self) -> None:
        """Create the schema `headwater`, or bring an older one to this version."""
        self._connection.run(migrate)

    def knows(self, table: str) -> bool:
        """Whether the schema is there, in a version that has this table."""
        return self.query("SELECT to_regclass(%s)", (f"headwater.{table}",)) != [(None,)]

    def close(self) -> None:
        self._connection.close()

    def transaction(self) -> AbstractContextManager[Connection]:
        """A transaction on the connection, tried once."""
        return self._connection.transaction()

    def query(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement that only reads."""
        return self._connection.run(lambda connection: connection.execute(sql, parameters).fetchall())

    @contextmanager
    def lock(self, name: str, patience: float = PATIENCE) -> Iterator[Lock]:
        """Hold the single writer's lock; LockHeld if another process still holds it after `patience` seconds."""
        lock = Lock(self.url, name)
        lock.acquire(patience)
        try:
            yield lock
        finally:
            lock.release()

    def _write(self, sql: str, parameters: Parameters) -> None:
        self._connection.run(lambda connection: connection.execute(sql, parameters))

    def _rows(self, kind: type[Row], sql: str, parameters: tuple[Any, ...]) -> list[Row]:
        def work(connection: Connection) -> list[Row]:
            with connection.cursor(row_factory=class_row(kind)) as cursor:
                return cursor.execute(sql, parameters).fetchall()

        return self._connection.run(work)


def storable(error: str | None) -> str | None:
    """PostgreSQL's text has no NUL; a message that quotes a value may."""
    return None if error is None else error.replace("\0", r"\0")
