"""What must be altered so that a publication sends what the config needs: a plan, to carry out or to print."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from psycopg import sql

from headwater.change import TableName
from headwater.errors import OperatorMustAct
from headwater.postgres.connect import Connection
from headwater.source.publications import PublishedTable, options, publication_tables
from headwater.source.relations import LISTS_SINCE

__all__ = [
    "MISSING",
    "PublicationChange",
    "PublicationMember",
    "add_tables",
    "alterations",
    "create_publication",
    "drop_tables",
    "for_all_tables",
    "option_alterations",
    "set_tables",
]

MISSING = "does not exist"  # what a publication that is to be created has as its only difference


@dataclass(frozen=True, slots=True)
class PublicationMember:
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
class PublicationChange:
    """What is wrong with a publication, as the rest of a sentence about it, and what sets it right."""

    problem: str
    statements: tuple[sql.Composed, ...]
    adds: frozenset[int] = frozenset()  # tables that it puts into the publication
    creates: bool = False
    needed: bool = True  # without it changes would be missing; else it only sends too much

    @property
    def script(self) -> str:
        return " ".join(f"{each.as_string(None)};" for each in self.statements)


def alterations(connection: Connection, name: str, wanted: Mapping[int, PublicationMember]) -> list[PublicationChange]:
    """Everything in which a publication differs from what is wanted, in the order in which it is to be set right."""
    have = publication_tables(connection, name)
    version = connection.info.server_version
    if have is None:
        create = create_publication(name, wanted.values(), version)
        return [PublicationChange(MISSING, (create,), frozenset(wanted), creates=True)]
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


def create_publication(name: str, members: Iterable[PublicationMember], version: int) -> sql.Composed:
    """The statement that makes a publication of ours on a server of that version."""
    listed = sql.SQL(", ").join([each.sql for each in members])
    tables = sql.SQL(" FOR TABLE {}").format(listed) if listed.as_string(None) else sql.SQL("")
    settings = sql.SQL(", ".join(options(version)))
    return sql.SQL("CREATE PUBLICATION {}{} WITH ({})").format(sql.Identifier(name), tables, settings)


def set_tables(name: str, members: Iterable[PublicationMember]) -> sql.Composed:
    """The statement that has a publication send exactly these tables; those that stay keep their places."""
    listed = sql.SQL(", ").join([each.sql for each in members])
    return sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(sql.Identifier(name), listed)


def for_all_tables(connection: Connection, name: str) -> bool:
    """Whether it lists no tables. We need the list: event triggers and our marks of a table's place go by it."""
    row = connection.execute("SELECT puballtables FROM pg_publication WHERE pubname = %s", (name,)).fetchone()
    return row == (True,)


def option_alterations(connection: Connection, name: str) -> Iterator[PublicationChange]:
    """The options that a publication lacks; none if there is no such publication."""
    asked = options(connection.info.server_version)
    row = connection.execute(
        f"SELECT {', '.join(asked.values())} FROM pg_publication p WHERE pubname = %s", (name,)
    ).fetchone()
    for option, there in zip(asked, row or (), strict=False):
        if not there:
            statement = sql.SQL("ALTER PUBLICATION {} SET ({})").format(sql.Identifier(name), sql.SQL(option))
            yield PublicationChange(f"does not have {option}", (statement,))


def _tables(
    name: str, wanted: Mapping[int, PublicationMember], have: Mapping[int, PublishedTable]
) -> Iterator[PublicationChange]:
    # By OID: a table keeps its place when it is renamed.
    lacking = {oid: member for oid, member in wanted.items() if oid not in have}
    if lacking:
        names = ", ".join(str(member.table) for member in lacking.values())
        yield PublicationChange(f"does not list {names}", (add_tables(name, lacking.values()),), frozenset(lacking))
    for oid, member in wanted.items():
        if oid in have and have[oid].columns != (frozenset(member.columns) if member.columns else None):
            now = ", ".join(sorted(have[oid].columns or ())) or "all columns"
            asked = ", ".join(sorted(member.columns or ())) or "all columns"
            again = PublicationMember(member.table, member.columns, have[oid].row_filter)
            yield PublicationChange(
                f"sends {now} of {member.table} instead of {asked}",
                (drop_tables(name, [member]), add_tables(name, [again])),
                frozenset({oid}),
            )


def _surplus(
    connection: Connection, name: str, wanted: Mapping[int, PublicationMember], have: Mapping[int, PublishedTable]
) -> Iterator[PublicationChange]:
    more = [PublicationMember(each.table) for oid, each in have.items() if oid not in wanted]
    if more:
        names = ", ".join(str(member.table) for member in more)
        yield PublicationChange(f"also sends {names}", (drop_tables(name, more),), needed=False)
    if schemas := _schemas(connection, name):
        listed = sql.SQL(", ").join(map(sql.Identifier, schemas))
        statement = sql.SQL("ALTER PUBLICATION {} DROP TABLES IN SCHEMA {}").format(sql.Identifier(name), listed)
        yield PublicationChange(
            f"also sends all tables of the schemas {', '.join(schemas)}", (statement,), needed=False
        )


def _schemas(connection: Connection, name: str) -> list[str]:
    if connection.info.server_version < LISTS_SINCE:
        return []
    rows = connection.execute(
        "SELECT n.nspname::text FROM pg_publication p JOIN pg_publication_namespace s ON s.pnpubid = p.oid"
        " JOIN pg_namespace n ON n.oid = s.pnnspid WHERE p.pubname = %s ORDER BY 1",
        (name,),
    )
    return [schema for (schema,) in rows]


def add_tables(name: str, members: Iterable[PublicationMember]) -> sql.Composed:
    listed = sql.SQL(", ").join([each.sql for each in members])
    return sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(name), listed)


def drop_tables(name: str, members: Iterable[PublicationMember]) -> sql.Composed:
    listed = sql.SQL(", ").join([sql.Identifier(*each.table) for each in members])
    return sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(sql.Identifier(name), listed)
