"""Data files of a lake: Parquet with field ids, written with pyarrow. Light enough for Spark's workers."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headwater.ducklake.model import DataFile, Field
from headwater.ducklake.stats import Leaf, StatsCollector
from headwater.errors import TableError
from headwater.files import folder
from headwater.lake.casting import plain
from headwater.lake.parquet import field_with_id, write_parquet

__all__ = [
    "ROW_ID",
    "ROW_ID_FIELD",
    "SNAPSHOT_ID",
    "SNAPSHOT_ID_FIELD",
    "TableFolder",
    "arrow_type",
    "footer_size",
    "parquet_schema",
    "plain_type",
    "write_data_file",
]

ROW_ID = "_ducklake_internal_row_id"  # of updated rows: they keep the id of the row they replace
ROW_ID_FIELD = 2147483540
SNAPSHOT_ID = "_ducklake_internal_snapshot_id"  # in files that hold rows, or deletes, of several snapshots
SNAPSHOT_ID_FIELD = 2147483539

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TYPES = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "varchar": pa.string(),
    "json": pa.json_(pa.string()),
    "blob": pa.binary(),
    "uuid": pa.uuid(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}


@lru_cache(maxsize=4096)  # asked for each column of each table, several times in a delivery
def arrow_type(field: Field) -> pa.DataType:
    """The Arrow type from which DuckLake's type is written, with the field ids of nested columns."""
    children = [field_with_id(child.name, arrow_type(child), child.id) for child in field.children]
    match field.type:
        case "list":
            return pa.list_(children[0].with_name("element"))
        case "map":
            return pa.map_(children[0].with_nullable(False), children[1])
        case "struct":
            return pa.struct(children)
    if decimal := _DECIMAL.fullmatch(field.type):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if field.type not in _TYPES:
        raise TableError(
            f"column {field.name!r} has the type {field.type!r}, which Headwater does not write",
            hint="another client added it: drop the column in the lake, or keep it in a separate table",
        )
    return _TYPES[field.type]


@lru_cache(maxsize=4096)
def plain_type(field: Field) -> pa.DataType:
    """The Arrow type a column is read as: no extension types, so a uuid is 16 bytes and a json is text."""
    return plain(arrow_type(field))


@lru_cache(maxsize=1024)  # a delivery asks for it several times for each of its tables
def parquet_schema(fields: tuple[Field, ...], *, with_row_ids: bool = False, with_snapshots: bool = False) -> pa.Schema:
    """The schema of a data file; the columns of row ids and of snapshots, if it has them, come last."""
    columns = [field_with_id(field.name, arrow_type(field), field.id) for field in fields]
    if with_row_ids:
        columns.append(field_with_id(ROW_ID, pa.int64(), ROW_ID_FIELD))
    if with_snapshots:
        columns.append(field_with_id(SNAPSHOT_ID, pa.int64(), SNAPSHOT_ID_FIELD))
    return pa.schema(columns)


@dataclass(frozen=True, slots=True)
class TableFolder:
    """Where new files of a table go, and the attempt whose name they carry. `path` is absolute and ends in `/`.

    `below` is the folder in it that files of one partition are in, relative to it; it ends in `/` too.
    """

    files: fs.FileSystem
    path: str
    attempt: str = ""
    below: str = ""

    def new_name(self, kind: str = "") -> str:
        """A name for a new file, by which `attempts` knows whose it is."""
        return f"headwater-{self.attempt or uuid.uuid4().hex}-{uuid.uuid4().hex}{kind}.parquet"


def write_data_file(
    where: TableFolder,
    batches: Iterable[pa.RecordBatch] | pa.Table,
    fields: Sequence[Field],
    *,
    with_row_ids: bool = False,
    with_snapshots: bool = False,
    kind: str = "",
) -> DataFile:
    """Write rows into a new file in the table's folder; columns are taken by name and cast to `parquet_schema`.

    New rows and updated rows belong in different files: an updated row carries the id of the row it replaces, a new
    row gets its id at the commit, from its place in the file. With snapshots, each row says which one made it. `kind`
    becomes part of the file's name.
    """
    name = where.below + where.new_name(kind)
    schema = parquet_schema(tuple(fields), with_row_ids=with_row_ids, with_snapshots=with_snapshots)
    stats = StatsCollector(fields)
    written = write_parquet(
        where.files,
        folder(where.files, where.path + where.below) + name.removeprefix(where.below),
        schema,
        batches,
        stats.add,
    )
    found = stats.finish(_leaves(written.footer))
    return DataFile(name, written.rows, written.size, footer_size(written.footer), found, with_row_ids)


def footer_size(footer: pq.FileMetaData) -> int:
    """The length of the footer in its file. The writer's metadata says 0, which makes files unreadable."""
    copy = pa.BufferOutputStream()
    footer.write_metadata_file(copy)
    return len(copy.getvalue()) - 12  # two magic words and the length itself


def _leaves(footer: pq.FileMetaData) -> dict[str, Leaf]:
    """The leaf columns in the footer, by their paths."""
    leaves: dict[str, Leaf] = {}
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for index in range(footer.num_columns):
            column = row_group.column(index)
            size, values = leaves.get(column.path_in_schema, Leaf(0, 0))
            leaves[column.path_in_schema] = Leaf(size + column.total_compressed_size, values + column.num_values)
    return leaves
