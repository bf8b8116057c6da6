"""A table that lists the destinations of a route, in the source's PostgreSQL or in a lake."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from typing import Any

import duckdb
import psycopg

from headwater.config import Config, FromTable
from headwater.errors import ConfigError, Unreachable
from headwater.lake.reading import connect
from headwater.lake.sqltext import identifier
from headwater.postgres.connect import connect as connect_postgres
from headwater.postgres.connect import translated
from headwater.sink.addresses import lake_addresses

__all__ = ["COLUMNS", "listing"]

COLUMNS = "its columns are value, and either lake, or ducklake and data_path; as and paused are optional"


def listing(config: Config, env: Mapping[str, str], to: FromTable) -> list[dict[str, Any]]:
    """The rows of the table, by column; ConfigError if it is not there, or cannot list destinations."""
    table, lake = to.table.table, to.table.lake
    query = f"SELECT * FROM {identifier(table.schema)}.{identifier(table.name)}"
    names, rows = _in_source(config, query) if lake is None else _in_lake(config, env, lake, query)
    if "value" not in names or not ("lake" in names or {"ducklake", "data_path"} <= set(names)):
        raise ConfigError(f"the table {str(table)!r} lacks columns: it has {', '.join(names)}", hint=COLUMNS)
    return [dict(zip(names, row, strict=True)) for row in rows]


Listed = tuple[list[str], Collection[tuple[Any, ...]]]


def _in_source(config: Config, query: str) -> Listed:
    url = config.source
    with closing(connect_postgres(url)) as connection, translated(url):
        try:
            cursor = connection.execute(query.encode())
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise _missing(str(error)) from error
        return [each.name for each in cursor.description or ()], cursor.fetchall()


def _in_lake(config: Config, env: Mapping[str, str], name: str, query: str) -> Listed:
    lake = lake_addresses(config, env, [name])[name].queried()
    with lake.undisturbed(), connect() as con:
        try:
            lake.prepare(con)
            lake.attach(con, "lake")
            con.execute("USE lake")
            found = con.execute(query)
        except duckdb.CatalogException as error:
            raise _missing(str(error)) from error
        except duckdb.Error as error:
            what = str(error).splitlines()[0]
            raise Unreachable(f"the table of destinations in lake {name!r} cannot be read: {what}") from error
        return [each[0] for each in found.description or ()], found.fetchall()


def _missing(what: str) -> ConfigError:
    return ConfigError(
        f"the table of destinations cannot be read: {what.splitlines()[0]}", hint="create it, or correct `from_table`"
    )
