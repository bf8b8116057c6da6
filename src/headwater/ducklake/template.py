"""The catalog of a new lake, as the extension creates it.

The extension takes a fifth of a second for each. It does so once per process, in a place that is thrown away, and the
definitions and rows that it made are then written to any number of catalogs.
"""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import dataclass
from functools import cache

import duckdb

from headwater.ducklake.catalog import Transaction
from headwater.ducklake.extension import connect
from headwater.ducklake.url import LakeUrl, SqliteUrl
from headwater.errors import OperatorMustAct
from headwater.lake.sqltext import identifier, literal

__all__ = ["write_catalog"]

_DATA_PATH = "/data/path/"
_TIME, _UUID = "TIMESTAMP WITH TIME ZONE", "UUID"
_SQLITE_TYPES = {"BOOLEAN": "BIGINT", _TIME: "VARCHAR", _UUID: "VARCHAR"}  # others are the same in all catalogs


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    definition: str
    columns: dict[str, str]  # names and types, as DuckDB spells them
    rows: tuple[tuple[object, ...], ...]


def write_catalog(tx: Transaction, url: LakeUrl, data_path: str) -> None:
    """Create a catalog's tables and its first snapshot where there are none."""
    for table in _template():
        tx.send(_in_sqlite(table.definition) if isinstance(url, SqliteUrl) else table.definition)
        names = ", ".join(map(identifier, table.columns))
        marks = ", ".join("{now}" if type_ == _TIME else "%s" for type_ in table.columns.values())
        for row in table.rows:
            tx.send(f"INSERT INTO {table.name}({names}) VALUES ({marks})", *_values(table, row, data_path))


def _in_sqlite(definition: str) -> str:
    for type_, there in _SQLITE_TYPES.items():
        definition = definition.replace(f" {type_}", f" {there}")
    return definition


def _values(table: _Table, row: tuple[object, ...], data_path: str) -> list[object]:
    """A row for a new lake, without times."""
    values: list[object] = []
    for type_, value in zip(table.columns.values(), row, strict=True):
        if type_ == _UUID:
            values.append(str(uuid.uuid4()))
        elif type_ != _TIME:
            values.append(data_path if value == _DATA_PATH else value)
    return values


@cache
def _template() -> tuple[_Table, ...]:
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder, connect(threads=1) as con:
        try:
            con.execute(f"ATTACH {literal(f'ducklake:{folder}/lake')} AS lake (DATA_PATH {literal(_DATA_PATH)})")
            con.execute(f"DETACH lake; ATTACH {literal(f'{folder}/lake')} AS catalog; USE catalog")
            found = con.execute(
                "SELECT table_name, rtrim(sql, ';') FROM duckdb_tables() WHERE database_name = 'catalog'"
                " ORDER BY table_oid"
            ).fetchall()
            return tuple(_table(con, name, definition) for name, definition in found)
        except duckdb.Error as error:
            raise OperatorMustAct(f"DuckDB cannot create a lake: {' '.join(str(error).split())}") from error


def _table(con: duckdb.DuckDBPyConnection, name: str, definition: str) -> _Table:
    content = con.table(name)
    columns = dict(zip(content.columns, map(str, content.types), strict=True))
    return _Table(name, definition, columns, tuple(content.fetchall()))
