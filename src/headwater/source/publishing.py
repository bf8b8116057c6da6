"""Making a group's publication what the config needs, or saying which statements another role must run for that.

A role that may only read is enough: what it may not alter is compared, never altered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import psycopg
from psycopg import sql

from headwater.change import TableName
from headwater.errors import ConfigError, OperatorMustAct
from headwater.postgres.connect import Connection
from headwater.source.publications import PublishedTable, options, publication_tables
from headwater.source.relations import LISTS_SINCE
from headwater.source.server import named_oid, table_name

__all__ = [
    "Alteration",
    "Member",
    "alterations",
    "create_publication",
    "ensure_publication",
    "exchange",
    "for_all_tables",
    "forbidden",
    "option_alterations",
    "owner_of",
    "set_tables",
]


@dataclass(frozen=True, slots=True)
class Member:
    """A table as it should stand in a publication. `columns` is None when all are sent."""

    table: TableName
    columns: Collection[str] | None = None
    row_filter: str | None = None

    @property
    def sql(self) -> sql.Composed:
        columns = sql.SQL(", ").join(map(sql.Identifier, sorted(self.columns or ())))
        listed = sql.SQL(" ({})").format(columns) if self.columns else sql.SQL("")
        # As PostgreSQL spells it: text from its own catalog, in brackets already.
        condition = sql.SQL(f" WHERE {self.row_filter}") if self.row_filter else sql.SQL("")
        return sql.SQL("{}{}{}").format(sql.Identifier(*self.table), listed, condition)


@dataclass(frozen=True, slots=True)
class Alteration:
    """What is wrong with a publication, as the rest of a sentence about it, and what sets it right."""

    problem: str
    statements: tuple[sql.Composed, ...]
    adds: frozenset[int] = frozenset()  # tables that it puts into the publication
    creates: bool = False
    needed: bool = True  # without it changes would be missing; else it only sends too much

    @property
    def script(self) -> str:
        return " ".join(f"{each.as_string(None)};" for each in self.statements)


def ensure_publication(
    connection: Connection, name: str, tables: Iterable[TableName] | Mapping[TableName, Collection[str] | None]
) -> None:
    """Make the publication send all of exactly these tables, of some only these columns; its row filters stay.

    To be done before the slot is made. OperatorMustAct says what another role must do if ours may not.
    """
    wanted = dict(tables) if isinstance(tables, Mapping) else dict.fromkeys(tables)
    with connection.transaction():
        members = {named_oid(connection, table): Member(table, columns) for table, columns in wanted.items()}
        found = alterations(connection, name, members)
        for refusal in forbidden(connection, name, found):
            raise refusal
        ours = owner_of(connection, name)[1]
        for each in found:
            if each.needed or ours:
                for statement in each.statements:
                    _alter(connection, statement)


def alterations(connection: Connection, name: str, wanted: Mapping[int, Member]) -> list[Alteration]:
    """Everything in which a publication differs from what is wanted, in the order in which it is to be set right."""
    have = publication_tables(connection, name)
    version = connection.info.server_version
    if have is None:
        create = create_publication(name, wanted.values(), version)
        return [Alteration("does not exist", (create,), frozenset(wanted), creates=True)]
    if for_all_tables(connection, name):
        again = sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(name))
        create = create_publication(name, wanted.values(), version)
        raise OperatorMustAct(
            f"publication {name!r} is FOR ALL TABLES, and must list its tables",
            hint=f"{again.as_string(None)}; {create.as_string(None)};",
        )
    return [
        *option_alterations(connection, name),
        *_tables(name, wanted, have),
        *_surplus(connection, name, wanted, have),
    ]


def create_publication(name: str, members: Iterable[Member], version: int) -> sql.Composed:
    """The statement that makes a publication of ours on a server of that version."""
    listed = sql.SQL(", ").join([each.sql for each in members])
    tables = sql.SQL(" FOR TABLE {}").format(listed) if listed.as_string(None) else sql.SQL("")
    settings = sql.SQL(", ".join(options(version)))
    return sql.SQL("CREATE PUBLICATION {}{} WITH ({})").format(sql.Identifier(name), tables, settings)


def set_tables(name: str, members: Iterable[Member]) -> sql.Composed:
    """The statement that has a publication send exactly these tables; those that stay keep their places."""
    listed = sql.SQL(", ").join([each.sql for each in members])
    return sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(sql.Identifier(name), listed)


def forbidden(connection: Connection, name: str, found: Iterable[Alteration]) -> list[OperatorMustAct]:
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


def _permitted(connection: Connection, alteration: Alteration, ours: bool | None) -> bool:
    row = connection.execute(
        "SELECT has_database_privilege(current_database(), 'CREATE'),"
        " (SELECT count(*) FROM pg_class WHERE oid = ANY(%s::oid[]) AND NOT pg_has_role(relowner, 'USAGE'))",
        (list(alteration.adds),),
    ).fetchone()
    assert row is not None
    may_create, foreign_tables = row
    return bool(may_create if alteration.creates else ours) and not foreign_tables


def _refusal(connection: Connection, name: str, owner: str, alteration: Alteration) -> OperatorMustAct:
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


def for_all_tables(connection: Connection, name: str) -> bool:
    row = connection.execute("SELECT puballtables FROM pg_publication WHERE pubname = %s", (name,)).fetchone()
    return row == (True,)


def option_alterations(connection: Connection, name: str) -> Iterator[Alteration]:
    asked = options(connection.info.server_version)
    row = connection.execute(
        f"SELECT {', '.join(asked.values())} FROM pg_publication p WHERE pubname = %s", (name,)
    ).fetchone()
    for option, there in zip(asked, row or (), strict=False):
        if not there:
            statement = sql.SQL("ALTER PUBLICATION {} SET ({})").format(sql.Identifier(name), sql.SQL(option))
            yield Alteration(f"does not have {option}", (statement,))


def _tables(name: str, wanted: Mapping[int, Member], have: Mapping[int, PublishedTable]) -> Iterator[Alteration]:
    # By OID: a table keeps its place when it is renamed.
    lacking = {oid: member for oid, member in wanted.items() if oid not in have}
    if lacking:
        names = ", ".join(str(member.table) for member in lacking.values())
        yield Alteration(f"does not list {names}", (_add(name, lacking.values()),), frozenset(lacking))
    for oid, member in wanted.items():
        if oid in have and have[oid].columns != (frozenset(member.columns) if member.columns else None):
            now = ", ".join(sorted(have[oid].columns or ())) or "all columns"
            asked = ", ".join(sorted(member.columns or ())) or "all columns"
            again = Member(member.table, member.columns, have[oid].row_filter)
            yield Alteration(
                f"sends {now} of {member.table} instead of {asked}",
                (_drop(name, [member]), _add(name, [again])),
                frozenset({oid}),
            )


def _surplus(
    connection: Connection, name: str, wanted: Mapping[int, Member], have: Mapping[int, PublishedTable]
) -> Iterator[Alteration]:
    more = [Member(each.table) for oid, each in have.items() if oid not in wanted]
    if more:
        names = ", ".join(str(member.table) for member in more)
        yield Alteration(f"also sends {names}", (_drop(name, more),), needed=False)
    if schemas := _schemas(connection, name):
        listed = sql.SQL(", ").join(map(sql.Identifier, schemas))
        statement = sql.SQL("ALTER PUBLICATION {} DROP TABLES IN SCHEMA {}").format(sql.Identifier(name), listed)
        yield Alteration(f"also sends all tables of the schemas {', '.join(schemas)}", (statement,), needed=False)


def _schemas(connection: Connection, name: str) -> list[str]:
    if connection.info.server_version < LISTS_SINCE:
        return []
    rows = connection.execute(
        "SELECT n.nspname::text FROM pg_publication p JOIN pg_publication_namespace s ON s.pnpubid = p.oid"
        " JOIN pg_namespace n ON n.oid = s.pnnspid WHERE p.pubname = %s ORDER BY 1",
        (name,),
    )
    return [schema for (schema,) in rows]


def _add(name: str, members: Iterable[Member]) -> sql.Composed:
    listed = sql.SQL(", ").join([each.sql for each in members])
    return sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(name), listed)


def _drop(name: str, members: Iterable[Member]) -> sql.Composed:
    listed = sql.SQL(", ").join([sql.Identifier(*each.table) for each in members])
    return sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(sql.Identifier(name), listed)


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
        steps.append(_add(name, [Member(table, columns)]))
    if old in have and owner_of(connection, name)[1]:
        steps.append(_drop(name, [Member(have[old].table)]))
    with connection.transaction():
        # It waits for VACUUM and the like, which takes its time: rather try again later.
        connection.execute("SET LOCAL lock_timeout = '1s'")
        for step in steps:
            connection.execute(step)
