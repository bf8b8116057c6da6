"""A DuckLake for people to query, through DuckDB's own extension."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import duckdb

from headwater.ducklake.extension import attach
from headwater.ducklake.gates import for_duckdb
from headwater.ducklake.url import LakeUrl, PostgresUrl
from headwater.files import S3
from headwater.lake.reading import load
from headwater.lake.sqltext import identifier, literal

__all__ = ["QueriedDuckLake"]

_FILES = """
    SELECT CASE WHEN CAST(f.path_is_relative AS BOOLEAN) THEN home.path || f.path ELSE f.path END AS path
    FROM (SELECT table_id, path, path_is_relative FROM {catalog}.ducklake_data_file
          UNION ALL SELECT table_id, path, path_is_relative FROM {catalog}.ducklake_delete_file) AS f
    JOIN (SELECT DISTINCT t.table_id,
                 CASE WHEN NOT CAST(t.path_is_relative AS BOOLEAN) THEN t.path
                      WHEN NOT CAST(s.path_is_relative AS BOOLEAN) THEN s.path || t.path
                      ELSE m.value || s.path || t.path END AS path
          FROM {catalog}.ducklake_table AS t JOIN {catalog}.ducklake_schema AS s USING (schema_id)
          JOIN {catalog}.ducklake_metadata AS m ON m.key = 'data_path') AS home USING (table_id)
"""


@dataclass(frozen=True, slots=True)
class QueriedDuckLake:
    """Implements `headwater.lake.reading.QueriedLake`."""

    url: LakeUrl
    s3: S3 | None

    def prepare(self, con: duckdb.DuckDBPyConnection) -> None:
        load(con, "ducklake")

    def attach(self, con: duckdb.DuckDBPyConnection, alias: str) -> None:
        attach(con, self.url, alias, s3=self.s3, read_only=True)

    def undisturbed(self) -> AbstractContextManager[None]:
        return for_duckdb(self.url)

    def files(self, con: duckdb.DuckDBPyConnection, alias: str) -> list[str]:
        con.execute(f"FROM ducklake_current_snapshot({literal(alias)})")  # what is listed later is at least as new
        schema = self.url.schema if isinstance(self.url, PostgresUrl) else "main"
        catalog = f"{identifier(f'__ducklake_metadata_{alias}')}.{identifier(schema)}"
        return [path for (path,) in con.execute(_FILES.format(catalog=catalog)).fetchall()]
