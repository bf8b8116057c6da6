"""Columns as the source's catalog has them, worked out here by other means than Headwater's own."""

from __future__ import annotations

import psycopg

from headwater.change import BaseType, Column, Relation, TableName

__all__ = ["column_of", "relation_of"]

_SHAPE = """
SELECT a.attname, a.atttypid::bigint, a.atttypmod, a.attnum, a.attndims, format_type(a.atttypid, a.atttypmod)
FROM pg_attribute a
WHERE a.attrelid = format('%%I.%%I', %s::text, %s::text)::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_TYPE = """
SELECT typtype::text, typbasetype::bigint, typtypmod, typndims, typelem::bigint,
       typsubscript = 'array_subscript_handler'::regproc
FROM pg_type WHERE oid = %s
"""


def relation_of(conn: psycopg.Connection, schema: str, name: str) -> Relation:
    """A table's shape, no column of it a key."""
    rows = conn.execute(_SHAPE, (schema, name)).fetchall()
    columns = tuple(
        Column(name, oid, typmod, key=False, attnum=number, base=_base(conn, oid, typmod, dims, spelled))
        for name, oid, typmod, number, dims, spelled in rows
    )
    found = conn.execute("SELECT format('%%I.%%I', %s::text, %s::text)::regclass::oid::int", (schema, name)).fetchone()
    assert found is not None
    return Relation(1, found[0], TableName(schema, name), "d", columns)


def column_of(conn: psycopg.Connection, declared: str) -> Column:
    """A column declared so, of a table that is gone again."""
    with conn.transaction(force_rollback=True):
        conn.execute(f"CREATE TABLE public.declared (x {declared})")
        return relation_of(conn, "public", "declared").columns[0]


def _base(conn: psycopg.Connection, oid: int, typmod: int, dims: int, spelled: str) -> BaseType:
    depth = 0
    while True:
        row = conn.execute(_TYPE, (oid,)).fetchone()
        assert row is not None
        kind, under, its_typmod, its_dims, element, array = row
        if kind == "d":
            oid, typmod, dims = under, its_typmod, its_dims
        elif array and not depth:
            oid, depth = element, max(dims, 1)
        else:
            return BaseType(oid, typmod, depth, spelled)
