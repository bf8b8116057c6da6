"""A group's publication as it is: its tables, what it sends of them, and whether it was altered in the meantime."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headwater.change import TableName
from headwater.errors import OperatorMustAct
from headwater.postgres.connect import Connection
from headwater.source.naming import object_name
from headwater.source.relations import GENERATED_SINCE, LISTS_SINCE
from headwater.source.server import table_name, wal_end
from headwater.state import State, TableRow

__all__ = ["ALTERED", "PublishedTable", "look_at_publication", "options", "places", "publication_tables"]

ALTERED = "its publication was altered: some of its changes may not have been sent"
_logger = logging.getLogger("headwater.capture")
_OPTIONS = {
    "publish = 'insert, update, delete, truncate'": "p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate",
    "publish_via_partition_root = true": "p.pubviaroot",
}
_GENERATED = {"publish_generated_columns = stored": "p.pubgencols = 's'"}


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of a publication. `columns` is None when all are sent; `row_filter` is a condition in SQL."""

    table: TableName
    columns: frozenset[str] | None
    row_filter: str | None


def options(version: int) -> dict[str, str]:
    """The options that a publication of ours has, each with the condition, in SQL, that publication `p` has it."""
    return _OPTIONS | (_GENERATED if version >= GENERATED_SINCE else {})


def publication_tables(connection: Connection, name: str) -> dict[int, PublishedTable] | None:
    """The tables that a publication lists, by OID; None if there is no such publication."""
    if connection.execute("SELECT FROM pg_publication WHERE pubname = %s", (name,)).fetchone() is None:
        return None
    details = (
        "CASE WHEN r.prattrs IS NOT NULL THEN ARRAY(SELECT a.attname::text FROM pg_attribute a"
        " WHERE a.attrelid = c.oid AND a.attnum = ANY(r.prattrs::int2[])) END, pg_get_expr(r.prqual, r.prrelid)"
        if connection.info.server_version >= LISTS_SINCE
        else "NULL::text[], NULL"
    )
    rows = connection.execute(
        f"SELECT c.oid::bigint, n.nspname::text, c.relname::text, {details} FROM pg_publication p"
        " JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s ORDER BY 2, 3",
        (name,),
    )
    return {
        oid: PublishedTable(TableName(schema, table), None if columns is None else frozenset(columns), condition)
        for oid, schema, table, columns, condition in rows
    }


def places(connection: Connection, publication: str) -> dict[int, str]:
    """What marks each table's place in a publication that sends all there is to send; empty if it does not.

    The mark changes once the table was taken out and put back, or the publication was altered and altered back:
    looking now and then, or only at a start, misses nothing.
    """
    complete = " AND ".join(options(connection.info.server_version).values())
    rows = connection.execute(
        "SELECT r.prrelid::bigint, concat_ws('/', p.oid, p.xmin, r.oid) FROM pg_publication p"
        f" JOIN pg_publication_rel r ON r.prpubid = p.oid WHERE p.pubname = %s AND {complete}",
        (publication,),
    )
    return dict(rows.fetchall())


def look_at_publication(connection: Connection, state: State, group: str) -> None:
    """Have tables copied again whose place was altered; OperatorMustAct, noted in the state, if one has none."""
    rows = [row for row in state.tables(group) if row.state != "REMOVED"]
    now = places(connection, object_name(group))
    lacking = [row for row in rows if row.oid not in now and table_name(connection, row.oid) is not None]
    if lacking:
        error = _altered(object_name(group), lacking)
        state.record_error(group, "capture", str(error))
        raise error
    for row in rows:
        if row.published is not None and now.get(row.oid, row.published) != row.published:
            _logger.warning("table %s will be copied again: %s", row.source, ALTERED)
            state.request_resync(group, row.oid, ALTERED, wal_end(connection))
            state.note_published(group, {row.oid: now[row.oid]})


def _altered(publication: str, lacking: list[TableRow]) -> OperatorMustAct:
    names = ", ".join(str(row.source) for row in lacking)
    return OperatorMustAct(
        f"publication {publication!r} was altered: it does not send all changes of {names}",
        hint="start `headwater run` again: it sets the publication right, or prints what its owner must run,"
        " and copies these tables again",
    )
