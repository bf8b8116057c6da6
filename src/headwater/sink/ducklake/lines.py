"""What people type into DuckDB to read a table of a DuckLake, without a password."""

from __future__ import annotations

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headwater.change import TableName
from headwater.ducklake.url import LakeUrl, PostgresUrl
from headwater.lake.sqltext import identifier, literal

__all__ = ["lines"]

_HIDDEN = ("password", "sslpassword", "passfile")


def lines(url: LakeUrl, alias: str, table: TableName) -> list[str]:
    """From loading the extensions to the table's rows."""
    if not isinstance(url, PostgresUrl):
        catalog, loaded, options = f"sqlite:{url.path}", "sqlite", "READ_ONLY"
    else:
        known = {name: value for name, value in conninfo_to_dict(url.conninfo).items() if name not in _HIDDEN}
        catalog, loaded = f"postgres:{make_conninfo('', **known)}", "postgres"
        options = f"READ_ONLY, METADATA_SCHEMA {literal(url.schema)}"
    return [
        f"INSTALL ducklake; LOAD ducklake; INSTALL {loaded}; LOAD {loaded};",
        f"ATTACH {literal(f'ducklake:{catalog}')} AS {identifier(alias)} ({options});",
        f"SELECT * FROM {identifier(alias)}.{identifier(table.schema)}.{identifier(table.name)} LIMIT 10;",
    ]
