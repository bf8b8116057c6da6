"""Definitions of tables, read from the source's catalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headwater.change import Relation
from headwater.errors import ConfigError
from headwater.postgres.connect import Connection
from headwater.postgres.settings import TEXT_SETTINGS
from headwater.source.definition import GENERATED_SINCE, LISTS_SINCE, Definition, definition_sql, parse

__all__ = [
    "GENERATED_SINCE",
    "LISTS_SINCE",
    "PRINTED",
    "defined",
    "described",
    "described_all",
    "relation_of",
    "row_filter",
]

# How a session must be set for a definition: values are printed as the stream prints them, and type names in full.
PRINTED = {name: value for name, value in TEXT_SETTINGS.items() if name != "client_encoding"} | {
    "search_path": "pg_catalog",
    "jit": "off",  # compiling the query takes a hundred times as long as running it
}


def described(connection: Connection, oid: int, publication: str | None) -> Relation:
    """A table's columns as the publication sends them (None: as one of ours would); the version id is 0."""
    found = described_all(connection, [oid], publication).get(oid)
    if found is None:
        raise ConfigError(
            f"there is no table with OID {oid} in the source any more",
            hint="it was dropped: take it out of the config, and start `headwater run` again",
        )
    return found


def described_all(connection: Connection, oids: Iterable[int], publication: str | None) -> dict[int, Relation]:
    """The columns of those tables that there are, by OID."""
    found = defined(connection, oids)
    return {oid: relation_of(connection, each, publication) for oid, each in found.items()}


def relation_of(connection: Connection, definition: Definition, publication: str | None) -> Relation:
    generated = connection.info.server_version >= GENERATED_SINCE
    return definition.relation(definition.sent(publication, generated=generated))


def defined(
    connection: Connection, oids: Iterable[int], types: Iterable[tuple[int, int]] = ()
) -> dict[int, Definition]:
    """The definitions of those tables that there are, by OID; they know these types, too (OID and modifier)."""
    also = sorted(set(types))
    query = definition_sql(connection.info.server_version, "%(oids)s", "%(types)s", "%(typmods)s")
    asked = {"oids": list(oids), "types": [oid for oid, _ in also], "typmods": [typmod for _, typmod in also]}
    with _printing(connection):
        rows = connection.execute(query, asked).fetchall()
    found = (parse(row[0]) for row in rows)
    return {each.oid: each for each in found}


def row_filter(connection: Connection, publication: str, oid: int) -> str | None:
    """The condition, in SQL, that a row must meet to be sent; None: all are."""
    if connection.info.server_version < LISTS_SINCE:
        return None
    row = connection.execute(
        "SELECT pg_get_expr(r.prqual, r.prrelid) FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid"
        " WHERE p.pubname = %s AND r.prrelid = %s",
        (publication, oid),
    ).fetchone()
    return row[0] if row else None


@contextmanager
def _printing(connection: Connection) -> Iterator[None]:
    """Within, the session is set for definitions; afterwards it is as it was."""
    with connection.transaction(force_rollback=True):
        set_each = ", ".join("set_config(%s, %s, true)" for _ in PRINTED)
        connection.execute(f"SELECT {set_each}", [part for pair in PRINTED.items() for part in pair])
        yield
