"""An Iceberg lake for people to query, through DuckDB's own extension: a view for each of the catalog's tables."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import duckdb
from pyiceberg.table import Table

from headwater.iceberg.catalog import open_catalog
from headwater.iceberg.credentials import s3_of_table
from headwater.sink.iceberg.reader import ReadTable, attach_tables, create_view, load_iceberg
from headwater.sink.iceberg.standing import SOURCE

__all__ = ["QueriedIceberg"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class QueriedIceberg:
    """Implements `headwater.lake.reading.QueriedLake`."""

    properties: Mapping[str, str]
    secrets: frozenset[str]
    _files: list[str] = field(default_factory=list)

    def prepare(self, con: duckdb.DuckDBPyConnection) -> None:
        load_iceberg(con)

    def attach(self, con: duckdb.DuckDBPyConnection, alias: str) -> None:
        with closing(open_catalog(self.properties, self.secrets, create=False)) as catalog:
            _, names = catalog.names()
            found = {name: table for name in names if (table := catalog.load(name)) is not None}
        read = {name: ReadTable(each.metadata_location, None, s3_of_table(each)) for name, each in found.items()}
        attach_tables(con, alias, read.values())
        # Mirrors first: DuckDB would not distinguish another client's table whose name differs in case only.
        for name, table in sorted(found.items(), key=lambda each: SOURCE not in each[1].metadata.properties):
            try:
                create_view(con, alias, name, read[name])
            except duckdb.Error as error:
                logger.warning("table %s of the lake cannot be queried: %s", name, str(error).partition("\n")[0])
            else:
                self._files += _files_of(table)

    def files(self, con: duckdb.DuckDBPyConnection, alias: str) -> list[str]:  # noqa: ARG002
        return self._files


def _files_of(table: Table) -> Iterator[str]:
    """Every file that a reader of the newest snapshot opens."""
    yield table.metadata_location
    snapshot = table.metadata.current_snapshot()
    if snapshot is None:
        return
    yield snapshot.manifest_list
    for manifest in snapshot.manifests(table.io):
        yield manifest.manifest_path
        yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))
