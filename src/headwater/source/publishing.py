"""Making a group's publication what the config needs, or saying which statements another role must run for that.

A role that may only read is enough: what it may not alter is compared, never altered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import psycopg
from psycopg import sql

from headwater.change import TableName
from headwater.errors import ConfigError, OperatorMustAct
from headwater.postgres.connect import Connection
from headwater.source.alterations import PublicationChange, PublicationMember, add_tables, alterations, drop_tables
from headwater.source.publications import publication_tables
from headwater.source.server import named_oid, table_name

__all__ = ["ensure_publication", "exchange", "forbidden", "owner_of"]


def ensure_publication(
    connection: Connection, name: str, tables: Iterable[TableName] | Mapping[TableName, Collection[str] | None]
) -> None:
    """Make the publication send all of exactly these tables, of some only these columns; its row filters stay.

    To be done before the slot is made. OperatorMustAct says what another role must do if ours may not.
    """
    wanted = dict(tables) if isinstance(tables, Mapping) else dict.fromkeys(tables)
    with connection.transaction():
        members = {named_oid(connection, table): PublicationMember(table, columns) for table, columns in wanted.items()}
        found = alterations(connection, name, members)
        for refusal in forbidden(connection, name, found):
            raise refusal
        ours = owner_of(connection, name)[1]
        for each in found:
            if each.needed or ours:
                for statement in each.statements:
                    _alter(connection, statement)


def forbidden(connection: Connection, name: str, found: Iterable[PublicationChange]) -> list[OperatorMustAct]:
    """Those of the alterations that are needed and that our role may not make, each with what its owner must run."""
    owner, ours = owner_of(connection, name)
    return [
        _refusal(connection, name, owner, each)
        for each in found
        if each.needed and not _permitted(connection, each, ours)
    ]


def owner_of(connection: Connection, name: str) -> tuple[str, bool | None]:
    """The publication's owner, and whether our role may act as it; None if there is no such publication."""
    row = connection.execute(
        "SELECT pg_get_userbyid(pubowner)::text, pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = %s",
        (name,),
    ).fetchone()
    return row or ("", None)


def _permitted(connection: Connection, alteration: PublicationChange, ours: bool | None) -> bool:
    row = connection.execute(
        "SELECT has_database_privilege(current_database(), 'CREATE'),"
        " (SELECT count(*) FROM pg_class WHERE oid = ANY(%s::oid[]) AND NOT pg_has_role(relowner, 'USAGE'))",
        (list(alteration.adds),),
    ).fetchone()
    assert row is not None
    may_create, foreign_tables = row
    return bool(may_create if alteration.creates else ours) and not foreign_tables


def _refusal(connection: Connection, name: str, owner: str, alteration: PublicationChange) -> OperatorMustAct:
    role = connection.info.user
    if alteration.creates:
        return OperatorMustAct(
            f"publication {name!r} {alteration.problem}, and role {role!r} may not create it for these tables",
            hint=f"let the owner of the tables, with CREATE on the database, or a superuser run: {alteration.script}"
            " (`headwater check --sql` prints all that the role needs)",
        )
    return OperatorMustAct(
        f"publication {name!r} {alteration.problem}, and role {role!r} may not alter it: its owner is {owner!r}",
        hint=f"let its owner, or a superuser, run: {alteration.script}",
    )


def _alter(connection: Connection, statement: sql.Composed) -> None:
    try:
        connection.execute(statement)
    except (psycopg.errors.UndefinedColumn, psycopg.errors.InvalidColumnReference) as exc:
        text = str(exc).strip().split("\n")[0]
        raise ConfigError(f"the source refuses the list of columns: {text}", hint="run `headwater check`") from exc


def exchange(connection: Connection, name: str, old: int, new: int, columns: Collection[str] | None) -> None:
    """Have the publication send one table (only these columns, if listed) instead of another; again changes nothing."""
    have = publication_tables(connection, name) or {}
    table = table_name(connection, new)
    if table is None:
        return  # dropped this very moment
    steps = []
    if new not in have:
        steps.append(add_tables(name, [PublicationMember(table, columns)]))
    if old in have and owner_of(connection, name)[1]:
        steps.append(drop_tables(name, [PublicationMember(have[old].table)]))
    with connection.transaction():
        # It waits for VACUUM and the like, which takes its time: rather try again later.
        connection.execute("SET LOCAL lock_timeout = '1s'")
        for step in steps:
            connection.execute(step)
