"""What people type into DuckDB to read a table of a DuckLake, without a password."""

from __future__ import annotations

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headwater.change import TableName
from headwater.ducklake.url import LakeUrl, PostgresUrl
from headwater.lake.sqltext import identifier, literal

__all__ = ["lines"]

_TAKEN = ("main", "memory", "system", "temp")  # DuckDB's own names
_HIDDEN = ("password", "sslpassword", "passfile")


def lines(url: LakeUrl, lake: str, table: TableName) -> list[str]:
    """From loading the extensions to the table's rows."""
    alias = identifier(f"{lake}_lake" if lake.lower() in _TAKEN else lake)
    if not isinstance(url, PostgresUrl):
        catalog, loaded, options = f"sqlite:{url.path}", "sqlite", "READ_ONLY"
    else:
        known = {name: value for name, value in conninfo_to_dict(url.conninfo).items() if name not in _HIDDEN}
        catalog, loaded = f"postgres:{make_conninfo('', **known)}", "postgres"
        options = f"READ_ONLY, METADATA_SCHEMA {literal(url.schema)}"
    return [
        f"INSTALL ducklake; LOAD ducklake; INSTALL {loaded}; LOAD {loaded};",
        f"ATTACH {literal(f'ducklake:{catalog}')} AS {alias} ({options});",
        f"SELECT * FROM {alias}.{identifier(table.schema)}.{identifier(table.name)} LIMIT 10;",
    ]
