"""An Iceberg lake at one position, read by DuckDB and its extension: by none of our own code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb

from headwater.change import TableName
from headwater.files import S3
from headwater.lake.reading import connect, load, reach_s3
from headwater.lake.sqltext import identifier, literal

__all__ = ["IcebergReader", "ReadTable", "attach_tables", "create_view", "load_iceberg", "read_by", "scan"]


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A table's metadata file, and the snapshot to read; None: it has none, and no rows."""

    metadata: str
    snapshot: int | None
    s3: S3 | None = None


@dataclass(frozen=True, slots=True)
class IcebergReader:
    """Implements `headwater.lake.sink.Reader`: a view for each table."""

    tables: Mapping[TableName, ReadTable]

    def connect(self) -> duckdb.DuckDBPyConnection:
        con = connect(threads=1)
        load_iceberg(con)
        return con

    def attach(self, con: duckdb.DuckDBPyConnection, alias: str) -> None:
        attach_tables(con, alias, self.tables.values())
        for name, table in self.tables.items():
            create_view(con, alias, name, table)


def attach_tables(con: duckdb.DuckDBPyConnection, alias: str, tables: Iterable[ReadTable]) -> None:
    """Make an empty database, for views of these tables, whose files can then be read."""
    con.execute(f"ATTACH ':memory:' AS {identifier(alias)}")
    by_folder = {each.metadata.rsplit("/metadata/", 1)[0]: each.s3 for each in tables if each.s3 is not None}
    if len(set(by_folder.values())) == 1:
        by_folder = {"": next(iter(by_folder.values()))}
    for number, (folder, s3) in enumerate(by_folder.items()):
        reach_s3(con, f"headwater_{alias}_{number}", s3, folder)


def create_view(con: duckdb.DuckDBPyConnection, alias: str, name: TableName, table: ReadTable) -> None:
    schema = f"{identifier(alias)}.{identifier(name.schema)}"
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    con.execute(f"CREATE VIEW {schema}.{identifier(name.name)} AS FROM {scan(table)}")


def load_iceberg(con: duckdb.DuckDBPyConnection) -> None:
    load(con, "avro")
    load(con, "iceberg")


def read_by(name: TableName, table: ReadTable) -> dict[str, str]:
    """What people type to read the table at its snapshot, by the program."""
    loaded = f"catalog.load_table(({name.schema!r}, {name.name!r}))"
    return {"PyIceberg": f"{loaded}.scan(snapshot_id={table.snapshot})", "DuckDB": f"FROM {scan(table)};"}


def scan(table: ReadTable) -> str:
    """DuckDB's function for the table at its snapshot."""
    at = "" if table.snapshot is None else f", snapshot_from_id => {table.snapshot:d}"
    return f"iceberg_scan({literal(table.metadata)}{at})"
