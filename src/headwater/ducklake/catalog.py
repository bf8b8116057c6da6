"""SQL on a lake's catalog: SQLite and PostgreSQL behind one small interface, their errors translated.

SQL is written once, with `%s` for arguments, `%%` for a percent sign, `{among}` for "is one of these ids" and `{now}`
for the time.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import Any, Literal, Protocol
from urllib.parse import quote

import psycopg
from psycopg import errors as pg
from psycopg import sql as pgsql
from psycopg.adapt import Transformer

from headwater.ducklake.connections import WAIT_SECONDS, Connection, Silent, connections_to
from headwater.ducklake.gates import for_transaction
from headwater.ducklake.url import LakeUrl, PostgresUrl, SqliteUrl
from headwater.errors import CommitUnknown, HeadwaterError, OperatorMustAct, TimedOut, Unreachable

__all__ = [
    "TRIES",
    "Catalog",
    "Dialect",
    "Locked",
    "PostgresCatalog",
    "PostgresTransaction",
    "Raced",
    "SqliteCatalog",
    "Transaction",
    "locked",
    "open_catalog",
    "pauses",
]

Dialect = Literal["sqlite", "postgres"]

TRIES = 12
_MARK = re.compile(r"%([s%])")
_COPIED = 100  # more rows than this are quicker sent by COPY, which takes two round trips of its own
_RACES = (
    pg.UniqueViolation,
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.DuplicateTable,  # another client created it at the same moment
    pg.DuplicateSchema,
)


class Raced(Exception):
    """Another writer took the snapshot id or holds the lock; nothing of ours landed."""


class Locked(Raced):
    """Another client held the lock for as long as we wait."""


class Transaction(Protocol):
    @property
    def dialect(self) -> Dialect: ...
    def rows(self, sql: str, *args: object) -> list[tuple[Any, ...]]: ...
    def answers(self, *asked: tuple[str, Sequence[object]]) -> list[list[tuple[Any, ...]]]:
        """The rows of several questions and their arguments, all of which are asked at once."""

    def execute(self, sql: str, *args: object) -> int:
        """Run a statement; return how many rows it touched."""

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int: ...
    def send(self, sql: str, *args: object) -> None:
        """Run a statement without waiting for its outcome: its error may come from a later call, or at the end."""

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[object]]) -> None: ...
    def ids(self, ids: Iterable[int]) -> object:
        """The argument for `{among}`."""

    def existing(self, names: Collection[str]) -> set[str]:
        """Those of these tables that the catalog has."""

    def make_schema(self) -> None:
        """Create the schema of the catalog if it is missing, where there are schemas."""


class Catalog(Protocol):
    @property
    def dialect(self) -> Dialect: ...

    def transaction(self, *, write: bool = False) -> AbstractContextManager[Transaction]:
        """A context manager for a Transaction: commits at its end, rolls back on an exception.

        Without `write`, all statements see one state. A COMMIT whose outcome is unknown raises CommitUnknown.
        """

    def kept_open(self) -> AbstractContextManager[None]:
        """Inside, one connection serves all transactions of this thread. TimedOut if the catalog stays locked."""

    def exists(self) -> bool:
        """Whether there is a lake in this catalog."""

    def close(self) -> None: ...


def pauses(within: int | None = None) -> Iterator[float]:
    """Growing, uneven pauses between tries, so that two writers who collide do not collide again.

    The last try begins before so many seconds have passed.
    """
    begun = time.monotonic()
    for attempt in range(TRIES):
        if within is None or not attempt or time.monotonic() - begun < within:
            yield 0.02 * 1.5**attempt * random.uniform(0.5, 1.5)


def locked(url: LakeUrl) -> TimedOut:
    """What to say about a catalog that another client has locked for too long."""
    return TimedOut(f"the catalog {url} stayed locked", hint="another client holds it; end its transaction")


def open_catalog(url: LakeUrl) -> Catalog:
    return PostgresCatalog(url) if isinstance(url, PostgresUrl) else SqliteCatalog(url)


class _SqliteTransaction:
    dialect: Dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, *args: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(_in_sqlite(sql), args).fetchall()

    def answers(self, *asked: tuple[str, Sequence[object]]) -> list[list[tuple[Any, ...]]]:
        return [self.rows(sql, *args) for sql, args in asked]

    def execute(self, sql: str, *args: object) -> int:
        return self._connection.execute(_in_sqlite(sql), args).rowcount

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        return self._connection.executemany(_in_sqlite(sql), rows).rowcount if rows else 0

    def send(self, sql: str, *args: object) -> None:
        self._connection.execute(_in_sqlite(sql), args)

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[object]]) -> None:
        listed = list(rows)
        if listed:
            marks = ",".join("?" * len(listed[0]))
            self._connection.executemany(f"INSERT INTO {table}({columns}) VALUES ({marks})", listed)

    def ids(self, ids: Iterable[int]) -> object:
        return f"[{','.join(str(int(each)) for each in ids)}]"  # JSON

    def existing(self, names: Collection[str]) -> set[str]:
        found = self.rows(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN (SELECT value FROM json_each(%s))",
            json.dumps([*names]),
        )
        return {name for (name,) in found}

    def make_schema(self) -> None:
        pass


@lru_cache(maxsize=1024)
def _in_sqlite(sql: str) -> str:
    now = "strftime('%Y-%m-%d %H:%M:%f', 'now') || '000+00'"
    among = "IN (SELECT value FROM json_each(?))"
    marked = _MARK.sub(lambda found: "?" if found[1] == "s" else "%", sql)
    return marked.replace("{among}", among).replace("{now}", now)


class SqliteCatalog:
    """Opened for each transaction, which notices a file that was moved away; inside `kept_open`, once for all."""

    dialect: Dialect = "sqlite"

    def __init__(self, url: SqliteUrl) -> None:
        self._url = url
        self._kept = threading.local()  # has the connection of `kept_open`

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[_SqliteTransaction]:
        with for_transaction(self._url.path), self._connection() as connection:
            with self._translated():
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield _SqliteTransaction(connection)
            with self._translated(commit=write):
                connection.execute("COMMIT")

    def exists(self) -> bool:
        try:
            with self.transaction() as tx:
                return bool(tx.existing(["ducklake_metadata"]))
        except Unreachable as error:
            if isinstance(error.__cause__, sqlite3.OperationalError) and "unable to open" in str(error.__cause__):
                return False
            raise

    def close(self) -> None:
        kept: sqlite3.Connection | None = getattr(self._kept, "connection", None)
        if kept is not None:
            self._kept.connection = None
            kept.close()

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        with ExitStack() as held:
            try:
                connection = held.enter_context(self._opened())
            except Raced as error:
                raise locked(self._url) from error
            self._kept.connection = connection
            try:
                yield
            finally:
                self._kept.connection = None

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        kept: sqlite3.Connection | None = getattr(self._kept, "connection", None)
        if kept is None:
            with self._opened() as connection:
                yield connection
            return
        try:
            yield kept
        finally:
            if kept.in_transaction:
                kept.rollback()

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            # mode=rw: never create an empty file where a lake is missing
            where = f"file:{quote(self._url.path)}?mode=rw"
            connection = sqlite3.connect(where, uri=True, isolation_level=None, timeout=self._url.wait or WAIT_SECONDS)
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
                raise Locked(str(error)) from error
            if commit:
                raise CommitUnknown(f"no answer to COMMIT from {self._url}: {error}") from error
            raise _catalog_error(self._url, error, missing="no such table" in str(error)) from error


class PostgresTransaction:
    """Statements whose outcome is not awaited are sent with the next one: in one message, which is one round trip."""

    dialect: Dialect = "postgres"

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._cursor = psycopg.ClientCursor(connection)
        self._schema = schema
        self._unsent: list[str] = []
        self._begun = False

    def rows(self, sql: str, *args: object) -> list[tuple[Any, ...]]:
        return self._answered(self._text(sql, args)).fetchall()

    def answers(self, *asked: tuple[str, Sequence[object]]) -> list[list[tuple[Any, ...]]]:
        cursor = self._answered(*(self._text(sql, args) for sql, args in asked))
        found = [cursor.fetchall()]
        found += (cursor.fetchall() for _ in asked[1:] if cursor.nextset())
        return found

    def execute(self, sql: str, *args: object) -> int:
        return self._answered(self._text(sql, args)).rowcount

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        if not rows:
            return 0
        cursor = self._answered(*(self._text(sql, row) for row in rows))
        return cursor.rowcount + sum(cursor.rowcount for _ in rows[1:] if cursor.nextset())

    def send(self, sql: str, *args: object) -> None:
        self._unsent.append(self._text(sql, args))

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[object]]) -> None:
        listed = list(rows)
        if len(listed) > _COPIED:
            self._copy(f"COPY {table}({columns}) FROM STDIN", listed)
        elif listed:
            literal = Transformer(self._connection).as_literal
            values = b", ".join(b"(%s)" % b", ".join(map(literal, row)) for row in listed)
            self._unsent.append(f"INSERT INTO {table}({columns}) VALUES {values.decode()}")

    def ids(self, ids: Iterable[int]) -> object:
        return [int(each) for each in ids]

    def existing(self, names: Collection[str]) -> set[str]:
        found = self.rows(
            "SELECT relname::text FROM pg_class WHERE relname = ANY(%s::name[]) AND relkind IN ('r', 'p')"
            " AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s)",
            [*names],
            self._schema,
        )
        return {name for (name,) in found}

    def make_schema(self) -> None:
        if not self.rows("SELECT 1 FROM pg_namespace WHERE nspname = %s", self._schema):
            self._unsent.append(f"CREATE SCHEMA {_quoted(self._schema)}")

    @property
    def lost(self) -> bool:
        """Whether nothing of it can land any more."""
        return self._connection.closed

    def wait_less(self) -> None:
        """From now on, give up at a lock almost at once."""
        self.execute("SET LOCAL lock_timeout TO '100ms'")

    def end(self, statement: str) -> None:
        """Send what is unsent, and this with it."""
        self._answered(statement)

    @contextmanager
    def part(self, schema: str) -> Iterator[PostgresTransaction]:
        """A transaction inside this one, in another schema: if it fails, it alone is undone."""
        inner = PostgresTransaction(self._connection, schema)
        inner.send("SAVEPOINT headwater")
        inner._unsent.append(_search_path(schema))
        try:
            yield inner
            inner.end("RELEASE SAVEPOINT headwater")
        except BaseException:
            if inner._begun:  # otherwise there is no savepoint, and nothing to undo
                with suppress(psycopg.Error):
                    self._connection.execute("ROLLBACK TO SAVEPOINT headwater; RELEASE SAVEPOINT headwater")
            raise

    def _copy(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        self._answered()
        with self._cursor.copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def _answered(self, *statements: str) -> psycopg.Cursor[tuple[Any, ...]]:
        """The answer to the first of these statements; what is unsent goes before them."""
        unsent, self._unsent, self._begun = self._unsent, [], True
        if unsent or statements:
            self._cursor.execute("; ".join([*unsent, *statements]).encode())
        for _ in unsent if statements else ():
            self._cursor.nextset()
        return self._cursor

    def _text(self, sql: str, args: Sequence[object]) -> str:
        return self._cursor.mogrify(self._dialect(sql).encode(), args)

    @staticmethod
    def _dialect(sql: str) -> str:
        return sql.replace("{among}", "= ANY(%s)").replace("{now}", "clock_timestamp()")


class PostgresCatalog:
    """A schema of a database; its transactions use the connections of all catalogs in that database."""

    dialect: Dialect = "postgres"

    def __init__(self, url: PostgresUrl) -> None:
        self._url = url

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[PostgresTransaction]:
        level = "READ COMMITTED" if write else "REPEATABLE READ READ ONLY"
        connections = connections_to(self._url.conninfo, self._url.wait)
        with self._translated():  # both in one message: the schema costs no round trip of its own
            connection = connections.begun(f"BEGIN ISOLATION LEVEL {level}; {_search_path(self._url.schema)}")
        try:
            with self._translated():
                tx = PostgresTransaction(connection, self._url.schema)
                yield tx
            with self._translated(commit=write):
                tx.end("COMMIT")
        except BaseException:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise
        finally:
            connections.give_back(connection)

    @contextmanager
    def part_of(self, shared: PostgresTransaction) -> Iterator[PostgresTransaction]:
        """A transaction of this catalog inside one of another catalog in the same database; it fails on its own."""
        with self._translated(), shared.part(self._url.schema) as tx:
            yield tx

    def kept_open(self) -> AbstractContextManager[None]:
        return nullcontext()  # connections are kept anyway

    def exists(self) -> bool:
        with self.transaction() as tx:
            return bool(tx.existing(["ducklake_metadata"]))

    def close(self) -> None:
        pass  # the connections serve other lakes, too; they are closed when they have been idle for a while

    @contextmanager
    def _translated(self, *, commit: bool = False) -> Iterator[None]:
        try:
            yield
        except _RACES as error:
            raise Raced(str(error)) from error
        except pg.LockNotAvailable as error:
            raise Locked(str(error)) from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if commit and error.diag.severity_nonlocalized != "ERROR":  # that is an answer: nothing was committed
                raise CommitUnknown(f"no answer to COMMIT from {self._url}") from error
            raise _catalog_error(self._url, error, missing=False) from error
        except psycopg.Error as error:
            raise _catalog_error(self._url, error, missing=isinstance(error, pg.UndefinedTable)) from error


def _search_path(schema: str) -> str:
    return f"SET LOCAL search_path TO {_quoted(schema)}"


def _quoted(schema: str) -> str:
    return pgsql.Identifier(schema).as_string()


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
    kind = TimedOut if isinstance(error, Silent) else Unreachable
    return kind(f"the catalog {url} does not answer: {what}", hint="is it up, and are host, port and path right?")
