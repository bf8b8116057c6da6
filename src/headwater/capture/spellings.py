"""Types whose definition says how their values are printed: when it changes, rows read otherwise, and none is sent."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.change import Relation
from headwater.state.connect import Connection

__all__ = ["Spellings", "respelled", "spellings"]

# Of a table's types, by OID: an enum's labels, the oldest first; a composite type's attributes by their types, as one.
Spellings = dict[int, list[str]]


def spellings(connection: Connection, shapes: Mapping[int, Relation]) -> dict[int, Spellings]:
    """By table, those of its types that have one."""
    used = {
        oid: {column.base.oid for column in shape.columns if column.base is not None} for oid, shape in shapes.items()
    }
    rows = connection.execute(
        "SELECT t.oid::bigint, CASE t.typtype"
        " WHEN 'e' THEN (SELECT array_agg(enumlabel::text ORDER BY e.oid) FROM pg_enum e WHERE enumtypid = t.oid)"
        " ELSE ARRAY[(SELECT string_agg(format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute"
        " WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped)] END"
        " FROM pg_type t WHERE t.oid = ANY(%s::oid[]) AND t.typtype IN ('e', 'c')",
        (sorted(set().union(*used.values())),),
    ).fetchall()
    words: Spellings = {type_: spelled or [] for type_, spelled in rows}
    return {oid: {type_: words[type_] for type_ in sorted(types) if type_ in words} for oid, types in used.items()}


def respelled(before: Spellings, now: Spellings) -> bool:
    """Whether values that were there are printed otherwise now; more labels change nothing."""
    return any(now[type_][: len(words)] != words for type_, words in before.items() if type_ in now)
