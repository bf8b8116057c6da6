"""The contents of live data files: columns by field id, in their present types, however old the file is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headwater.ducklake.model import Field, LiveFile, RowNumbers
from headwater.ducklake.texts import value_of
from headwater.ducklake.writing import plain_type
from headwater.lake import parquet
from headwater.lake.parquet import StoredColumn

__all__ = ["read_columns", "read_rows"]


def read_columns(files: fs.FileSystem, file: LiveFile, fields: Sequence[Field]) -> Iterator[tuple[int, list[pa.Array]]]:
    """The columns of a file in pieces: the number of a piece's first row, and an array of `plain_type` for each column.

    Deleted rows are included. A column that the file is too old to have shows its initial default.
    """
    with parquet.opened(files, file.path) as opened:
        yield from parquet.read_columns(opened, _stored(opened, file, fields))


def read_rows(files: fs.FileSystem, file: LiveFile, fields: Sequence[Field], positions: RowNumbers) -> pa.Table:
    """The rows with these ascending numbers: a column for each field under its present name, as in `read_columns`."""
    with parquet.opened(files, file.path) as opened:
        return parquet.read_rows(opened, _stored(opened, file, fields), positions)


def _stored(opened: pq.ParquetFile, file: LiveFile, fields: Sequence[Field]) -> list[StoredColumn]:
    return [
        StoredColumn(field.name, plain_type(field), name, _initial(field))
        for field, name in zip(fields, _names(opened, file, fields), strict=True)
    ]


def _names(opened: pq.ParquetFile, file: LiveFile, fields: Sequence[Field]) -> list[str | None]:
    """The names of these columns in the file, None for a missing one: by field id, since names change; else by name."""
    schema = opened.schema_arrow
    by_id = {parquet.field_id(field): field.name for field in schema}
    if file.mapping_id is None and set(by_id) != {None}:
        return [by_id.get(field.id) for field in fields]
    names = [file.names.get(field.id) if file.mapping_id is not None else field.name for field in fields]
    return [name if name in schema.names else None for name in names]


def _initial(field: Field) -> pa.Scalar | None:
    if field.initial_default is None:
        return None
    return value_of(field.initial_default, field.type, plain_type(field))
