"""An Iceberg lake for people to query, through DuckDB's own extension: a view for each of the catalog's tables."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field

import duckdb
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from headwater.iceberg.catalog import open_catalog
from headwater.iceberg.credentials import s3_of_table
from headwater.iceberg.manifests import partition_of
from headwater.iceberg.partitions import misread_by_duckdb
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
                opened, data = _files_of(table), list(_data_files(table))
                self._files += [*opened, *(each.file_path for each in data)]
                if any(_is_misread(table, each) for each in data):
                    # Then DuckDB chooses files by what it filters: it must read them all, and filter afterwards.
                    con.execute("SET disabled_optimizers = 'filter_pushdown,join_filter_pushdown'")

    def undisturbed(self) -> AbstractContextManager[None]:
        return nullcontext()

    def files(self, con: duckdb.DuckDBPyConnection, alias: str) -> list[str]:  # noqa: ARG002
        return self._files


def _files_of(table: Table) -> Iterator[str]:
    """Every file of metadata that a reader of the newest snapshot opens."""
    yield table.metadata_location
    snapshot = table.metadata.current_snapshot()
    if snapshot is not None:
        yield snapshot.manifest_list
        yield from (each.manifest_path for each in snapshot.manifests(table.io))


def _data_files(table: Table) -> Iterator[DataFile]:
    """Its data files, and delete files."""
    snapshot = table.metadata.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        yield from (entry.data_file for entry in manifest.fetch_manifest_entry(table.io))


def _is_misread(table: Table, file: DataFile) -> bool:
    metadata = table.metadata
    return misread_by_duckdb(metadata.specs()[file.spec_id], metadata.schema(), partition_of(file))
