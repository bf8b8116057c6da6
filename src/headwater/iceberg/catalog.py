"""A PyIceberg catalog, opened by its properties; its errors become ours here."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    DynamoDbError,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CreateTableTransaction, Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import AssertCreate, AssertTableUUID, TableRequirement, TableUpdate
from requests import RequestException
from sqlalchemy import event, inspect
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from headwater.change import TableName
from headwater.errors import CommitConflict, CommitUnknown, ConfigError, TableError, Unreachable
from headwater.iceberg.fileio import DurableFileIO
from headwater.logs import redact

__all__ = ["IcebergCatalog", "check_name", "open_catalog", "shown", "sqlite_file"]

_CREDENTIALS = "check the credentials in the lake's properties, or in the environment"
_PROPERTIES = "check `uri`, `warehouse` and `prefix` in the lake's properties"
_DENIED = re.compile(
    r"NoCredentials|PartialCredentials|NoRegion|AccessDenied|ACCESS_DENIED|UnrecognizedClient|InvalidClientToken|ExpiredToken"
    r"|InvalidAccessKeyId|SignatureDoesNotMatch|password authentication failed|no password supplied|access denied"
)


def _installed(module: str, *names: str) -> tuple[type[Exception], ...]:
    """The errors of a driver that comes with a catalog of some types only."""
    try:
        found = import_module(module)
    except ImportError:
        return ()
    return tuple(getattr(found, name) for name in names)


_DRIVERS: tuple[type[Exception], ...] = (
    SQLAlchemyError,
    RequestException,
    RESTError,
    DynamoDbError,
    sqlite3.Error,
    OSError,
    *_installed("botocore.exceptions", "BotoCoreError", "ClientError"),
    *_installed("thrift.Thrift", "TException"),
)


def sqlite_file(properties: Mapping[str, str]) -> Path | None:
    """The file that holds the catalog, if one does."""
    uri = properties.get("uri", "")
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def open_catalog(
    properties: Mapping[str, str], secrets: frozenset[str], *, create: bool, wait: int | None = None
) -> IcebergCatalog:
    """Open it; with `create`, a SQL catalog gets its tables when they are missing.

    If that is in PostgreSQL, it is waited for so many seconds: for a connection, and for a lock that others hold.
    """
    given = dict(properties)
    name = given.pop("name", "default")  # under which PyIceberg opens a catalog unless asked otherwise
    uri = given.get("uri", "")
    if uri.startswith(("postgresql://", "postgres://")):
        given["uri"] = _with_connect_timeout("postgresql+psycopg://" + uri.partition("://")[2], wait)
    if create and (file := sqlite_file(properties)):
        file.parent.mkdir(parents=True, exist_ok=True)
    if given.get("type") == "sql" or "sql" in uri.partition(":")[0]:
        given["init_catalog_tables"] = "true" if create else "false"
    given.setdefault("py-io-impl", f"{DurableFileIO.__module__}.{DurableFileIO.__name__}")
    where = shown(properties)
    with _translated(where, secrets):
        try:
            return IcebergCatalog(_hurried(load_catalog(name, **given), wait), where, secrets)
        except NotInstalledError as error:
            said, _, install = str(error).partition(": ")
            raise ConfigError(f"cannot open {where}: {said}", hint=f"install it beside Headwater: {install}") from error
        except (ValueError, ArgumentError, ImportError) as error:
            hint = "see PyIceberg's catalog properties: `type` is sql, rest, glue, hive, dynamodb or bigquery"
            raise ConfigError(f"cannot open {where}: {redact(str(error), secrets)}", hint=hint) from None


def _with_connect_timeout(uri: str, wait: int | None) -> str:
    if wait is None or "connect_timeout=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}connect_timeout={wait}"


def _hurried(catalog: Catalog, wait: int | None) -> Catalog:
    """The catalog, giving up at a lock of PostgreSQL after so many seconds. SQL says so: poolers refuse options.

    Not while it is opened: PyIceberg would take a table that it cannot read for one that is missing.
    """
    if wait is not None and isinstance(catalog, SqlCatalog) and catalog.engine.dialect.name == "postgresql":

        @event.listens_for(catalog.engine, "connect")
        def _(connection: Any, _: object) -> None:
            connection.execute(f"SET lock_timeout TO '{wait:d}s'")
            connection.commit()

        catalog.engine.dispose()  # it has connected already
    return catalog


class IcebergCatalog:
    """What we ask of a catalog. `str()` of it is fit for messages."""

    def __init__(self, catalog: Catalog, where: str, secrets: frozenset[str]) -> None:
        self._catalog = catalog
        self._where = where
        self._secrets = secrets

    def __str__(self) -> str:
        return self._where

    @property
    def properties(self) -> Mapping[str, str]:
        return self._catalog.properties

    def is_new(self) -> bool:
        """Whether it is a database that has no catalog's tables yet."""
        if not isinstance(self._catalog, SqlCatalog):
            return False
        with _translated(self._where, self._secrets):
            return not inspect(self._catalog.engine).has_table(IcebergTables.__tablename__)

    def namespace_properties(self, schema: str) -> Mapping[str, str] | None:
        """None if there is no such namespace."""
        with _translated(self._where, self._secrets):
            try:
                return self._catalog.load_namespace_properties((schema,))
            except NoSuchNamespaceError:
                return None

    def make_namespace(self, schema: str, properties: Mapping[str, str] | None = None) -> None:
        """Make a namespace unless it is there; properties are set either way."""
        with _translated(self._where, self._secrets):
            try:
                self._catalog.create_namespace((schema,), dict(properties or {}))
            except NamespaceAlreadyExistsError:
                if properties:
                    self._catalog.update_namespace_properties((schema,), updates=dict(properties))

    def names(self) -> tuple[list[str], list[TableName]]:
        """All namespaces and tables."""
        with _translated(self._where, self._secrets):
            schemas = [name for (name,) in self._catalog.list_namespaces()]
            found = [(schema, each) for schema in schemas for each in self._catalog.list_tables((schema,))]
        return schemas, [TableName(schema, each[-1]) for schema, each in found]

    def load(self, name: TableName) -> Table | None:
        """None if there is no such table, or if nothing is left of it but its name."""
        with _translated(self._where, self._secrets):
            try:
                return self._catalog.load_table(_identifier(name))
            except (NoSuchTableError, NoSuchNamespaceError, FileNotFoundError):
                return None

    def lists(self, name: TableName) -> bool:
        """Whether the catalog knows the table, be its metadata there or not."""
        with _translated(self._where, self._secrets):
            try:
                return any(each[-1] == name.name for each in self._catalog.list_tables((name.schema,)))
            except NoSuchNamespaceError:
                return False

    def stage(
        self,
        name: TableName,
        schema: Schema,
        spec: PartitionSpec,
        order: SortOrder,
        properties: Mapping[str, str],
        location: str | None = None,
    ) -> CreateTableTransaction:
        """A table to be created, at this location or one that is found for it; no reader sees it before `create`."""
        self.make_namespace(name.schema)
        if self.load(name) is None:
            self.drop(name)  # there may be one whose metadata is gone
        with _translated(self._where, self._secrets):
            try:
                return self._catalog.create_table_transaction(
                    _identifier(name), schema, location or self._location(name), spec, order, dict(properties)
                )
            except TableAlreadyExistsError as error:
                raise _taken(name) from error

    def create(self, staged: CreateTableTransaction, updates: tuple[TableUpdate, ...] = ()) -> Table:
        """Create a staged table, with more changes in the same commit."""
        with _translated(self._where, self._secrets, committing=True):
            try:
                return self._committed(staged._table, (AssertCreate(),), (*staged._updates, *updates))
            except TableAlreadyExistsError as error:
                raise _taken(TableName(*staged._table.name())) from error

    def commit(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> Table:
        """The table as it is after the commit. CommitConflict: nothing landed. CommitUnknown: it may have."""
        same = AssertTableUUID(uuid=table.metadata.table_uuid)
        with _translated(self._where, self._secrets, committing=True):
            try:
                return self._committed(table, (same, *requirements), updates)
            except BadRequestError as error:
                raise CommitFailedException(str(error)) from error
            except ValueError as error:
                if type(error) is not ValueError:  # one that was raised about the catalog's answer
                    raise
                # What PyIceberg itself refuses to do to the newest metadata, as to commit below a sequence number.
                raise CommitFailedException(str(error)) from error

    def rename(self, old: TableName, new: TableName) -> None:
        self.make_namespace(new.schema)
        with _translated(self._where, self._secrets):
            try:
                self._catalog.rename_table(_identifier(old), _identifier(new))
            except TableAlreadyExistsError as error:
                raise _taken(new) from error

    def drop(self, name: TableName) -> None:
        """Take a table out of the catalog; its files stay, for whoever still reads them."""
        with _translated(self._where, self._secrets):
            try:
                self._catalog.drop_table(_identifier(name))
            except NoSuchTableError:
                return

    def close(self) -> None:
        self._catalog.close()

    def _committed(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> Table:
        done = self._catalog.commit_table(table, requirements, updates)
        with suppress(OSError):  # it has landed; what is left here, `maintain` collects
            self._catalog._delete_old_metadata(table.io, table.metadata, done.metadata)
        return Table(table.name(), done.metadata, done.metadata_location, table.io, self._catalog)

    def _location(self, name: TableName) -> str | None:
        """A folder of its own for each table: under one that is its name, a renamed table's files would mix with it."""
        above = (self.namespace_properties(name.schema) or {}).get("location")
        if above is None and (warehouse := self._catalog.properties.get("warehouse")) and "/" in warehouse:
            above = f"{warehouse.rstrip('/')}/{_folder(name.schema)}"
        return above and f"{above.rstrip('/')}/{_folder(name.name)}-{uuid.uuid4().hex[:8]}"


def _folder(name: str) -> str:
    """A name as part of a path: a `/` would lead elsewhere, a `%` is an escape, a `*` is any file to DuckDB."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _identifier(name: TableName) -> tuple[str, str]:
    check_name(name)
    return name.schema, name.name


def check_name(name: TableName) -> None:
    """TableError if no Iceberg catalog can have a table of that name."""
    if "." in name.schema:
        why = "a dot in the name of a schema separates namespaces there"
    elif name.name in (".", ".."):
        why = "in a URL, such a name leads to another place"
    else:
        return
    raise TableError(
        f"{str(name)!r} cannot be in an Iceberg lake: {why}", hint="let the table land elsewhere with `as:`"
    )


def _taken(name: TableName) -> TableError:
    return TableError(
        f"the lake has another table or view {str(name)!r} already",
        hint="drop or rename it in the lake, or let the table land elsewhere with `as:`",
    )


def shown(properties: Mapping[str, str]) -> str:
    """The catalog as messages name it: no user, no password, no parameter."""
    kind, uri = properties.get("type", "catalog"), properties.get("uri", "")
    where = _without_user(uri) if uri else properties.get("warehouse", "")
    return f"iceberg {kind} {where}".strip()


def _without_user(uri: str) -> str:
    try:
        parts = urlsplit(uri)
        host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    except ValueError:  # any part of it may be a password
        return ""
    return f"{parts.scheme}://{host}{parts.path}" if "@" not in parts.path else f"{parts.scheme}://..."


@contextmanager
def _translated(where: str, secrets: frozenset[str], *, committing: bool = False) -> Iterator[None]:
    """Foreign errors in our own tree, without a secret; `from None` where the original may quote one."""
    try:
        yield
    except (CommitFailedException, NoSuchTableError, NoSuchNamespaceError) as error:
        said = redact(str(error), secrets)
        raise CommitConflict(f"another client changed a table of {where}: {said}", hint="plan again") from None
    except CommitStateUnknownException as error:
        said = redact(str(error), secrets)
        raise CommitUnknown(f"whether the commit to {where} landed is unknown: {said}") from None
    except (UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError) as error:
        said = redact(str(error), secrets)
        raise ConfigError(f"{where} refuses us: {said}", hint=_CREDENTIALS) from None
    except (NotImplementedError, BadRequestError) as error:
        said = redact(str(error), secrets)
        raise ConfigError(f"{where} does not do what Headwater asks for: {said}", hint=_PROPERTIES) from None
    except _DRIVERS as error:
        said = redact(str(getattr(error, "orig", None) or error), secrets)
        if not committing and _DENIED.search(f"{type(error).__name__} {said}"):
            raise ConfigError(f"{where} refuses us: {said}", hint=_CREDENTIALS) from None
        if committing:
            raise CommitUnknown(f"whether the commit to {where} landed is unknown: {said}") from None
        if type(error) is RESTError:  # none of those that have a meaning of their own, as 404 for all that is asked for
            raise ConfigError(f"{where} is no Iceberg catalog: {said}", hint=_PROPERTIES) from None
        raise Unreachable(f"{where} does not answer: {said}") from None
