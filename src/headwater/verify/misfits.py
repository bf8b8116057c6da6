"""A mirror's values in quarantine, each with the row it belongs to."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any, NoReturn

import duckdb
import pyarrow as pa

from headwater.lake import quarantine
from headwater.lake.sqltext import identifier
from headwater.values.keys import row_keys
from headwater.verify.pair import Pair

__all__ = ["is_json", "linked", "open_entries"]

_LINKED = pa.schema([("kh", pa.uint64()), ("key", pa.string()), ("name", pa.string()), ("value", pa.string())])


def open_entries(con: duckdb.DuckDBPyConnection, source: str) -> list[dict[str, Any]]:
    """What is in quarantine now, of all tables of a source: only unresolved values, which are few as a rule."""
    schema, name = map(identifier, quarantine.NAME)
    try:
        found = con.execute(
            "SELECT table_oid AS oid, row_key, CAST(key AS VARCHAR) AS key, column_number AS number, value"
            f" FROM lake.{schema}.{name} WHERE resolved_lsn IS NULL AND source = ?",
            [source],
        )
    except duckdb.CatalogException:  # there was no quarantine yet
        return []
    return list(found.to_arrow_table().to_pylist())


def linked(con: duckdb.DuckDBPyConnection, pair: Pair, entries: Sequence[dict[str, Any]]) -> pa.Table:
    """A pair's open entries, with the hash of the key (`Pair.key_hash`) of the row that lacks the value.

    It is null where there is no such row. Entries of columns that are gone do not count.
    """
    names = {column.attnum: column.name for column in pair.relation.columns}
    ours = [each for each in entries if each["oid"] == pair.relation.oid and each["number"] in names]
    ours = [each | {"name": names[each["number"]]} for each in ours]
    rows = _rows(con, pair, ours) if pair.key and ours else {}
    found = [
        {"kh": rows.get(each["row_key"]) if pair.key else 0, "key": each["key"] if pair.key else ""}
        | {"name": each["name"], "value": each["value"]}
        for each in ours
    ]
    return pa.Table.from_pylist(found, schema=_LINKED)


def _rows(con: duckdb.DuckDBPyConnection, pair: Pair, entries: list[dict[str, Any]]) -> dict[bytes, int]:
    """The hash of the key by the key as deliveries compare it, of the rows that the entries may belong to."""
    sought = {each["row_key"] for each in entries}
    kinds = {pair.relation.columns[index].name: pair.kinds[index] for index in pair.key}
    found: dict[bytes, int] = {}
    for batch in con.execute(pair.keys(sorted({each["name"] for each in entries}))).to_arrow_reader(65536):
        rows = pa.Table.from_batches([batch])
        for index, kind in enumerate(kinds.values()):
            if kind.logical == "uuid":
                texts = rows.column(index).cast(pa.string()).to_pylist()
                rows = rows.set_column(index, rows.column_names[index], pa.array([uuid.UUID(t).bytes for t in texts]))
        keys = row_keys(rows.rename_columns([*kinds, "kh"]), kinds).to_pylist()
        found |= {key: value for key, value in zip(keys, rows.column("kh").to_pylist(), strict=True) if key in sought}
    return found


def is_json(text: str) -> bool:
    """Whether a text that the user calls json is; DuckDB's own rule lets more pass."""
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)
