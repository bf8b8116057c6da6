"""SQL on a lake's catalog: SQLite and PostgreSQL behind one small interface, their errors translated.

SQL is written once, with `%s` for arguments, `{among}` for "is one of these ids" and `{now}` for the time.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol
from urllib.parse import quote

import psycopg
from psycopg import errors as pg
from psycopg import sql as pgsql

from headwater.ducklake.url import LakeUrl, PostgresUrl, SqliteUrl
from headwater.errors import CommitUnknown, HeadwaterError, OperatorMustAct, Unreachable
from headwater.postgres.settings import SETTINGS, prepare

__all__ = ["TRIES", "Catalog", "PostgresCatalog", "Raced", "SqliteCatalog", "Transaction", "open_catalog", "pauses"]

_WAIT_SECONDS = 10  # for another writer's lock, before we give way and try again
TRIES = 12
_RACES = (
    pg.UniqueViolation,
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.LockNotAvailable,
    pg.DuplicateTable,  # another client created the table of inlined deletes at the same moment
)


class Raced(Exception):
    """Another writer took the snapshot id or holds the lock; nothing of ours landed."""


class Transaction(Protocol):
    def rows(self, sql: str, *args: object) -> list[tuple[Any, ...]]: ...
    def execute(self, sql: str, *args: object) -> int:
        """Run a statement; return how many rows it touched."""

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int: ...
    def insert(self, table: str, columns: str, rows: Iterable[Sequence[object]]) -> None: ...
    def ids(self, ids: Iterable[int]) -> object:
        """The argument for `{among}`."""

    def tables(self, prefix: str) -> set[str]:
        """Names of the catalog's tables that start with `prefix`."""


class Catalog(Protocol):
    def transaction(self, *, write: bool = False) -> AbstractContextManager[Transaction]:
        """A context manager for a Transaction: commits at its end, rolls back on an exception.

        Without `write`, all statements see one state. A COMMIT whose outcome is unknown raises CommitUnknown.
        """

    def exists(self) -> bool:
        """Whether there is a lake in this catalog."""

    def close(self) -> None: ...


def pauses() -> Iterator[float]:
    """Growing, uneven pauses between tries, so that two writers who collide do not collide again."""
    return (0.02 * 1.5**attempt * random.uniform(0.5, 1.5) for attempt in range(TRIES))


def open_catalog(url: LakeUrl) -> Catalog:
    return PostgresCatalog(url) if isinstance(url, PostgresUrl) else SqliteCatalog(url)


class _SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, *args: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._dialect(sql), args).fetchall()

    def execute(self, sql: str, *args: object) -> int:
        return self._connection.execute(self._dialect(sql), args).rowcount

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        return self._connection.executemany(self._dialect(sql), rows).rowcount if rows else 0

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[object]]) -> None:
        marks = ",".join("?" * len(columns.split(",")))
        self._connection.executemany(f"INSERT INTO {table}({columns}) VALUES ({marks})", rows)

    def ids(self, ids: Iterable[int]) -> object:
        return json.dumps([int(each) for each in ids])

    def tables(self, prefix: str) -> set[str]:
        found = self.rows(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, %s) = %s", len(prefix), prefix
        )
        return {name for (name,) in found}

    @staticmethod
    def _dialect(sql: str) -> str:
        now = "strftime('%Y-%m-%d %H:%M:%f', 'now') || '000+00'"
        among = "IN (SELECT value FROM json_each(?))"
        return sql.replace("%s", "?").replace("{among}", among).replace("{now}", now)


class SqliteCatalog:
    """Opened for each transaction: that is cheap, and notices a file that was moved away."""

    def __init__(self, url: SqliteUrl) -> None:
        self._url = url

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[_SqliteTransaction]:
        with self._connection() as connection:
            with self._translated():
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield _SqliteTransaction(connection)
            with self._translated(commit=write):
                connection.execute("COMMIT")

    def exists(self) -> bool:
        try:
            with self.transaction() as tx:
                return bool(tx.tables("ducklake_metadata"))
        except Unreachable as error:
            if isinstance(error.__cause__, sqlite3.OperationalError) and "unable to open" in str(error.__cause__):
                return False
            raise

    def close(self) -> None:
        pass

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            # mode=rw: never create an empty file where a lake is missing
            where = f"file:{quote(self._url.path)}?mode=rw"
            connection = sqlite3.connect(where, uri=True, isolation_level=None, timeout=_WAIT_SECONDS)
        try:
            with self._translated():
                connection.execute("PRAGMA synchronous = FULL")
            yield connection
        finally:
            connection.close()  # rolls back what is open

    @contextmanager
    def _translated(self, *, commit: bool = False) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise Raced(str(error)) from error
        except sqlite3.Error as error:
            if "locked" in str(error) or "busy" in str(error):
                raise Raced(str(error)) from error
            if commit:
                raise CommitUnknown(f"no answer to COMMIT from {self._url}: {error}") from error
            raise _catalog_error(self._url, error, missing="no such table" in str(error)) from error


