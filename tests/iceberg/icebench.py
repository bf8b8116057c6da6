"""An Iceberg table changed by hand through `headwater.iceberg`, and read back by PyIceberg and by DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import fs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from headwater.change import TableName
from headwater.iceberg.catalog import IcebergCatalog, open_catalog
from headwater.iceberg.files import live_files
from headwater.iceberg.manifests import ManifestCache
from headwater.iceberg.model import LiveFile, NewFile
from headwater.iceberg.snapshots import FileChanges, next_snapshot
from headwater.iceberg.writing import DataFolder, write_data_file, write_delete_file

__all__ = ["IceBench", "T"]

T = TableName("db", "t")
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "v", StringType(), required=False))
Row = tuple[int, str]


class IceBench:
    def __init__(self, folder: Path, duck: duckdb.DuckDBPyConnection) -> None:
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/ice.sqlite", "warehouse": str(folder / "wh")}
        self.catalog: IcebergCatalog = open_catalog(self.properties, frozenset(), create=True)
        self.stock: Catalog = load_catalog("default", **self.properties)  # as another client has it
        self.stock.create_namespace("db")
        self.table: Table = self.stock.create_table(tuple(T), SCHEMA, properties={"format-version": "2"})
        self.cache = ManifestCache()
        self._duck = duck

    def commit(self, changes: FileChanges, **properties: str) -> int:
        snapshot = next_snapshot(self.table, self.table.schema(), changes, properties, self.cache)
        self.table = self.catalog.commit(self.table, snapshot.requirements, snapshot.updates)
        return snapshot.id

    def change(self, insert: Sequence[Row] = (), delete: Iterable[int] = (), **properties: str) -> int:
        """One snapshot: rows inserted, and the rows with these ids deleted by their positions."""
        added = [self.written(insert)] if insert else []
        return self.commit(FileChanges([*added, *self.deleted(set(delete))]), **properties)

    def written(self, rows: Sequence[Row]) -> NewFile:
        columns = [pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows], pa.string())]
        return write_data_file(self.folder, pa.table(columns, names=["id", "v"]), self.table.schema())

    def deleted(self, ids: set[int]) -> list[NewFile]:
        found = []
        for live in self.live() if ids else []:
            here = pa.parquet.read_table(live.path)["id"].to_pylist()
            at = np.array([index for index, id_ in enumerate(here) if id_ in ids], np.int64)
            if len(at):
                found.append(write_delete_file(self.folder, live, at))
        return found

    @property
    def folder(self) -> DataFolder:
        return DataFolder(fs.LocalFileSystem(), self.table.metadata.location, "a" * 32)

    def live(self) -> list[LiveFile]:
        return live_files(self.table, self.cache)

    def refresh(self) -> None:
        found = self.catalog.load(T)
        assert found is not None
        self.table = found

    def rows(self, snapshot: int | None = None) -> list[Row]:
        """The rows, on which PyIceberg and DuckDB agree."""
        table = self.stock.load_table(tuple(T))
        theirs = table.scan(snapshot_id=snapshot).to_arrow()
        found = sorted(tuple(row.values()) for row in theirs.to_pylist())
        at = "" if snapshot is None else f", snapshot_from_id => {snapshot}"
        read: list[Any] = self._duck.execute(
            f"FROM iceberg_scan('{table.metadata_location}'{at}) ORDER BY ALL"
        ).fetchall()
        assert read == found
        return found

    def manifests(self) -> int:
        snapshot = self.table.metadata.current_snapshot()
        assert snapshot is not None
        return len(snapshot.manifests(self.table.io))
