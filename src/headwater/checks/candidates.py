"""Which tables of a database could be mirrored, and why the others could not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from headwater.change import TableName
from headwater.config import DuckLake
from headwater.errors import HeadwaterError
from headwater.postgres.connect import Connection, connect, translated
from headwater.sink.addresses import reserved_columns
from headwater.source.checktable import TableWish, access_problems, table_problems

__all__ = ["Candidate", "Candidates", "Obstacle", "candidates"]

_TABLES = """
    SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind = 'f', e.extname::text,
           rn.nspname::text, r.relname::text
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
         AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
    LEFT JOIN pg_extension e ON e.oid = d.refobjid
    LEFT JOIN pg_class r ON c.relispartition AND r.oid = pg_partition_root(c.oid)
    LEFT JOIN pg_namespace rn ON rn.oid = r.relnamespace
    WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
      AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'headwater')
    ORDER BY n.nspname, c.relname
"""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a table is not mirrored as it is, and what to do about it."""

    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    table: TableName
    obstacles: tuple[Obstacle, ...] = ()  # none: it can be mirrored
    readable: bool = True  # else the role lacks a privilege, which `check --sql` has a DBA grant


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tables of a database, by name."""

    database: str
    tables: tuple[Candidate, ...]


def candidates(url: str) -> Candidates:
    """Look at every table of the database, partitions and foreign tables included; system tables and ours are not."""
    with closing(connect(url, application_name="headwater init")) as connection, translated(url):
        return Candidates(connection.info.dbname, tuple(_candidates(connection)))


def _candidates(connection: Connection) -> Iterator[Candidate]:
    taken: dict[tuple[str, str], TableName] = {}  # names in the lake, in lower case
    for oid, schema, name, foreign, extension, *root in connection.execute(_TABLES).fetchall():
        table = TableName(schema, name)
        if obstacle := _kind(foreign, extension, root):
            yield Candidate(table, (obstacle,))
            continue
        lacking = {str(each) for each in access_problems(connection, oid)}
        wish = TableWish(table, reserved=reserved_columns(DuckLake))  # which `init` writes a config for
        problems = [each for each in table_problems(connection, wish, oid) if str(each) not in lacking]
        if problems:
            yield Candidate(table, tuple(_obstacle(table, each) for each in problems))
        elif (other := taken.setdefault((schema.lower(), name.lower()), table)) != table:
            hint = f"give it another name in the lake: {{table: {str(table)!r}, as: {schema.lower()}.another_name}}"
            yield Candidate(table, (Obstacle(f"to a lake, its name is the same as that of {other}", hint),))
        else:
            yield Candidate(table, readable=not lacking)


def _kind(foreign: bool, extension: str | None, root: list[str]) -> Obstacle | None:
    if root[0] is not None:
        return Obstacle(f"a partition of {TableName(*root)}, which is mirrored as a whole")
    if foreign:
        return Obstacle("a foreign table, whose rows are not in the WAL of this server")
    return Obstacle(f"belongs to the extension {extension!r}") if extension is not None else None


def _obstacle(table: TableName, problem: HeadwaterError) -> Obstacle:
    return Obstacle(problem.message.removeprefix(f"table {str(table)!r} "), problem.hint)