class _PostgresTransaction:
    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def rows(self, sql: str, *args: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._dialect(sql), args).fetchall()

    def execute(self, sql: str, *args: object) -> int:
        return self._connection.execute(self._dialect(sql), args).rowcount

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        if not rows:
            return 0
        with self._connection.cursor() as cursor:
            cursor.executemany(self._dialect(sql), rows)
            return cursor.rowcount

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[object]]) -> None:
        statement = self._dialect(f"COPY {table}({columns}) FROM STDIN")
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def ids(self, ids: Iterable[int]) -> object:
        return [int(each) for each in ids]

    def tables(self, prefix: str) -> set[str]:
        found = self.rows(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND starts_with(tablename, %s)", self._schema, prefix
        )
        return {name for (name,) in found}

    @staticmethod
    def _dialect(sql: str) -> str:
        return sql.replace("{among}", "= ANY(%s)").replace("{now}", "now()")


class PostgresCatalog:
    """One connection, kept open, and opened again when it was lost."""

    def __init__(self, url: PostgresUrl) -> None:
        self._url = url
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[_PostgresTransaction]:
        with self._lock:
            connection = self._begun(write)
            try:
                with self._translated():
                    yield _PostgresTransaction(connection, self._url.schema)
                with self._translated(commit=write):
                    connection.execute("COMMIT")
            except BaseException:
                self._give_up(connection)
                raise

    def exists(self) -> bool:
        with self.transaction() as tx:
            return "ducklake_metadata" in tx.tables("ducklake_metadata")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begun(self, write: bool) -> psycopg.Connection[tuple[Any, ...]]:
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        if self._connection is not None:
            try:
                self._connection.execute(begin)
                return self._connection
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self.close()  # it was lost while idle: the server restarted or was unreachable
        with self._translated():
            self._connection = psycopg.connect(self._url.conninfo, autocommit=True, **self._options())
            self._prepare(self._connection)
            self._connection.execute(begin)
            return self._connection

    def _prepare(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        schema = pgsql.Identifier(self._url.schema).as_string(connection)
        ours = SETTINGS | {"search_path": schema, "lock_timeout": f"{_WAIT_SECONDS}s"}
        prepare(lambda text: connection.execute(text.encode()), ours)

    def _options(self) -> dict[str, Any]:
        asked = psycopg.conninfo.conninfo_to_dict(self._url.conninfo)
        defaults = {"connect_timeout": 10, "application_name": "headwater"}
        return {name: value for name, value in defaults.items() if name not in asked}

    def _give_up(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
        if connection.closed or connection.broken:
            self.close()

    @contextmanager
    def _translated(self, *, commit: bool = False) -> Iterator[None]:
        try:
            yield
        except _RACES as error:
            raise Raced(str(error)) from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if commit:
                raise CommitUnknown(f"no answer to COMMIT from {self._url}") from error
            raise _catalog_error(self._url, error, missing=False) from error
        except psycopg.Error as error:
            raise _catalog_error(self._url, error, missing=isinstance(error, pg.UndefinedTable)) from error


def _catalog_error(url: LakeUrl, error: Exception, *, missing: bool) -> HeadwaterError:
    what = " ".join(str(error).split())
    if missing:
        return OperatorMustAct(
            f"the catalog {url} is no longer the lake that was opened: {what}",
            hint="restore it; or give it up: `headwater run --recopy` copies all its tables anew",
        )
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        return OperatorMustAct(f"the catalog {url} cannot be read: {what}", hint="restore it, or name another file")
    if isinstance(error, psycopg.Error) and not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return OperatorMustAct(f"the catalog {url} refuses: {what}", hint="check the role's rights on the schema")
    return Unreachable(
        f"the catalog {url} does not answer: {what}", hint="is it up, and are host, port and path right?"
    )
