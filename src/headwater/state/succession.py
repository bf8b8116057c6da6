"""When a source table is gone: it was dropped, or another one has its name and replaces it in the lake."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict

from psycopg.types.json import Jsonb

from headwater.change import Lsn, TableName
from headwater.errors import TableError
from headwater.postgres.connect import Connection
from headwater.state.rows import TableRow
from headwater.state.store import State
from headwater.state.tables import apply
from headwater.state.transitions import Displaced, Removed, TableDropped, TookOver

__all__ = ["add_successor", "dropped_error", "leave", "note_dropped", "reassign", "reclaim", "take_over"]

_logger = logging.getLogger(__name__)


def dropped_error(row: TableRow, lsn: Lsn) -> TableError:
    return TableError(
        f"table {str(row.source)!r} was dropped in the source before {lsn}; its mirror {row.lake} stays as it is",
        hint="take it out of the config, or create it again: it is then copied in the mirror's place",
    )


def note_dropped(state: State, row: TableRow, lsn: Lsn) -> None:
    """Note that the source has no such table any more. What is staged of it is delivered first, if it can be."""
    state.record(row.group, row.oid, TableDropped(lsn, str(dropped_error(row, row.dropped_lsn or lsn))))


def leave(state: State, row: TableRow, lsn: Lsn) -> None:
    """Remove a pattern's table that the source has dropped: nobody has listed it, so nobody need take it out."""
    _logger.info("table %s was dropped in the source: its mirror %s stays as it is", row.source, row.lake)
    state.record(row.group, row.oid, Removed(f"it was dropped in the source before {row.dropped_lsn or lsn}"))


def add_successor(state: State, row: TableRow, oid: int, source: TableName) -> None:
    """Add a table that will take the place of another, with the other's options. It stays REMOVED until `take_over`.

    A table that is mirrored already stays as it is.
    """
    lake = source if row.options.followed_name else row.lake
    with state.transaction() as connection:
        connection.execute(
            "INSERT INTO headwater.tables AS t (group_name, source_oid, namespace, name, lake_schema, lake_table,"
            " configured_schema, configured_table, options, state, error)"
            " SELECT group_name, %(oid)s, %(schema)s, %(name)s, %(lake_schema)s, %(lake_table)s, configured_schema,"
            " configured_table, options, 'REMOVED', 'it is about to take the place of another table'"
            " FROM headwater.tables WHERE group_name = %(group)s AND source_oid = %(old)s"
            " ON CONFLICT (group_name, source_oid) DO UPDATE SET configured_schema = excluded.configured_schema,"
            " configured_table = excluded.configured_table, options = excluded.options WHERE t.state = 'REMOVED'",
            {
                "oid": oid,
                "schema": source.schema,
                "name": source.name,
                "lake_schema": lake.schema,
                "lake_table": lake.name,
                "group": row.group,
                "old": row.oid,
            },
        )


def take_over(state: State, row: TableRow, oid: int, lsn: Lsn, published: str | None) -> None:
    """Have a successor copied at `lsn` or later, in place of the mirror of `row`, which is then forgotten.

    If the successor was mirrored for another entry of the config, `row` stays and stands for that entry.
    """
    heir = next(each for each in state.tables(row.group) if each.oid == oid)
    replaces = [each for each in (*row.replaces, row.oid) if each != oid]
    with state.transaction() as connection:
        apply(connection, row.group, oid, TookOver(f"it took the place of the table that was {row.configured}", lsn))
        connection.execute(
            "UPDATE headwater.tables SET replaces = replaces || %s::bigint[], published = coalesce(%s, published),"
            " configured_schema = %s, configured_table = %s WHERE group_name = %s AND source_oid = %s",
            (replaces, published, *row.configured, row.group, oid),
        )
        if heir.configured == row.configured:
            connection.execute(
                "DELETE FROM headwater.tables WHERE group_name = %s AND source_oid = %s", (row.group, row.oid)
            )
        else:
            _leave_for(connection, row, heir, lsn)


def _leave_for(connection: Connection, row: TableRow, heir: TableRow, lsn: Lsn) -> None:
    """The entry of the config that `heir` has left has no table in the source any more: `row` now stands for it."""
    error = TableError(
        f"table {str(heir.configured)!r} has taken the place of {str(row.configured)!r}, which was dropped",
        hint="take it out of the config, or create it again",
    )
    apply(connection, row.group, row.oid, Displaced(lsn, str(error)))
    connection.execute(
        "UPDATE headwater.tables SET (namespace, name, lake_schema, lake_table, configured_schema, configured_table)"
        " = (%s, %s, %s, %s, %s, %s), options = %s WHERE group_name = %s AND source_oid = %s",
        (
            *(*heir.configured, *heir.lake, *heir.configured, Jsonb(asdict(heir.options))),
            *(row.group, row.oid),
        ),
    )


def reclaim(state: State, group: str, oid: int) -> None:
    """A table is wanted again before another has taken its place: it is copied again, and both have mirrors."""
    if not state.query("SELECT FROM headwater.tables WHERE group_name = %s AND %s = ANY(replaces)", (group, oid)):
        return
    state.request_resync(group, oid, "another table had its place for a while")
    with state.transaction() as connection:
        connection.execute(
            "UPDATE headwater.tables SET replaces = array_remove(replaces, %s::bigint) WHERE group_name = %s",
            (oid, group),
        )


def reassign(state: State, group: str, entries: Mapping[int, TableName]) -> None:
    """Note which entry of the config each table belongs to, after tables have exchanged their names."""
    if not entries:
        return
    with state.transaction() as connection:
        connection.cursor().executemany(
            "UPDATE headwater.tables SET configured_schema = %s, configured_table = %s"
            " WHERE group_name = %s AND source_oid = %s",
            [(*name, group, oid) for oid, name in entries.items()],
        )
