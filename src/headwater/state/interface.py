"""What people see of the state in SQL: functions, views, and the roles that may use them.

It is brought up to date at each start, so a change needs no migration; but one of a function's arguments or result, and
of a view's columns (other than new ones at the end), needs one that drops the old one first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from headwater.postgres.connect import Connection
from headwater.state.functions import ADMIN, READER, REQUESTS
from headwater.state.waitfunction import WAITING

__all__ = ["FUNCTIONS", "READABLE", "ROLES", "apply", "create_roles"]

ROLES = (ADMIN, READER)
READABLE = ("groups", "tables", "requests", "status", "deliveries")  # by both roles
FUNCTIONS = (*REQUESTS, *WAITING)


def _spelled(schema: str, table: str) -> str:
    """A table's name as `TableName` spells it."""
    return " || '.' || ".join(
        f"CASE WHEN {name} ~ '^[a-z_][a-z0-9_$]*$' THEN {name} ELSE '\"' || replace({name}, '\"', '\"\"') || '\"' END"
        for name in (schema, table)
    )


_STATUS = f"""
    CREATE OR REPLACE VIEW headwater.status AS
    WITH waiting AS (
      SELECT r.group_name, r.table_name,
             string_agg(format('%s (request %s of %s)', r.verb, r.id, r.requested_by), ', ' ORDER BY r.id) AS requests
      FROM headwater.requests r WHERE r.handled_at IS NULL AND r.table_name IS NOT NULL
      GROUP BY r.group_name, r.table_name
    ), staged AS (
      SELECT t.group_name, t.source_oid, min(s.first_commit_at) AS since FROM headwater.tables t
      JOIN headwater.segments s ON s.group_name = t.group_name AND s.last_lsn >= t.position
      JOIN headwater.segment_parts p ON p.segment_id = s.id AND p.last_lsn >= t.position
      JOIN headwater.relations r ON r.id = p.relation_id AND r.oid = t.source_oid
      WHERE t.state <> 'REMOVED' GROUP BY t.group_name, t.source_oid
    ), named AS (
      SELECT t.group_name, t.source_oid, {_spelled("t.namespace", "t.name")} AS table_name,
             {_spelled("t.configured_schema", "t.configured_table")} AS configured_name,
             {_spelled("t.lake_schema", "t.lake_table")} AS lake_table
      FROM headwater.tables t
    )
    SELECT n.group_name, n.table_name, n.lake_table, t.state, t.copied_rows, t.copy_total, t.inserted, t.updated,
           t.deleted, t.quarantined, t.position,
           CASE WHEN t.position IS NOT NULL AND t.state <> 'REMOVED' THEN
             greatest(coalesce(extract(epoch FROM clock_timestamp() - s.since), 0), 0)::float8 END AS lag_seconds,
           t.error, t.failures, t.retry_at, t.resync,
           (SELECT string_agg(w.requests, ', ') FROM waiting w
            WHERE w.group_name = n.group_name AND w.table_name IN (n.table_name, n.configured_name)) AS waiting
    FROM headwater.tables t JOIN named n ON n.group_name = t.group_name AND n.source_oid = t.source_oid
    LEFT JOIN staged s ON s.group_name = t.group_name AND s.source_oid = t.source_oid
    UNION ALL
    SELECT w.group_name, w.table_name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, w.requests
    FROM waiting w WHERE NOT EXISTS (
      SELECT FROM named n WHERE n.group_name = w.group_name AND w.table_name IN (n.table_name, n.configured_name))
"""
_SCRIPT = ";\n".join((*(each.sql for each in FUNCTIONS), _STATUS))


def apply(connection: Connection) -> None:
    """Make functions, views and grants those of this program, in the caller's transaction, if they are not."""
    row = connection.execute("SELECT stamp FROM headwater.interface").fetchone()
    _create_missing(connection)
    roles = _there(connection)
    script = ";\n".join((_SCRIPT, *_grants(roles)))
    stamp = hashlib.sha256(script.encode()).hexdigest()
    if row != (stamp,):
        connection.execute(script.encode())
        connection.execute("DELETE FROM headwater.interface")
        connection.execute("INSERT INTO headwater.interface (stamp) VALUES (%s)", (stamp,))


def create_roles() -> str:
    """A statement that creates those roles that are missing."""
    missing = "\n".join(
        f"  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '{role}') THEN\n"
        f"    CREATE ROLE {role} NOLOGIN;\n"
        "  END IF;"
        for role in ROLES
    )
    return f"DO $headwater$ BEGIN\n{missing}\nEND $headwater$"


def _create_missing(connection: Connection) -> None:
    """Create the roles, if we may; else a DBA does."""
    may = connection.execute("SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user").fetchone()
    if may == (True,) and len(_there(connection)) < len(ROLES):
        # Another database of the cluster may be doing the same, and a service may keep the right from us.
        begun = create_roles().removesuffix("END $headwater$")
        refusals = "duplicate_object OR unique_violation OR insufficient_privilege"
        connection.execute(f"{begun}EXCEPTION WHEN {refusals} THEN NULL;\nEND $headwater$".encode())


def _there(connection: Connection) -> list[str]:
    rows = connection.execute("SELECT rolname::text FROM pg_roles WHERE rolname = ANY(%s) ORDER BY 1", (list(ROLES),))
    return [name for (name,) in rows.fetchall()]


def _grants(roles: Collection[str]) -> list[str]:
    """What those of the roles that are there may do. In a schema of the DBA's own, USAGE is theirs to grant."""
    readable = ", ".join(f"headwater.{name}" for name in READABLE)
    found = [each for role in roles for each in (_usage(role), f"GRANT SELECT ON {readable} TO {role}")]
    called = [(each.name, role) for each in FUNCTIONS for role in each.callers if role in roles]
    return found + [f"GRANT EXECUTE ON FUNCTION headwater.{name} TO {role}" for name, role in called]


def _usage(role: str) -> str:
    return f"GRANT USAGE ON SCHEMA headwater TO {role}"
