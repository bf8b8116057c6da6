"""Opening a lake for writing: it is created when missing, checked, and prepared for Headwater's own tables."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable

from headwater.ducklake.attempts import ATTEMPT_TABLE
from headwater.ducklake.catalog import Catalog, Raced, Transaction, locked, open_catalog, pauses
from headwater.ducklake.lake import Lake
from headwater.ducklake.positions import POSITION_TABLE
from headwater.ducklake.template import write_catalog
from headwater.ducklake.url import LakeUrl, SqliteUrl, parse_lake_url
from headwater.errors import ConfigError, OperatorMustAct
from headwater.files import S3, absolute, check_writable, make_folder

__all__ = ["check_usable", "open_lake"]

_VERSION = "1.0"
_INDEXES = (  # the catalog has none but primary keys; thousands of files need them
    "CREATE INDEX headwater_data_file ON ducklake_data_file(table_id)",
    "CREATE INDEX headwater_ended_file ON ducklake_data_file(table_id, end_snapshot) WHERE end_snapshot IS NOT NULL",
    "CREATE INDEX headwater_delete_file ON ducklake_delete_file(data_file_id)",
    "CREATE INDEX headwater_file_stats ON ducklake_file_column_stats(table_id, column_id)",
)


def open_lake(url: str, data_path: str, *, s3: S3 | None = None, wait: int | None = None) -> Lake:
    """Open the lake at `url`, creating it when missing; refuse what Headwater cannot write to."""
    where = parse_lake_url(url, wait)
    path = absolute(data_path)
    catalog = open_catalog(where)
    try:
        there = catalog.exists()
        check_writable(path, s3)
        if not there and isinstance(where, SqliteUrl):
            _new_sqlite_file(where)
        with catalog.kept_open():
            if not there:
                _create(where, path, catalog)
            check_usable(where, path, catalog)
            if there:
                _prepare(where, catalog)
    except Raced as error:
        catalog.close()
        raise locked(where) from error
    except BaseException:
        catalog.close()
        raise
    return Lake(where, path, catalog, s3)


def _create(url: LakeUrl, data_path: str, catalog: Catalog) -> None:
    """Create the lake, ready for us; if several processes do so at the same time, they end up with one lake."""
    _written(url, catalog, lambda tx: _create_in(tx, url, data_path))


def _create_in(tx: Transaction, url: LakeUrl, data_path: str) -> None:
    if not tx.existing(["ducklake_metadata"]):
        tx.make_schema()
        write_catalog(tx, url, data_path)
        _settle(tx)
    _own_tables(tx)


def _new_sqlite_file(url: SqliteUrl) -> None:
    try:
        make_folder(os.path.dirname(url.path))
        connection = sqlite3.connect(url.path, timeout=url.wait or 10)
        try:
            _write_ahead(connection, url.wait)
        finally:
            connection.close()
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(
            f"cannot create the catalog {url.path!r}: {error}", hint="create its folder, or give this user access to it"
        ) from error


def _write_ahead(connection: sqlite3.Connection, within: int | None) -> None:
    """In this mode, which is stored in the file, a reader's long query does not block our commits.

    While others open the file, SQLite refuses to change it, and does not wait as it does for a transaction.
    """
    for wait in pauses(within):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            time.sleep(wait)
    connection.execute("PRAGMA journal_mode = WAL")


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


def _prepare(url: LakeUrl, catalog: Catalog) -> None:
    with catalog.transaction() as tx:
        prepared = len(tx.existing(["headwater_position", "headwater_attempt"])) == 2
    if not prepared:
        _written(url, catalog, _own_tables)


def _own_tables(tx: Transaction) -> None:
    tx.send(POSITION_TABLE)
    tx.send(ATTEMPT_TABLE)


def _settle(tx: Transaction) -> None:
    """Settings of a lake that we create: no rows in the catalog (they are hard to delete there), and indexes."""
    tx.insert("ducklake_metadata", "key, value", [("data_inlining_row_limit", "0")])
    for index in _INDEXES:
        tx.send(index)


def _written(url: LakeUrl, catalog: Catalog, work: Callable[[Transaction], None]) -> None:
    for wait in pauses(url.wait):
        try:
            with catalog.transaction(write=True) as tx:
                work(tx)
            return
        except Raced:
            time.sleep(wait)
    raise locked(url)
