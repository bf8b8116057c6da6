"""An Iceberg lake at one position, read by DuckDB and its extension: by none of our own code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from headwater.change import TableName
from headwater.files import S3
from headwater.lake.reading import connect, load, reach_s3
from headwater.lake.sqltext import identifier, literal

__all__ = ["IcebergReader", "ReadTable", "create_view", "load_iceberg", "read_by", "scan"]


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A table's metadata file, and the snapshot to read; None: it has none, and no rows."""

    metadata: str
    snapshot: int | None


@dataclass(frozen=True, slots=True)
class IcebergReader:
    """Implements `headwater.lake.sink.Reader`: a view for each table."""

    tables: Mapping[TableName, ReadTable]
    s3: S3 | None

    def connect(self) -> duckdb.DuckDBPyConnection:
        con = connect(threads=1)
        load_iceberg(con)
        return con

    def attach(self, con: duckdb.DuckDBPyConnection, alias: str) -> None:
        if self.s3 is not None:
            reach_s3(con, f"headwater_{alias}", self.s3)
        con.execute(f"ATTACH ':memory:' AS {identifier(alias)}")
        for name, table in self.tables.items():
            create_view(con, alias, name, table)


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
