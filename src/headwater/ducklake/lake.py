"""A DuckLake: open it (creating it when missing), ask it, commit to it."""

from __future__ import annotations

import os
import random
import sqlite3
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

import duckdb
from pyarrow import fs

from headwater.change import TableName
from headwater.ducklake import attempts, reading
from headwater.ducklake.attempts import ATTEMPT_TABLE
from headwater.ducklake.catalog import Catalog, Raced, Transaction, open_catalog
from headwater.ducklake.committing import POSITION_TABLE, write_commit
from headwater.ducklake.evolution import check_names
from headwater.ducklake.extension import attach, connect, literal
from headwater.ducklake.model import Field, LakeTable, LiveFile, NewTable, PlannedCommit, Position, Snapshot, numbered
from headwater.ducklake.names import Names
from headwater.ducklake.schema import safe_folder, schema_folder
from headwater.ducklake.url import LakeUrl, PostgresUrl, SqliteUrl, parse_lake_url
from headwater.errors import CommitConflict, ConfigError, OperatorMustAct, Unreachable
from headwater.files import S3, absolute, check_writable, filesystem, make_folder

__all__ = ["Lake", "check_usable", "open_lake"]

Noted = TypeVar("Noted")

_VERSION = "1.0"
_TRIES = 12
_INDEXES = (  # the catalog has none but primary keys; thousands of files need them
    "CREATE INDEX IF NOT EXISTS headwater_data_file ON ducklake_data_file(table_id)",
    "CREATE INDEX IF NOT EXISTS headwater_delete_file ON ducklake_delete_file(data_file_id)",
    "CREATE INDEX IF NOT EXISTS headwater_file_stats ON ducklake_file_column_stats(table_id, column_id)",
)


