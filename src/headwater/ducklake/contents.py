"""The contents of live data files: columns by field id, in their present types, however old the file is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headwater.ducklake.model import Field, RowNumbers
from headwater.ducklake.texts import value_of
from headwater.ducklake.writing import plain_type
from headwater.lake import parquet
from headwater.lake.parquet import StoredColumn

__all__ = ["Stored", "initial_value", "read_columns", "read_rows", "stored_columns"]

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class Stored(Protocol):
    """A data file, and what its columns are called there if it has no field ids, unless their value is in its path."""

    @property
    def path(self) -> str: ...
    @property
    def mapping_id(self) -> int | None: ...
    @property
    def names(self) -> Mapping[int, str]: ...
    @property
    def in_path(self) -> frozenset[int]: ...


def read_columns(files: fs.FileSystem, file: Stored, fields: Sequence[Field]) -> Iterator[tuple[int, list[pa.Array]]]:
    """The columns of a file in pieces: the number of a piece's first row, and an array of `plain_type` for each column.

    Deleted rows are included. A column that the file is too old to have shows its initial default.
    """
    with parquet.opened(files, file.path) as opened:
        yield from parquet.read_columns(opened, stored_columns(opened, file, fields))


def read_rows(files: fs.FileSystem, file: Stored, fields: Sequence[Field], positions: RowNumbers) -> pa.Table:
    """The rows with these ascending numbers: a column for each field under its present name, as in `read_columns`."""
    with parquet.opened(files, file.path) as opened:
        return parquet.read_rows(opened, stored_columns(opened, file, fields), positions)


def stored_columns(opened: pq.ParquetFile, file: Stored, fields: Sequence[Field]) -> list[StoredColumn]:
    """These columns as they are to be read from the file."""
    schema = opened.schema_arrow
    by_id = {parquet.field_id(field): field.name for field in schema}
    if file.mapping_id is None and set(by_id) != {None}:
        return [_column(field, by_id.get(field.id)) for field in fields]
    return [_named(schema, file, field) for field in fields]


def _column(field: Field, stored: str | None, labelled: pa.DataType | None = None) -> StoredColumn:
    return StoredColumn(field.name, plain_type(field), stored, initial_value(field), labelled)


def _named(schema: pa.Schema, file: Stored, field: Field) -> StoredColumn:
    """A column of a file without field ids: by its name in the mapping, or else by its name now."""
    if field.id in file.in_path:
        return StoredColumn(field.name, plain_type(field), None, _value_in_path(file, field))
    name = file.names.get(field.id) if file.mapping_id is not None else field.name
    if name not in schema.names:
        return _column(field, None)
    labelled = _labelled(schema.field(name).type, field, file.names) if field.children else None
    return _column(field, name, labelled)


def _labelled(type_: pa.DataType, field: Field, names: Mapping[int, str]) -> pa.DataType:
    """The type of a nested column in the file, with the field ids that its parts have by the mapping."""
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_labelled(type_.value_type, field.children[0], names)))
    if pa.types.is_map(type_):
        item = _labelled(type_.item_type, field.children[1], names)
        return pa.map_(type_.key_field, type_.item_field.with_type(item))
    if not pa.types.is_struct(type_):
        return type_
    children = {names.get(child.id, child.name): child for child in field.children}
    return pa.struct([_labelled_part(each, children.get(each.name), names) for each in type_])


def _labelled_part(part: pa.Field, field: Field | None, names: Mapping[int, str]) -> pa.Field:
    if field is None:
        return part
    return parquet.field_with_id(part.name, _labelled(part.type, field, names), field.id, nullable=part.nullable)


def _value_in_path(file: Stored, field: Field) -> pa.Scalar | None:
    """A value from a path such as `.../country=NO/part.parquet`."""
    parts = dict(part.split("=", 1) for part in file.path.split("/") if "=" in part)
    text = unquote(parts.get(file.names[field.id], _NO_VALUE))
    return None if text == _NO_VALUE else value_of(text, field.type, plain_type(field))


def initial_value(field: Field) -> pa.Scalar | None:
    """What rows show that are older than the column."""
    if field.initial_default is None:
        return None
    return value_of(field.initial_default, field.type, plain_type(field))
