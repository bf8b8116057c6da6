"""Looking at a lake without changing anything: does it exist, is it usable, could it be created?

One that was looked at before, by another process perhaps, is taken for what it was.
"""

from __future__ import annotations

import os
from contextlib import closing

from headwater.ducklake.catalog import PostgresCatalog, Raced, locked, open_catalog
from headwater.ducklake.lake import Lake
from headwater.ducklake.opening import check_usable
from headwater.ducklake.url import PostgresUrl, SqliteUrl, parse_lake_url
from headwater.errors import ConfigError, OperatorMustAct
from headwater.files import S3, absolute, check_could_write

__all__ = ["check_could_open", "find_lake", "known_lake"]


def find_lake(url: str, data_path: str, *, s3: S3 | None = None, wait: int | None = None) -> Lake | None:
    """The lake at `url`; None if there is none. A lake that Headwater cannot write to is refused."""
    where, path = parse_lake_url(url, wait), absolute(data_path)
    catalog = open_catalog(where)
    try:
        if not catalog.exists():
            catalog.close()
            return None
        check_usable(where, path, catalog)
    except Raced as error:
        catalog.close()
        raise locked(where) from error
    except BaseException:
        catalog.close()
        raise
    return Lake(where, path, catalog, s3)


def known_lake(url: str, data_path: str, *, s3: S3 | None = None, wait: int | None = None) -> Lake:
    """The lake at `url`, which was opened for writing before, perhaps elsewhere: nothing is asked, created or checked.

    If it is gone meanwhile, the first question to it says so.
    """
    where = parse_lake_url(url, wait)
    return Lake(where, absolute(data_path), open_catalog(where), s3)


def check_could_open(url: str, data_path: str, *, s3: S3 | None = None) -> None:
    """Refuse a lake that could not be opened for writing, or created where there is none."""
    where = parse_lake_url(url)
    check_could_write(data_path, s3)
    if isinstance(where, SqliteUrl):
        _check_file(where)
    else:
        _check_schema(where)


def _check_file(url: SqliteUrl) -> None:
    try:
        check_could_write(os.path.dirname(url.path))
        if os.path.exists(url.path) and not os.access(url.path, os.W_OK):
            raise ConfigError(f"{url.path!r} may not be written")
    except ConfigError as error:
        raise ConfigError(
            f"cannot create the catalog {url.path!r}: {error.message}",
            hint="create its folder, or give this user access to it",
        ) from error


def _check_schema(url: PostgresUrl) -> None:
    with closing(PostgresCatalog(url)) as catalog, catalog.transaction() as tx:
        ((user, database, there, usable),) = tx.rows(
            "SELECT current_user::text, current_database()::text, n.oid IS NOT NULL,"
            " CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')"
            " ELSE has_schema_privilege(n.oid, 'CREATE') AND has_schema_privilege(n.oid, 'USAGE') END"
            " FROM (SELECT %s::text AS name) AS wanted LEFT JOIN pg_namespace n ON n.nspname = wanted.name",
            url.schema,
        )
        if not usable:
            on = f'SCHEMA "{url.schema}"' if there else f'DATABASE "{database}"'
            raise OperatorMustAct(
                f"role {user!r} may not create tables in the catalog {url}",
                hint=f'GRANT {"USAGE, CREATE" if there else "CREATE"} ON {on} TO "{user}"',
            )
        foreign = tx.rows(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relkind = 'r' AND (starts_with(c.relname, 'ducklake_')"
            " OR c.relname = 'headwater_position') AND NOT (has_table_privilege(c.oid, 'SELECT')"
            " AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE')"
            " AND has_table_privilege(c.oid, 'DELETE')) ORDER BY 1",
            url.schema,
        )
        if foreign:
            raise OperatorMustAct(
                f"role {user!r} may not write the catalog {url}: for example its table {foreign[0][0]!r}",
                hint=f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{url.schema}" TO "{user}"',
            )
