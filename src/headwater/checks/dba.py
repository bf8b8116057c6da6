"""The script for a DBA: everything that the role of the config's source needs there, and nothing more.

With it the role is no owner of anything: it reads, it replicates, and it keeps its state in the schema `headwater`.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from headwater.change import TableName
from headwater.checks.known import Known, known
from headwater.config import Config
from headwater.control.expanding import expanded_config, has_patterns
from headwater.control.wishes import wishes
from headwater.errors import ConfigError, HeadwaterError
from headwater.postgres.connect import Connection, connect, server_name, translated
from headwater.source import triggers as ddl
from headwater.source.alterations import (
    PublicationMember,
    create_publication,
    for_all_tables,
    option_alterations,
    set_tables,
)
from headwater.source.checktable import TableWish, access_problems, identity_problems, table_problems
from headwater.source.naming import object_name, quoted
from headwater.source.partitions import members as partitions_below
from headwater.source.patterns import catalog_tables
from headwater.source.publications import publication_tables
from headwater.source.relations import described
from headwater.source.replaced import Resolved, resolved, sent_columns
from headwater.state.interface import ROLES, create_roles

__all__ = ["dba_script"]

_UNASKED = """\
-- {source} cannot be asked: {reason}
-- So this is made from the config alone. Run it, then `headwater check --sql` again, which adds the tables of
-- patterns, the grants on partitions, the columns of tables with `exclude`, the replica identities, and the event
-- triggers.
"""
_TRIGGERS = """
-- Event triggers, which report schema changes to Headwater at their moment. They need a superuser, or a role that the
-- service lets create event triggers. Without them schema changes are read from the catalog, and what the catalog does
-- not prove is copied again.
"""


@dataclass(frozen=True, slots=True)
class _Role:
    name: str
    database: str

    @property
    def sql(self) -> str:
        return quoted(self.name)


def dba_script(config: Config) -> str:
    """What a superuser runs in the source's database before the first run; running it again changes nothing."""
    try:
        opened = closing(connect(config.source, application_name="headwater check"))
        with opened as connection, translated(config.source):
            role = _Role(connection.info.user, connection.info.dbname)
            return _script(config, role, list(_asked(config, connection, role)))
    except HeadwaterError as error:
        reason = error.message.splitlines()[0]
        unasked = _UNASKED.format(source=server_name(config.source), reason=reason)
        role = _role_of(config.source)
        return unasked + _script(config, role, list(_unasked(config, role)))


def _role_of(url: str) -> _Role:
    parts = conninfo_to_dict(url)
    name = str(parts.get("user") or getpass.getuser())
    return _Role(name, str(parts.get("dbname") or name))


def _script(config: Config, role: _Role, rest: list[str]) -> str:
    head = [
        f"-- What Headwater needs in database {role.database}: run it there as a superuser, or as a role that owns the",
        "-- tables and may create roles and publications. It may be run again. What is commented out is your choice.",
        "BEGIN;",
        *_role(role),
    ]
    return "\n".join([*head, *rest, *_state(config)]) + "\n"


def _role(role: _Role) -> Iterator[str]:
    name = sql.Literal(role.name).as_string(None)
    yield f"""\
DO $headwater$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {name}) THEN
    CREATE ROLE {role.sql} LOGIN;  -- its password is yours to set: \\password {role.sql}
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication') THEN
    GRANT rds_replication TO {role.sql};
  ELSIF EXISTS (SELECT FROM pg_roles WHERE rolname = {name} AND NOT rolreplication AND NOT rolsuper) THEN
    ALTER ROLE {role.sql} REPLICATION;
  END IF;
END $headwater$;
GRANT CONNECT ON DATABASE {quoted(role.database)} TO {role.sql};"""


def _schema(role: _Role) -> list[str]:
    return [
        "CREATE SCHEMA IF NOT EXISTS headwater;",
        f"GRANT USAGE, CREATE ON SCHEMA headwater TO {role.sql};",
        "-- Members of these may control Headwater, or look at it, in SQL:",
        f"{create_roles()};",
        f"GRANT USAGE ON SCHEMA headwater TO {', '.join(ROLES)};",
    ]


def _state(config: Config) -> Iterator[str]:
    if config.state is None:
        return
    elsewhere = _role_of(config.state)
    yield f"\n-- In {server_name(config.state)}, which holds the state, with a role {elsewhere.sql} that may connect:"
    yield from (f"-- {line}" for statement in _schema(elsewhere) for line in statement.splitlines())


def _unasked(config: Config, role: _Role) -> Iterator[str]:
    if config.state is None:
        yield from _schema(role)
    yield from _grants(role, [entry.table for group in config.groups.values() for entry in group.tables])
    for name, group in config.groups.items():
        whole = [PublicationMember(entry.table, entry.columns) for entry in group.tables if not entry.exclude]
        yield from _publication(object_name(name), whole, create_publication(object_name(name), [], 0))
    yield "COMMIT;"


