"""Tables by pattern: which tables a source has, and which of those that match cannot be mirrored as they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import psycopg

from headwater.change import TableName
from headwater.errors import HeadwaterError, OperatorMustAct
from headwater.lake import history
from headwater.postgres.connect import Connection
from headwater.source.alterations import PublicationMember, add_tables
from headwater.source.checkserver import NO_ENCODING
from headwater.source.checktable import TableWish, table_problems, unreadable_columns

__all__ = ["CatalogTable", "Skipped", "catalog_tables", "obstacles"]

# Not the system's, ours, an extension's or a lake's catalog's (which every delivery changes), and no partitions: they
# are mirrored with their root. In doubt, a table is looked at on its own.
_TABLES = f"""
    SELECT c.oid::bigint, n.nspname::text, c.relname::text, coalesce(
        c.relkind = 'p' OR c.relpersistence <> 'p' OR row_security_active(c.oid)
        OR NOT has_schema_privilege(n.oid, 'USAGE') OR NOT has_table_privilege(c.oid, 'SELECT')
        OR NOT (c.relreplident = 'f' OR EXISTS (
            SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND CASE c.relreplident
                WHEN 'd' THEN i.indisprimary AND i.indimmediate WHEN 'i' THEN i.indisreplident ELSE false END))
        OR getdatabaseencoding() = '{NO_ENCODING}'
        OR CASE WHEN getdatabaseencoding() <> '{NO_ENCODING}' THEN (
            SELECT count(DISTINCT lower(a.attname::text)) < count(*) OR bool_or(lower(a.attname::text) = ANY(%(names)s)
                OR octet_length(convert_to(a.attname::text, 'UTF8')) <> char_length(a.attname::text))
            FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) END, false)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
      AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'headwater')
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
          AND d.objsubid = 0 AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e')
      AND NOT (c.relname ~ '^(ducklake|headwater)_' AND EXISTS (SELECT FROM pg_class m
          WHERE m.relnamespace = c.relnamespace AND m.relname = 'ducklake_metadata'))
      AND NOT (c.relname IN ('iceberg_tables', 'iceberg_namespace_properties') AND EXISTS (SELECT FROM pg_class m
          WHERE m.relnamespace = c.relnamespace AND m.relname = 'iceberg_namespace_properties'))
    ORDER BY c.oid
"""
_UNPUBLISHED = """
    SELECT c.oid::bigint, pg_get_userbyid(p.pubowner)::text FROM pg_publication p, pg_class c
    WHERE p.pubname = %s AND c.oid = ANY(%s::oid[])
      AND NOT EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)
      AND NOT (pg_has_role(p.pubowner, 'USAGE') AND pg_has_role(c.relowner, 'USAGE'))
"""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of the source. One that is not `doubtful` can be mirrored; another one perhaps not."""

    oid: int
    name: TableName
    doubtful: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """A table that a pattern matches, and that a group does not mirror, with what to do about it."""

    group: str
    table: TableName
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        said = (
            f"table {str(self.table)!r} matches a pattern of group {self.group!r}, and is not mirrored: {self.reason}"
        )
        return f"{said}\nhint: {self.hint}" if self.hint else said


def catalog_tables(connection: Connection, reserved: Collection[str] = ()) -> list[CatalogTable]:
    """The tables that patterns may match, the oldest first; `reserved` are names of columns that lakes keep."""
    try:
        rows = connection.execute(_TABLES, {"names": [*reserved, *history.COLUMNS]}).fetchall()
    except psycopg.errors.CharacterNotInRepertoire as error:
        raise OperatorMustAct(
            f"the name of a table in the source is not UTF-8: {str(error).strip()}",
            hint="rename it, or list the tables instead of a pattern",
        ) from error
    return [CatalogTable(oid, TableName(schema, name), doubtful) for oid, schema, name, doubtful in rows]


def obstacles(
    connection: Connection, publication: str, tables: Mapping[CatalogTable, TableWish]
) -> dict[CatalogTable, list[HeadwaterError]]:
    """Why some of the tables cannot be mirrored as they are wanted; those that can are not in it."""
    unpublished = _unpublished(connection, publication, tables)
    found = {
        table: [*_problems(connection, table, wish), *unpublished.get(table, ())] for table, wish in tables.items()
    }
    return {table: problems for table, problems in found.items() if problems}


def _problems(connection: Connection, table: CatalogTable, wish: TableWish) -> Iterator[HeadwaterError]:
    if not table.doubtful:
        return
    if names := unreadable_columns(connection, table.name, table.oid):
        yield from names
        return
    yield from table_problems(connection, wish, table.oid)


def _unpublished(
    connection: Connection, publication: str, tables: Iterable[CatalogTable]
) -> dict[CatalogTable, list[HeadwaterError]]:
    """Tables that the publication lacks, and that our role may not add. One that is not there yet lacks none."""
    by_oid = {table.oid: table for table in tables}
    found: dict[CatalogTable, list[HeadwaterError]] = {}
    for oid, owner in connection.execute(_UNPUBLISHED, (publication, list(by_oid))).fetchall():
        add = add_tables(publication, [PublicationMember(by_oid[oid].name)]).as_string(None)
        found[by_oid[oid]] = [
            OperatorMustAct(
                f"publication {publication!r} does not list it, and role {connection.info.user!r} may not add it",
                hint=f"let the publication's owner, {owner!r}, or a superuser run: {add};",
            )
        ]
    return found
