"""Opening a lake for writing: it is created when missing, checked, and prepared for Headwater's own tables."""

from __future__ import annotations

import os
import sqlite3
import time

import duckdb

from headwater.ducklake.attempts import ATTEMPT_TABLE
from headwater.ducklake.catalog import Catalog, Raced, Transaction, open_catalog, pauses
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.lake import Lake
from headwater.ducklake.positions import POSITION_TABLE
from headwater.ducklake.url import LakeUrl, SqliteUrl, parse_lake_url
from headwater.errors import ConfigError, OperatorMustAct, Unreachable
from headwater.files import S3, absolute, check_writable, make_folder

__all__ = ["check_usable", "open_lake"]

_VERSION = "1.0"
_INDEXES = (  # the catalog has none but primary keys; thousands of files need them
    "CREATE INDEX IF NOT EXISTS headwater_data_file ON ducklake_data_file(table_id)",
    "CREATE INDEX IF NOT EXISTS headwater_delete_file ON ducklake_delete_file(data_file_id)",
    "CREATE INDEX IF NOT EXISTS headwater_file_stats ON ducklake_file_column_stats(table_id, column_id)",
)


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
    """Create the lake through the extension; if several processes do so at the same time, they end up with one lake."""
    failed: duckdb.Error | None = None
    for wait in pauses():
        if isinstance(url, SqliteUrl):
            _new_sqlite_file(url)
        con = connect()
        try:
            attach(con, url, "lake", data_path=data_path, s3=s3)
            return
        except duckdb.Error as error:
            failed = error  # perhaps another process is creating it right now
        finally:
            con.close()
        time.sleep(wait)
        if catalog.exists():
            return
    reason = " ".join(str(failed).split())
    raise OperatorMustAct(
        f"cannot create a lake in {url}: {reason}", hint="check the privileges on the database or folder"
    )


def _new_sqlite_file(url: SqliteUrl) -> None:
    try:
        make_folder(os.path.dirname(url.path))
        connection = sqlite3.connect(url.path, timeout=10)
        try:
            # In this mode, which is stored in the file, a reader's long query does not block our commits.
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
    for wait in pauses():
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
    """Settings of a lake that we create: no rows in the catalog (they are hard to delete there), and indexes."""
    option = ("data_inlining_row_limit", "0")
    if not tx.rows("SELECT 1 FROM ducklake_metadata WHERE key = %s AND scope IS NULL", option[0]):
        tx.insert("ducklake_metadata", "key, value", [option])
    for index in _INDEXES:
        tx.execute(index)
