"""The state's part: what it has of the groups, and whether our role may write it."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from headwater.config import Config
from headwater.errors import OperatorMustAct
from headwater.postgres.connect import Connection, connect, server_name, translated
from headwater.state import GroupRow, State, TableRow
from headwater.state.migrations import check_version

__all__ = ["Known", "known", "state_problems"]

_ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")


class Known(NamedTuple):
    """What the state has, by group."""

    groups: dict[str, GroupRow]
    tables: dict[str, list[TableRow]]


def known(config: Config) -> Known:
    with closing(State.connect(config.state_url)) as state:
        if not state.knows("groups"):
            return Known({}, {})  # a first run: there is no state yet
        check_version(state.query("SELECT coalesce(max(version), 0) FROM headwater.migrations")[0][0])
        groups = {row.name: row for row in state.groups()}
        return Known(groups, {name: state.tables(name) for name in groups})


def state_problems(url: str) -> list[OperatorMustAct]:
    """Whether the schema `headwater` can be made, or written if it is there."""
    with closing(connect(url, application_name="headwater check")) as connection, translated(url):
        row = connection.execute(
            "SELECT current_user::text, n.oid IS NOT NULL,"
            " CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')"
            " ELSE has_schema_privilege(n.oid, 'USAGE') AND has_schema_privilege(n.oid, 'CREATE') END"
            " FROM (SELECT 'headwater' AS name) wanted LEFT JOIN pg_namespace n ON n.nspname = wanted.name"
        ).fetchone()
        assert row is not None
        user, there, allowed = row
        role, where = f"role {user!r}", server_name(url)
        if not allowed and there:
            message, grant = (
                f"{role} may not use the schema 'headwater' in {where}",
                "USAGE, CREATE ON SCHEMA headwater",
            )
        elif not allowed:
            message = f"{role} may not create the schema 'headwater' in {where}"
            grant = f'CREATE ON DATABASE "{connection.info.dbname}"'
        elif _denied(connection):
            message = f"{role} may not write the tables of the schema 'headwater' in {where}"
            grant = f"{', '.join(_ALL)} ON ALL TABLES IN SCHEMA headwater"
        else:
            return []
        return [OperatorMustAct(message, hint=f'GRANT {grant} TO "{user}"')]


def _denied(connection: Connection) -> bool:
    rights = " AND ".join(f"has_table_privilege(c.oid, '{right}')" for right in _ALL)
    return (
        connection.execute(
            "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            f" WHERE n.nspname = 'headwater' AND c.relkind = 'r' AND NOT ({rights}) LIMIT 1"
        ).fetchone()
        is not None
    )