class Lake:
    """An open lake. It may be used from several threads; it reconnects by itself."""

    def __init__(self, url: LakeUrl, data_path: str, catalog: Catalog, s3: S3 | None) -> None:
        self.url = url
        self.data_path = data_path
        self.s3 = s3
        self._catalog = catalog

    @cached_property
    def filesystem(self) -> fs.FileSystem:
        """Where the lake's files are. It does not travel to workers: they call `files.filesystem` themselves."""
        return filesystem(self.data_path, self.s3)

    def close(self) -> None:
        self._catalog.close()

    # -- questions

    def id(self) -> str:
        """What tells this lake from any other, wherever it is moved: the UUID that DuckLake gave its first schema."""
        with self._reading() as tx:
            return reading.first_schema(tx)

    def prepared(self) -> bool:
        """Whether Headwater has opened it for writing before."""
        with self._reading() as tx:
            return "headwater_position" in tx.tables("headwater_position")

    def snapshot(self) -> Snapshot:
        with self._reading() as tx:
            return reading.newest_snapshot(tx)

    def table(self, name: TableName) -> LakeTable | None:
        return self.tables([name]).get(name)

    def tables(self, names: Collection[TableName] | None = None) -> dict[TableName, LakeTable]:
        """Those of the named tables that exist (all tables, without names), spelled exactly so."""
        with self._reading() as tx:
            return reading.live_tables(tx, self.data_path, names)

    def files(
        self, table_ids: Collection[int], snapshot: Snapshot, bounds_of: Mapping[int, Collection[int]] | None = None
    ) -> list[LiveFile]:
        """The data files of these tables at a snapshot, with the bounds of `bounds_of[table_id]` columns."""
        with self._reading() as tx:
            return reading.live_files(tx, self.data_path, table_ids, snapshot.id, bounds_of or {})

    def inlined_rows(self, table_ids: Collection[int]) -> set[int]:
        """The tables that hold rows in the catalog itself; `flush_inlined` moves them into files."""
        with self._reading() as tx:
            return reading.tables_with_inlined_rows(tx, table_ids)

    def positions(self, source: str) -> dict[int, Position]:
        """How far each table of a source has come here, by the source's oid."""
        with self._reading() as tx:
            return reading.positions(tx, source)

    def next_column_id(self, table_id: int) -> int:
        """The id for the first column to add to a table: never used before, not even by a column that is gone."""
        with self._reading() as tx:
            return reading.next_column_id(tx, table_id)

    def names(self, giving_up: Collection[int] = ()) -> Names:
        """The names that are taken, once these tables have given up theirs."""
        with self._reading() as tx:
            taken = [name for name, id_, _ in reading.relations(tx) if id_ not in giving_up]
            return Names(reading.schemas(tx), taken)

    # -- changes

    def new_table(self, name: TableName, columns: Collection[Field]) -> NewTable:
        """Prepare a table for a commit to create: its columns numbered, its folder known."""
        check_names(str(name), columns)
        with self._reading() as tx:
            schema_path = reading.schema_path(tx, self.data_path, name.schema)
        if schema_path is None:
            schema_path = self.data_path + safe_folder(name.schema, schema_folder(name.schema))
        id_ = str(uuid.uuid4())
        return NewTable(name, id_, schema_path + safe_folder(name.name, id_), numbered(tuple(columns)))

    def commit(self, commit: PlannedCommit) -> int:
        """Make one snapshot of it all, on top of whatever others committed meanwhile; return its id.

        CommitConflict: nothing landed, plan again. AlreadyDelivered: nothing landed, a position was not the expected
        one. CommitUnknown: ask the positions.
        """
        for wait in _waits():
            try:
                with self._catalog.transaction(write=True) as tx:
                    return write_commit(tx, self.filesystem, self.data_path, commit)
            except Raced:
                time.sleep(wait)
        raise CommitConflict(f"the catalog {self.url} was busy {_TRIES} times in a row", hint="try again")

    def begin(self, source: str) -> str:
        """Note an attempt to write: files get its name, and `commit` lands it. `collect` deletes what does not land."""
        return self._noted(lambda tx: attempts.begin(tx, source))

    def collect(self, source: str) -> int:
        """Delete the files of a source's attempts that did not land; how many. None may be under way."""
        left = self._noted(lambda tx: attempts.close(tx, source))
        if not left:
            return 0
        with self._reading() as tx:
            found = attempts.leftovers(tx, self.filesystem, self.data_path, left)
        for path in found:
            self.filesystem.delete_file(path)
        # Some are looked for once more at the next call: a worker may outlive its job, and write for a moment.
        self._noted(lambda tx: attempts.forget(tx, [each for each, closed in left.items() if closed]))
        return len(found)

    def _noted(self, work: Callable[[Transaction], Noted]) -> Noted:
        for wait in _waits():
            try:
                with self._catalog.transaction(write=True) as tx:
                    return work(tx)
            except Raced:
                time.sleep(wait)
        raise Unreachable(f"the catalog {self.url} stayed locked", hint="another client holds it")

    def flush_inlined(self, table: LakeTable) -> None:
        """Move what other clients put into the catalog itself into files; CommitConflict if others commit meanwhile."""
        with self.attached() as (con, alias):
            # Where it tries again on PostgreSQL, it keeps deletes in the catalog that it has also written to a file.
            con.execute("SET ducklake_max_retry_count = 0")
            try:
                con.execute(
                    f"CALL ducklake_flush_inlined_data({literal(alias)}, schema_name => {literal(table.schema)},"
                    f" table_name => {literal(table.name)})"
                )
            except duckdb.TransactionException as error:
                raise CommitConflict(f"others changed {table.name!r} during a flush", hint="try again") from error

    # -- DuckDB

    @contextmanager
    def attached(
        self, *, read_only: bool = False, snapshot: int | None = None
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
        """A DuckDB connection with this lake attached, and its alias there."""
        with connect() as con:
            try:
                attach(con, self.url, "lake", s3=self.s3, read_only=read_only, snapshot=snapshot)
            except duckdb.Error as error:
                # `from None`: DuckDB's own message may quote the connection string, password and all
                what = f"DuckDB cannot attach {self.url}: {_scrubbed(error, self.url)}"
                raise (Unreachable if isinstance(error, duckdb.IOException) else OperatorMustAct)(what) from None
            yield con, "lake"

    @contextmanager
    def _reading(self) -> Iterator[Transaction]:
        try:
            with self._catalog.transaction() as tx:
                yield tx
        except Raced as error:
            raise Unreachable(f"the catalog {self.url} stayed locked", hint="another client holds it") from error


def open_lake(url: str, data_path: str, *, s3: S3 | None = None) -> Lake:
    """Open the lake at `url`, creating it when missing; refuse what Headwater cannot write to."""
    where = parse_lake_url(url)
    path = absolute(data_path)
    catalog = open_catalog(where)
    try:
        created = not catalog.exists()
        check_writable(path, s3)
        if created:
            _create(where, path, catalog, s3)
        check_usable(where, path, catalog)
        _prepare(catalog, created)
    except BaseException:
        catalog.close()
        raise
    return Lake(where, path, catalog, s3)


def _create(url: LakeUrl, data_path: str, catalog: Catalog, s3: S3 | None) -> None:
    """Create the lake through the extension; if others do so at the same time, there is one in the end."""
    failed: duckdb.Error | None = None
    for wait in _waits():
        if isinstance(url, SqliteUrl):
            _new_sqlite_file(url)
        con = connect()
        try:
            attach(con, url, "lake", data_path=data_path, s3=s3)
            return
        except duckdb.Error as error:
            failed = error  # perhaps because another process creates it right now
        finally:
            con.close()
        time.sleep(wait)
        if catalog.exists():
            return
    reason = _scrubbed(failed, url)
    raise OperatorMustAct(f"cannot create a lake in {url}: {reason}", hint="check the rights on the database or folder")


def _new_sqlite_file(url: SqliteUrl) -> None:
    try:
        make_folder(os.path.dirname(url.path))
        connection = sqlite3.connect(url.path, timeout=10)
        try:
            # In this mode (the file remembers it) a long query of a reader does not hold up our commits.
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(
            f"cannot create the catalog {url.path!r}: {error}", hint="create its folder, or give this user access to it"
        ) from error


def check_usable(url: LakeUrl, data_path: str, catalog: Catalog) -> None:
    """Refuse a lake that Headwater cannot write to."""
    with catalog.transaction() as tx:
        found = dict(tx.rows("SELECT key, value FROM ducklake_metadata WHERE scope IS NULL"))
    version = found.get("version")
    if version != _VERSION:
        raise OperatorMustAct(
            f"the lake {url} has catalog version {version!r}, Headwater writes {_VERSION!r}",
            hint="if it is older, attach it once with DuckDB and AUTOMATIC_MIGRATION; if newer, upgrade Headwater",
        )
    if found.get("encrypted") == "true":
        raise OperatorMustAct(f"the lake {url} is encrypted, which Headwater cannot write", hint="use another lake")
    if absolute(found["data_path"]) != data_path:
        raise ConfigError(
            f"the lake {url} has its data in {found['data_path']!r}, not in data_path {data_path!r}",
            hint="put the lake's own path into the configuration",
        )


def _prepare(catalog: Catalog, created: bool) -> None:
    for wait in _waits():
        try:
            with catalog.transaction() as tx:
                if {"headwater_position", "headwater_attempt"} <= tx.tables("headwater_"):
                    return
            with catalog.transaction(write=True) as tx:
                tx.execute(POSITION_TABLE)
                tx.execute(ATTEMPT_TABLE)
                if created:
                    _settle(tx)
            return
        except Raced:
            time.sleep(wait)
    raise Unreachable("the catalog stayed locked", hint="another client holds it")


def _settle(tx: Transaction) -> None:
    """What we want of a lake that is ours: no rows in the catalog (they are hard to delete there), and indexes."""
    option = ("data_inlining_row_limit", "0")
    if not tx.rows("SELECT 1 FROM ducklake_metadata WHERE key = %s AND scope IS NULL", option[0]):
        tx.insert("ducklake_metadata", "key, value", [option])
    for index in _INDEXES:
        tx.execute(index)


def _waits() -> Iterator[float]:
    """Growing, uneven pauses, so that two who collide do not collide again."""
    return (0.02 * 1.5**attempt * random.uniform(0.5, 1.5) for attempt in range(_TRIES))


def _scrubbed(error: duckdb.Error | None, url: LakeUrl) -> str:
    """DuckDB's message, which may quote the connection string, without the password."""
    text = " ".join(str(error).split())
    password = url.password if isinstance(url, PostgresUrl) else None
    return text.replace(password, "***") if password else text
