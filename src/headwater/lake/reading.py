"""DuckDB as the reader of lakes: what `query` and `verify` ask of a lake before they read it."""

from __future__ import annotations

from typing import Protocol

import duckdb

__all__ = ["QueriedLake", "connect"]


def connect(*, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A new in-memory DuckDB, which loads no extension by itself. Times are shown in UTC."""
    con = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    if threads is not None:
        con.execute(f"SET threads = {threads:d}")
    con.execute("SET TimeZone = 'UTC'")
    return con


class QueriedLake(Protocol):
    """A lake as it is now, for people to query."""

    def prepare(self, con: duckdb.DuckDBPyConnection) -> None:
        """Load what reads such a lake; a query may call the functions that come with it."""
        ...

    def attach(self, con: duckdb.DuckDBPyConnection, alias: str) -> None:
        """Attach the lake, to be read only; a query may not call functions that come with this."""
        ...

    def files(self, con: duckdb.DuckDBPyConnection, alias: str) -> list[str]:
        """Settle which snapshot this transaction reads; return the path of every file that it may open."""
        ...
