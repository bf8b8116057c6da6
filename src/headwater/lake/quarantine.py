"""Values that a lake's types cannot hold: null in their row, and kept here in full, in the same lake and commit."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.change import Position, TableName
from headwater.lake.target import SETTLED, Place, Target
from headwater.values.decode import Bad
from headwater.values.types import LakeType

__all__ = [
    "FIELDS",
    "KNOWN_BY",
    "NAME",
    "SCHEMA",
    "Changes",
    "Entry",
    "Origin",
    "key_texts",
    "quarantined",
    "rewritten",
    "settled_by",
    "unresolved",
]

NAME = TableName("main", "headwater_quarantine")
_TEXT = LakeType("text", pa.large_string(), "string")
_INTEGER = LakeType("bigint", pa.int64(), "int64")
FIELDS = {
    "source": _TEXT,  # whose OIDs these are, as the lake's positions name it
    "table_oid": _INTEGER,
    "table_name": _TEXT,
    "key": LakeType("json", pa.large_string(), "json"),  # the row's key, by column
    "column_number": _INTEGER,  # PostgreSQL's: it survives a rename
    "column_name": _TEXT,
    "value": _TEXT,  # as PostgreSQL prints it
    "lsn": _TEXT,  # of the commit that brought it
    "row_key": LakeType("bytea", pa.large_binary(), "binary"),  # the key as deliveries compare it
    "resolved_lsn": _TEXT,  # by when the value was overwritten, or its row or its column was gone
}
KNOWN_BY = ("source", "table_oid", "row_key", "column_number", "resolved_lsn")
SCHEMA = pa.schema([pa.field(name, kind.arrow) for name, kind in FIELDS.items()])

Changes = Mapping[str, Any]  # what becomes of an entry's columns


class Origin(NamedTuple):
    """The table that values come from; `numbers` are those of its columns, by name."""

    source: str
    oid: int
    name: str
    numbers: Mapping[str, int]


class Entry(NamedTuple):
    """A value in quarantine: its table, its row, and its column's number."""

    oid: int
    row_key: bytes | None
    column: int


def settled_by(position: Position) -> Changes:
    """By this position the value was overwritten, or its row is gone, or its column."""
    return {"resolved_lsn": str(position)}


def quarantined(
    origin: Origin,
    rows: pa.Table,
    key: Sequence[str],
    bad: Mapping[str, Sequence[Bad]],
    brought_by: Callable[[int], Position],
    row_keys: pa.Array | None = None,
) -> pa.Table:
    """The rows of the quarantine for what is `bad` among `rows`, by column; `brought_by` has the commit of a row."""
    found = [(each, column) for column, values in bad.items() for each in values]
    columns = {
        "source": [origin.source] * len(found),
        "table_oid": [origin.oid] * len(found),
        "table_name": [origin.name] * len(found),
        "key": key_texts(rows.take(pa.array([each.row for each, _ in found], pa.int64())), key),
        "column_number": [origin.numbers[column] for _, column in found],
        "column_name": [column for _, column in found],
        "value": [each.text for each, _ in found],
        "lsn": [str(brought_by(each.row)) for each, _ in found],
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


def unresolved(target: Target[Any], place: Place, oids: Collection[int]) -> Iterator[tuple[int, Entry]]:
    """The entries of these tables in one of the quarantine's files that are not settled, by ascending position."""
    gone = target.gone(place)
    for first, (source, oid, row_key, column, settled) in target.keys(place):
        ours = pc.and_(pc.equal(source, target.source), pc.is_in(oid, pa.array(list(oids), oid.type)))
        at = np.flatnonzero(pc.and_(ours, pc.is_null(settled)).fill_null(False).to_numpy(zero_copy_only=False))
        at = at[~np.isin(at + first, gone)]
        entries = (each.take(pa.array(at)).to_pylist() for each in (oid, row_key, column))
        yield from zip((at + first).tolist(), map(Entry._make, zip(*entries, strict=True)), strict=True)


def rewritten(target: Target[Any], place: Place, changes: Mapping[int, Changes]) -> Iterator[bytes]:
    """Change entries of one file, by ascending position; yields the lake's reports."""
    at = pa.array(list(changes), pa.int64())
    taken = target.take_out(place, at)
    if taken is not None:
        yield taken.report
        yield from target.write(SETTLED, [(_changed(target.rows(place, at), list(changes.values())), taken.row_ids)])


def _changed(rows: pa.Table, changes: list[Changes]) -> pa.Table:
    for name in {name for change in changes for name in change}:
        at = rows.schema.get_field_index(name)
        field, values = rows.schema.field(at), rows[name].to_pylist()
        new = [change.get(name, value) for change, value in zip(changes, values, strict=True)]
        rows = rows.set_column(at, field, pa.array(new, field.type))
    return rows
