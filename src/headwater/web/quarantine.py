"""A table's values in quarantine, as the lake has them now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.config import Config
from headwater.lake.quarantine import NAME
from headwater.lake.sqltext import identifier, literal
from headwater.query import query
from headwater.state import State, TableRow
from headwater.supervise.lakes import source_name

__all__ = ["quarantine_of"]

_NEWEST_FIRST = ", ".join(f"lpad(string_split(lsn, '/')[{part}], 8, '0') DESC" for part in (1, 2))


def quarantine_of(
    config: Config, env: Mapping[str, str], state: State, row: TableRow, most: int
) -> tuple[int, Sequence[Mapping[str, Any]]]:
    """How many of its values are in quarantine now, and the newest of them, asked of the lake."""
    group = state.group(row.group)
    if group is None or not row.quarantined:
        return 0, ()
    table = f"{identifier(config.groups[row.group].lake)}.{identifier(NAME.schema)}.{identifier(NAME.name)}"
    mine = (
        f"source = {literal(source_name(group.source_id, row.group))} AND table_oid = {row.oid}"
        " AND resolved_lsn IS NULL"
    )
    found = query(
        config,
        f"SELECT key, column_name, value, lsn, count(*) OVER () FROM {table} WHERE {mine}"
        f" ORDER BY {_NEWEST_FIRST}, column_name LIMIT {most:d}",
        env,
        as_text=True,
    )
    names = "key", "column", "value", "lsn"
    rows = [dict(zip(names, each[:4], strict=True)) | {"at": None} for each in found.rows]
    return (int(found.rows[0][4]) if found.rows else 0), rows
