"""What Spark's workers do to merge files: read what is alive in them, sort it by the key, write it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from headwater import failpoints
from headwater.files import S3, filesystem
from headwater.iceberg.model import LiveFile, NewFile
from headwater.iceberg.packing import FULL, Bin
from headwater.iceberg.writing import DataFolder, deleted_positions, write_data_file
from headwater.lake import parquet
from headwater.lake.packing import MERGED_BYTES
from headwater.sink.iceberg.target import stored_columns

__all__ = ["IcebergMergeWriter", "Merged", "read_merged"]


@dataclass(frozen=True, slots=True)
class Merged:
    """The files of a bin, and those that have their rows now: one, unless the rows are large; none if all are gone."""

    bin: Bin
    files: tuple[NewFile, ...]


def read_merged(report: bytes) -> Merged:
    found = pickle.loads(report)
    assert isinstance(found, Merged)
    return found


@dataclass(frozen=True, slots=True)
class IcebergMergeWriter:
    """Implements `headwater.lake.maintenance.MergeWriter`."""

    location: str
    schema: Schema
    key: Sequence[str]  # the columns to sort by
    ordered: bool  # whether the table's sort order is by the key
    attempt: str
    s3: S3 | None = None

    def write(self, bin: Bin) -> bytes:
        held: list[pa.Table] = []
        written: list[NewFile] = []
        for each in bin.files:
            held.append(self._alive(each))
            if sum(table.nbytes for table in held) > MERGED_BYTES:
                written.append(self._write(bin, held, FULL))
                held = []
        failpoints.hit("maintain.read")
        if any(table.num_rows for table in held):
            written.append(self._write(bin, held))
        return pickle.dumps(Merged(bin, tuple(written)))

    def _write(self, bin: Bin, held: Sequence[pa.Table], kind: str = "") -> NewFile:
        rows: pa.Table | Iterator[pa.RecordBatch] = pa.concat_tables(held)
        if self.key:
            order = pc.sort_indices(rows, [(name, "ascending") for name in self.key]).to_numpy()
            rows = parquet.in_order(rows, np.asarray(order, np.int64))
        where = DataFolder(filesystem(self.location, self.s3), self.location, self.attempt)
        file = write_data_file(where, rows, self.schema, bin.spec_id, bin.partition, kind)
        return replace(file, sorted=self.ordered)

    def _alive(self, file: LiveFile) -> pa.Table:
        files = filesystem(file.path, self.s3)
        gone = deleted_positions(files, file)
        alive = np.setdiff1d(np.arange(file.rows), gone, assume_unique=True)
        with parquet.opened(files, file.path) as opened:
            return parquet.read_rows(opened, stored_columns(opened, self.schema.fields), alive)
