"""A DuckLake at one snapshot, read by DuckDB and its extension: by none of our own code."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import LakeUrl
from headwater.files import S3

__all__ = ["DuckLakeReader"]


@dataclass(frozen=True, slots=True)
class DuckLakeReader:
    """Implements `headwater.lake.sink.Reader`."""

    url: LakeUrl
    s3: S3 | None
    snapshot: int

    def connect(self) -> duckdb.DuckDBPyConnection:
        return connect(threads=1)

    def attach(self, con: duckdb.DuckDBPyConnection, alias: str) -> None:
        attach(con, self.url, alias, s3=self.s3, read_only=True, snapshot=self.snapshot)
