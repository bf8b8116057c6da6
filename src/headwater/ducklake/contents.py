"""The contents of live data files: columns by field id, in their present types, however old the file is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headwater.ducklake.casting import fitted
from headwater.ducklake.model import Field, LiveFile, RowNumbers
from headwater.ducklake.texts import value_of
from headwater.ducklake.writing import plain_type
from headwater.files import inside

__all__ = ["read_columns", "read_rows"]


def read_columns(files: fs.FileSystem, file: LiveFile, fields: Sequence[Field]) -> Iterator[tuple[int, list[pa.Array]]]:
    """The columns of a file in pieces: the number of a piece's first row, and an array of `plain_type` for each column.

    Deleted rows are included. A column that the file is too old to have shows its initial default.
    """
    with _opened(files, file) as parquet:
        reader = _Reader(parquet, file, fields)
        first = 0
        for group in range(parquet.num_row_groups):  # iter_batches allocates a whole batch, however few rows there are
            rows = parquet.metadata.row_group(group).num_rows
            yield first, reader.read(group, rows)
            first += rows


def read_rows(files: fs.FileSystem, file: LiveFile, fields: Sequence[Field], positions: RowNumbers) -> pa.Table:
    """The rows with these ascending numbers: a column for each field under its present name, as in `read_columns`."""
    schema = pa.schema([pa.field(field.name, plain_type(field)) for field in fields])
    pieces = []
    with _opened(files, file) as parquet:
        reader = _Reader(parquet, file, fields)
        starts = np.cumsum([0, *(parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups))])
        places = np.searchsorted(positions, starts)
        for group in range(parquet.num_row_groups):
            wanted = positions[places[group] : places[group + 1]]
            if len(wanted):
                columns = reader.read(group, int(starts[group + 1] - starts[group]))
                within = pa.array(wanted - starts[group])
                pieces.append(pa.Table.from_arrays([column.take(within) for column in columns], schema=schema))
    return pa.concat_tables(pieces) if pieces else schema.empty_table()


def _opened(files: fs.FileSystem, file: LiveFile) -> pq.ParquetFile:
    return pq.ParquetFile(inside(file.path), filesystem=files, pre_buffer=False)


class _Reader:
    def __init__(self, parquet: pq.ParquetFile, file: LiveFile, fields: Sequence[Field]) -> None:
        self._parquet = parquet
        self._fields = list(zip(fields, _names(parquet, file, fields), map(plain_type, fields), strict=True))
        self._wanted = [name for _, name, _ in self._fields if name is not None]

    def read(self, group: int, rows: int) -> list[pa.Array]:
        found = self._parquet.read_row_group(group, columns=self._wanted, use_threads=False) if self._wanted else None
        return [
            _initial(field, type_, rows)
            if name is None or found is None
            else fitted(found.column(name).combine_chunks(), type_)
            for field, name, type_ in self._fields
        ]


def _names(parquet: pq.ParquetFile, file: LiveFile, fields: Sequence[Field]) -> list[str | None]:
    """The names of these columns in the file, None for a missing one: by field id, since names change; else by name."""
    schema = parquet.schema_arrow
    by_id = {(field.metadata or {}).get(b"PARQUET:field_id"): field.name for field in schema}
    if file.mapping_id is None and set(by_id) != {None}:
        return [by_id.get(str(field.id).encode()) for field in fields]
    names = [file.names.get(field.id) if file.mapping_id is not None else field.name for field in fields]
    return [name if name in schema.names else None for name in names]


def _initial(field: Field, type_: pa.DataType, rows: int) -> pa.Array:
    if field.initial_default is None:
        return pa.nulls(rows, type_)
    return pa.repeat(value_of(field.initial_default, field.type, type_), rows)
