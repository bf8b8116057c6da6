"""Values that a lake's types cannot hold: null in their row, and kept here in full, in the same lake and commit."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.change import Lsn, TableName
from headwater.decode import Bad

__all__ = ["FIELDS", "NAME", "SCHEMA", "key_texts", "quarantined", "resolved"]

NAME = TableName("main", "headwater_quarantine")
_TEXT = pa.large_string()
FIELDS = (  # name, how it travels, what it is in the lake
    ("table_oid", pa.int64(), "int64"),
    ("table_name", _TEXT, "varchar"),
    ("key", _TEXT, "json"),  # the row's key, by column
    ("column_name", _TEXT, "varchar"),
    ("value", _TEXT, "varchar"),  # as PostgreSQL prints it
    ("lsn", _TEXT, "varchar"),  # of the commit that brought it
    ("row_key", pa.large_binary(), "blob"),  # the key as deliveries compare it
    ("resolved_lsn", _TEXT, "varchar"),  # by when the value was overwritten or its row deleted
)
SCHEMA = pa.schema([pa.field(name, arrow) for name, arrow, _ in FIELDS])


def quarantined(
    table: tuple[int, str],
    rows: pa.Table,
    key: Sequence[str],
    bad: Mapping[str, Sequence[Bad]],
    lsns: npt.NDArray[np.int64] | Lsn,
    row_keys: pa.Array | None = None,
) -> pa.Table:
    """The rows of the quarantine for what is `bad` among `rows`; `table` is OID and name, `lsns` one for each row."""
    oid, name = table
    found = [(each, column) for column, values in bad.items() for each in values]
    columns = {
        "table_oid": [oid] * len(found),
        "table_name": [name] * len(found),
        "key": key_texts(rows.take(pa.array([each.row for each, _ in found], pa.int64())), key),
        "column_name": [column for _, column in found],
        "value": [each.text for each, _ in found],
        "lsn": [str(lsns if isinstance(lsns, Lsn) else Lsn(int(lsns[each.row]))) for each, _ in found],
        "row_key": [None if row_keys is None else row_keys[each.row].as_py() for each, _ in found],
        "resolved_lsn": [None] * len(found),
    }
    return pa.table(columns, schema=SCHEMA)


def key_texts(rows: pa.Table, key: Sequence[str]) -> list[str | None]:
    """Each row's key as a JSON object; None if the table has no key."""
    if not key:
        return [None] * rows.num_rows
    values = zip(*(_plain(rows[name]) for name in key), strict=True)
    return [json.dumps(dict(zip(key, each, strict=True)), default=str) for each in values]


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """The values as people know them; Python has no moments far from now, so these are spelled by Arrow."""
    kind = column.type
    values: list[Any] = (column.cast(pa.string()) if pa.types.is_temporal(kind) else column).to_pylist()
    if pa.types.is_fixed_size_binary(kind):
        return [each and str(uuid.UUID(bytes=each)) for each in values]
    if pa.types.is_large_binary(kind) or pa.types.is_binary(kind):
        return [each if each is None else "\\x" + each.hex() for each in values]
    return values


def resolved(rows: pa.Table, at: Lsn) -> pa.Table:
    """Rows of the quarantine, settled by this position."""
    index = rows.schema.get_field_index("resolved_lsn")
    upto = pa.array([str(at)] * rows.num_rows, rows.schema.field(index).type)
    return rows.set_column(index, rows.schema.field(index), upto)
