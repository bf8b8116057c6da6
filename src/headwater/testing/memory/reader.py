"""A lake in memory, for DuckDB to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from headwater.change import TableName
from headwater.lake.reading import connect
from headwater.lake.sqltext import identifier

__all__ = ["MemoryReader"]


@dataclass(frozen=True, slots=True)
class MemoryReader:
    """Implements `headwater.lake.sink.Reader`."""

    tables: Mapping[TableName, pa.Table]

    def connect(self) -> duckdb.DuckDBPyConnection:
        return connect(threads=1)

    def attach(self, con: duckdb.DuckDBPyConnection, alias: str) -> None:
        con.execute(f"ATTACH ':memory:' AS {identifier(alias)}")
        for name, rows in self.tables.items():
            schema = f"{identifier(alias)}.{identifier(name.schema)}"
            con.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            con.register("rows_in_memory", rows)
            con.execute(f"CREATE TABLE {schema}.{identifier(name.name)} AS FROM rows_in_memory")
            con.unregister("rows_in_memory")