def _asked(config: Config, connection: Connection, role: _Role) -> Iterator[str]:
    rows = Known({}, {})
    with suppress(HeadwaterError):  # the state cannot be read yet
        rows = known(config)
    if has_patterns(config):  # also what cannot be mirrored yet: the script may be what is missing
        config = expanded_config(config, [each.name for each in catalog_tables(connection)])
    groups = {name: resolved(connection, wanted) for name, wanted in wishes(config, rows.tables).items()}
    found = [one for group in groups.values() for one in group if one.oid]
    if config.state is None:
        yield from _schema(role)
    yield from _grants(role, list(_read(connection, found)))
    yield from _later_tables(connection, role, found)
    for name, group in groups.items():
        yield from _group(connection, object_name(name), group)
    yield "COMMIT;"
    if ddl.marks(connection) is None:
        yield _TRIGGERS + "\n".join(f"{each};" for each in ("BEGIN", *_triggers(connection), "COMMIT"))


def _triggers(connection: Connection) -> list[str]:
    return ddl.install_sql(connection.info.server_version)


def _grants(role: _Role, tables: Iterable[TableName]) -> Iterator[str]:
    for schema in sorted({table.schema for table in tables}):
        yield f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {role.sql};"
    for table in dict.fromkeys(tables):
        yield f"GRANT SELECT ON {quoted(*table)} TO {role.sql};"


def _read(connection: Connection, found: list[Resolved]) -> Iterator[TableName]:
    """The tables, and their partitions, which are read one by one."""
    below = partitions_below(connection, [one.oid for one in found])
    for one in found:
        yield one.name
        yield from (each.table for each in below.get(one.oid, {}).values())


def _later_tables(connection: Connection, role: _Role, found: list[Resolved]) -> Iterator[str]:
    """Partitions, and tables that match a pattern, may come at any time."""
    rows = connection.execute(
        "SELECT DISTINCT pg_get_userbyid(c.relowner)::text, n.nspname::text FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE (c.relkind = 'p' AND c.oid = ANY(%s::oid[]))"
        " OR c.oid = ANY(%s::oid[]) ORDER BY 1, 2",
        ([one.oid for one in found], [one.oid for one in found if one.wish.matched]),
    ).fetchall()
    if rows:
        what = "Tables and partitions" if any(one.wish.matched for one in found) else "Partitions"
        yield f"-- {what} that are created later must be readable too: grant SELECT on each, or on all new tables:"
    for owner, schema in rows:
        yield (
            f"-- ALTER DEFAULT PRIVILEGES FOR ROLE {quoted(owner)} IN SCHEMA {quoted(schema)}"
            f" GRANT SELECT ON TABLES TO {role.sql};"
        )


def _group(connection: Connection, publication: str, group: list[Resolved]) -> Iterator[str]:
    have = publication_tables(connection, publication) or {}
    listed, held_back = list[PublicationMember](), list[str]()
    for one in group:
        if not one.oid:
            held_back.append(
                f"-- There is no table {one.wish.table}: it was dropped, or the config has its name wrong."
            )
            continue
        filtered = have[one.oid].row_filter if one.oid in have else None
        with suppress(ConfigError):  # among the comments
            member = PublicationMember(one.name, sent_columns(connection, one.wish, one.oid), filtered)
            reasons = list(_identity(connection, one.wish, one.oid))
            if one.oid in have or not reasons:
                listed.append(member)
            else:
                add = f"ALTER PUBLICATION {quoted(publication)} ADD TABLE {member.sql.as_string(None)};"
                held_back += [*map(_comment, reasons), f"-- Then: {add}"]
        held_back += map(_comment, _others(connection, one.wish, one.oid))
    if for_all_tables(connection, publication):
        yield f"DROP PUBLICATION {quoted(publication)};  -- it is FOR ALL TABLES, and must list its tables"
    yield from _publication(publication, listed, create_publication(publication, [], connection.info.server_version))
    yield from (each.script for each in option_alterations(connection, publication))
    yield from held_back


def _publication(name: str, members: list[PublicationMember], create: sql.Composed) -> Iterator[str]:
    literal = sql.Literal(name).as_string(None)
    yield f"""\
DO $headwater$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = {literal}) THEN
    {create.as_string(None)};
  END IF;
END $headwater$;"""
    if members:
        yield f"{set_tables(name, members).as_string(None)};"


def _identity(connection: Connection, wish: TableWish, oid: int) -> Iterator[HeadwaterError]:
    return identity_problems(connection, wish, described(connection, oid, None))


def _others(connection: Connection, wish: TableWish, oid: int) -> list[HeadwaterError]:
    """The problems of a table that the script does not solve."""
    solved = {str(each) for each in (*access_problems(connection, oid), *_identity(connection, wish, oid))}
    return [each for each in table_problems(connection, wish, oid) if str(each) not in solved]


def _comment(problem: HeadwaterError) -> str:
    return "\n".join(f"-- {line}" for line in str(problem).splitlines())
