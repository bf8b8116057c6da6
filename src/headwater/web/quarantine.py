"""A table's values in quarantine, as the lake has them now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.config import Config
from headwater.lake.quarantine import NAME
from headwater.lake.sqltext import identifier, literal
from headwater.query import query
from headwater.state import GroupRow, State, TableRow
from headwater.supervise.lakes import source_name

__all__ = ["quarantine_of", "unresolved_of"]

_NEWEST_FIRST = ", ".join(f"lpad(string_split(lsn, '/')[{part}], 8, '0') DESC" for part in (1, 2))


def quarantine_of(
    config: Config, env: Mapping[str, str], state: State, row: TableRow, most: int
) -> tuple[int, Sequence[Mapping[str, Any]]]:
    """How many of its values are in quarantine now, and the newest of them, asked of the lake."""
    group = state.group(row.group)
    if group is None or not row.quarantined:
        return 0, ()
    mine = f"{_unresolved(config, group)} AND table_oid = {row.oid}"
    found = query(
        config,
        f"SELECT key, column_name, value, lsn, count(*) OVER () {mine}"
        f" ORDER BY {_NEWEST_FIRST}, column_name LIMIT {most:d}",
        env,
        as_text=True,
    )
    names = "key", "column", "value", "lsn"
    rows = [dict(zip(names, each[:4], strict=True)) | {"at": None} for each in found.rows]
    return (int(found.rows[0][4]) if found.rows else 0), rows


def unresolved_of(config: Config, env: Mapping[str, str], group: GroupRow) -> Mapping[int, int]:
    """How many values of each of the group's tables are in quarantine now, by OID; those without any are left out."""
    found = query(config, f"SELECT table_oid, count(*) {_unresolved(config, group)} GROUP BY table_oid", env)
    return {int(oid): int(values) for oid, values in found.rows}


def _unresolved(config: Config, group: GroupRow) -> str:
    table = f"{identifier(config.groups[group.name].lake)}.{identifier(NAME.schema)}.{identifier(NAME.name)}"
    source = literal(source_name(group.source_id, group.name))
    return f"FROM {table} WHERE source = {source} AND resolved_lsn IS NULL"
