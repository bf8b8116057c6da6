"""Data files and position delete files of a table, written with pyarrow. Light enough for Spark's workers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pyiceberg.schema import Schema

from headwater.files import folder
from headwater.iceberg.metrics import Metrics, MetricsCollector
from headwater.iceberg.model import DELETED_PATH, DELETED_POSITION, LiveFile, NewFile, Partition, RowNumbers
from headwater.iceberg.types import arrow_schema
from headwater.lake.parquet import field_with_id, opened, write_parquet

__all__ = ["DataFolder", "deleted_positions", "write_data_file", "write_delete_file"]

_DELETES = pa.schema(
    [
        field_with_id("file_path", pa.string(), DELETED_PATH, nullable=False),
        field_with_id("pos", pa.int64(), DELETED_POSITION, nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Where new files of a table go, and the attempt whose name they carry."""

    files: fs.FileSystem
    location: str  # the table's
    attempt: str

    def new_path(self, kind: str = "") -> str:
        """A path for a new file, by which `attempts` knows whose it is."""
        return f"{self.location}/data/headwater-{self.attempt}-{uuid.uuid4().hex}{kind}.parquet"

    def inside(self, path: str) -> str:
        """The path as the filesystem wants it; its folder exists after that."""
        above, name = path.rsplit("/", 1)
        return folder(self.files, f"{above}/") + name


def write_data_file(
    where: DataFolder,
    rows: Iterable[pa.RecordBatch] | pa.Table,
    schema: Schema,
    spec_id: int = 0,
    partition: Partition = (),
    kind: str = "",
) -> NewFile:
    """Write rows, all of one partition, into a new file; columns are taken by name."""
    path, metrics = where.new_path(kind), MetricsCollector(schema)
    done = write_parquet(where.files, where.inside(path), arrow_schema(schema), rows, metrics.add)
    return NewFile("rows", path, done.rows, done.size, metrics.finish(), spec_id, partition)


def write_delete_file(where: DataFolder, live: LiveFile, positions: RowNumbers) -> NewFile:
    """Write the ascending positions of rows that are deleted from one data file."""
    path, count = where.new_path("-deletes"), len(positions)
    rows = pa.table([pa.repeat(live.path, count), pa.array(positions, pa.int64())], schema=_DELETES)
    done = write_parquet(where.files, where.inside(path), _DELETES, rows)
    exact = {DELETED_PATH: live.path.encode()}  # in full: readers then know that no other file is concerned
    counts = {DELETED_PATH: count, DELETED_POSITION: count}
    metrics = Metrics(values=counts, nulls=dict.fromkeys(counts, 0), lower=exact, upper=exact)
    return NewFile("deletes", path, count, done.size, metrics, live.spec_id, live.partition, of=live.path)


def deleted_positions(files: fs.FileSystem, live: LiveFile) -> RowNumbers:
    """The numbers of a file's deleted rows, ascending."""
    found = [_positions(files, each.path, live.path) for each in live.deletes]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _positions(files: fs.FileSystem, path: str, of: str) -> RowNumbers:
    with opened(files, path) as parquet:
        found = parquet.read(["file_path", "pos"], use_threads=False)
    positions: RowNumbers = found.filter(pc.equal(found["file_path"], of))["pos"].to_numpy()
    return positions
