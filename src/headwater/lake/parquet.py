"""Parquet files of a lake: columns by field id, since names and types change. Light enough for Spark's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headwater.files import durable, inside
from headwater.lake.casting import FIELD_ID, fitted

__all__ = [
    "StoredColumn",
    "WrittenParquet",
    "field_id",
    "field_with_id",
    "in_order",
    "opened",
    "read_columns",
    "read_group",
    "read_rows",
    "write_parquet",
]

_ROW_GROUP = 122_880  # DuckDB's own; its threads share a file by row group


def field_with_id(name: str, type_: pa.DataType, id_: int, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, type_, nullable, {FIELD_ID: str(id_).encode()})


def field_id(field: pa.Field) -> int | None:
    found = (field.metadata or {}).get(FIELD_ID)
    return None if found is None else int(found)


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column to read: its name and type now, its name in the file, and what rows show if the file lacks it.

    `labelled`, if the file has no field ids of its own: its type there, with the ids that its parts have.
    """

    name: str
    type: pa.DataType
    stored: str | None
    initial: pa.Scalar | None = None
    labelled: pa.DataType | None = None

    def shown(self, found: pa.Table | None, rows: int) -> pa.Array:
        if self.stored is not None and found is not None:
            column = found.column(self.stored).combine_chunks()
            return fitted(column if self.labelled is None else fitted(column, self.labelled), self.type)
        return pa.nulls(rows, self.type) if self.initial is None else pa.repeat(self.initial, rows)


def opened(files: fs.FileSystem, path: str) -> pq.ParquetFile:
    return pq.ParquetFile(inside(path), filesystem=files, pre_buffer=False)


def read_columns(parquet: pq.ParquetFile, columns: Sequence[StoredColumn]) -> Iterator[tuple[int, list[pa.Array]]]:
    """The columns of a file in pieces: the number of a piece's first row, and an array for each column."""
    first = 0
    for group in range(parquet.num_row_groups):  # iter_batches allocates a whole batch, however few rows there are
        rows = parquet.metadata.row_group(group).num_rows
        yield first, read_group(parquet, group, columns)
        first += rows


def read_rows(parquet: pq.ParquetFile, columns: Sequence[StoredColumn], positions: npt.NDArray[np.int64]) -> pa.Table:
    """The rows with these ascending numbers: a column for each, under its present name."""
    schema = pa.schema([pa.field(column.name, column.type) for column in columns])
    starts = np.cumsum([0, *(parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups))])
    places = np.searchsorted(positions, starts)
    pieces = []
    for group in range(parquet.num_row_groups):
        wanted = positions[places[group] : places[group + 1]]
        if len(wanted):
            found = read_group(parquet, group, columns)
            within = pa.array(wanted - starts[group])
            pieces.append(pa.Table.from_arrays([column.take(within) for column in found], schema=schema))
    return pa.concat_tables(pieces) if pieces else schema.empty_table()


def read_group(parquet: pq.ParquetFile, group: int, columns: Sequence[StoredColumn]) -> list[pa.Array]:
    """An array for each column, with the rows of one row group."""
    rows = parquet.metadata.row_group(group).num_rows
    names = [column.stored for column in columns if column.stored is not None]
    found = parquet.read_row_group(group, columns=names, use_threads=False) if names else None
    return [column.shown(found, rows) for column in columns]


def in_order(rows: pa.Table, places: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """The rows at these places, a row group at a time: a sorted copy of all of them would need as much memory again."""
    for start in range(0, len(places), _ROW_GROUP):
        yield from rows.take(pa.array(places[start : start + _ROW_GROUP])).combine_chunks().to_batches()


class WrittenParquet(NamedTuple):
    rows: int
    size: int
    footer: pq.FileMetaData


def write_parquet(
    files: fs.FileSystem,
    path: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch] | pa.Table,
    also: Callable[[pa.Table], None] | None = None,
) -> WrittenParquet:
    """Write rows into a new file that survives a loss of power; columns are taken by name and cast to the schema.

    `also` gets to see each part as it is written.
    """
    rows = 0
    with durable(files, path) as sink:  # the catalog will refer to it
        with pq.ParquetWriter(
            sink, schema, compression="snappy", use_dictionary=_repeating(schema), store_schema=False
        ) as writer:
            for batch in [batches] if isinstance(batches, pa.Table) else batches:
                part = pa.Table.from_arrays(
                    [fitted(batch.column(field.name), field.type) for field in schema], schema=schema
                )
                if also is not None:
                    also(part)
                rows += part.num_rows
                writer.write_table(part, row_group_size=_ROW_GROUP)
        size = sink.tell()
    return WrittenParquet(rows, size, writer.writer.metadata)


def _repeating(schema: pa.Schema) -> list[str]:
    """Columns that get a dictionary. For others, trying one took half of the writing time and made files larger."""
    return [name for field in schema for name in _texts(field.name, field.type)]


def _texts(path: str, type_: pa.DataType) -> list[str]:
    if pa.types.is_list(type_):
        return _texts(f"{path}.list.element", type_.value_type)
    return [path] if pa.types.is_string(type_) or pa.types.is_binary(type_) else []
