"""What a table looks like: from the source's catalog, and a Relation message completed from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

from headwater.capture.aligned import Attribute, Entry, aligned
from headwater.change import BaseType, Column, Identity, Relation, TableName
from headwater.decode import TEXT_SETTINGS
from headwater.errors import ConfigError
from headwater.state.connect import Connection

__all__ = ["LISTS_SINCE", "carried", "completed", "described", "described_all", "row_filter"]

LISTS_SINCE = 150000  # a publication's lists of columns, and its row filters
_VECTORS = (22, 30)  # int2vector, oidvector: made like arrays, printed unlike them


def described(connection: Connection, oid: int, publication: str | None) -> Relation:
    """A table's shape as the publication sends it (None: as one of ours would); the version id is 0."""
    found = described_all(connection, [oid], publication).get(oid)
    if found is None:
        raise ConfigError(
            f"there is no table with OID {oid} in the source any more",
            hint="it was dropped: take it out of the config, and start `headwater run` again",
        )
    return found


def described_all(connection: Connection, oids: Iterable[int], publication: str | None) -> dict[int, Relation]:
    """The shapes of those tables that there are, by OID."""
    with _printing(connection):
        entries = _entries(connection, list(oids), publication)
        columns = [attribute for entry in entries.values() for attribute in entry.sent]
        types = _types(connection, {(each.type_oid, each.typmod) for each in columns})
    return {oid: _described(entry, types) for oid, entry in entries.items()}


def completed(
    connection: Connection, told: Relation, before: Relation | None, publication: str | None = None
) -> Relation:
    """What a Relation message tells, with what only the catalog knows; `before` is the newest version known.

    A column's attnum is 0 when the catalog has moved on since and it cannot be told any more which one it was.
    """
    with _printing(connection):
        entry = _entries(connection, [told.oid], publication).get(told.oid)
        types = _types(connection, {(each.type_oid, each.typmod) for each in told.columns})
    if entry is not None and _current(told, entry):
        attnums = aligned(told.columns, before, entry)
        found = _described(entry, types)
        columns = (replace(each, attnum=attnum) for each, attnum in zip(found.columns, attnums, strict=True))
        found = replace(found, id=told.id, table=told.table, columns=tuple(columns))
    else:
        found = _reconstructed(told, before, entry, types)
    return carried(found, before)


def carried(found: Relation, before: Relation | None) -> Relation:
    """A shape as it follows on an earlier one: what a column showed when it was added, it shows for ever."""
    if before is None:
        return found
    known = {column.attnum: column for column in before.columns if column.attnum}
    rewritten = before.filenode != found.filenode if before.filenode and found.filenode else None
    return replace(found, columns=tuple(_follows(each, known.get(each.attnum), rewritten) for each in found.columns))


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


def _follows(column: Column, earlier: Column | None, rewritten: bool | None) -> Column:
    if earlier is not None:
        return replace(column, missing=earlier.missing, volatile=earlier.volatile)
    if rewritten is None:
        return column
    # Not only with a default: it may have been dropped again, and the rewrite has made its value part of the rows.
    return replace(column, volatile=rewritten and column.missing is None)


def _current(told: Relation, entry: Entry) -> bool:
    """Does the catalog still say what the message says?"""
    have = [(each.name, each.type_oid, each.typmod) for each in entry.sent]
    return have == [(each.name, each.type_oid, each.typmod) for each in told.columns] and (
        told.identity == entry.identity and (told.identity in "fn" or _flagged(told, entry))
    )


def _flagged(told: Relation, entry: Entry) -> bool:
    return [each.key for each in told.columns] == [each.attnum in entry.key for each in entry.sent]


def _described(entry: Entry, types: _Types) -> Relation:
    columns = tuple(
        Column(
            name=each.name,
            type_oid=each.type_oid,
            typmod=each.typmod,
            key=each.attnum in entry.key,
            attnum=each.attnum,
            base=types.base(each.type_oid, each.typmod, each.dims),
            nullable=each.nullable,
            missing=each.missing,
            volatile=each.default and each.missing is None,
        )
        for each in entry.sent
    )
    return Relation(0, entry.oid, entry.table, cast(Identity, entry.identity), columns, entry.filenode)


def _reconstructed(told: Relation, before: Relation | None, entry: Entry | None, types: _Types) -> Relation:
    """A shape of the past: the message's own words, and of the rest what cannot be wrong."""
    attnums = aligned(told.columns, before, entry)
    key = _past_key(told, attnums, before, entry)
    known = {column.attnum: column for column in before.columns if column.attnum} if before else {}
    now = entry.attributes if entry else {}
    columns = (
        _past_column(replace(each, attnum=attnum, key=is_key), known.get(attnum), now.get(attnum), types)
        for each, attnum, is_key in zip(told.columns, attnums, key, strict=True)
    )
    return replace(told, columns=tuple(columns), filenode=entry.filenode if entry else 0)


def _past_column(column: Column, earlier: Column | None, now: Attribute | None, types: _Types) -> Column:
    dims = 1
    if now is not None and now.type_oid == column.type_oid:
        dims = now.dims
    elif earlier is not None and earlier.base is not None and earlier.type_oid == column.type_oid:
        dims = earlier.base.dims
    base = types.base(column.type_oid, column.typmod, dims)
    if now is None or now.dropped:
        # Nobody can say any more what it showed in rows that were there when it was added.
        return replace(column, base=base, volatile=True)
    nullable = now.nullable or earlier is None or earlier.nullable
    same = (now.type_oid, now.typmod) == (column.type_oid, column.typmod)
    volatile = not same or (now.default and now.missing is None)
    return replace(column, base=base, nullable=nullable, missing=now.missing if same else None, volatile=volatile)


def _past_key(told: Relation, attnums: list[int], before: Relation | None, entry: Entry | None) -> list[bool]:
    if told.identity in "di":
        return [each.key for each in told.columns]
    # FULL and NOTHING do not tell the primary key. Without one the rows are told apart by all they hold, which is
    # never wrong; so it counts only if it is the same before and now.
    key = entry.primary if entry else frozenset[int]()
    if before is not None and key != {column.attnum for column in before.columns if column.key}:
        key = frozenset()
    return [key <= set(attnums) and attnum in key for attnum in attnums]


@contextmanager
def _printing(connection: Connection) -> Iterator[None]:
    """Within, values are printed as the stream prints them; afterwards the session is as it was."""
    settings = {name: value for name, value in TEXT_SETTINGS.items() if name != "client_encoding"}
    with connection.transaction(force_rollback=True):
        set_each = ", ".join("set_config(%s, %s, true)" for _ in settings)
        connection.execute(f"SELECT {set_each}", [part for pair in settings.items() for part in pair])
        yield


_ENTRIES = """
    SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, c.relreplident::text,
           c.relfilenode::bigint,
           (SELECT (i.indkey::int2[])[0:i.indnkeyatts - 1] FROM pg_index i
            WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND i.indisvalid),
           (SELECT (i.indkey::int2[])[0:i.indnkeyatts - 1] FROM pg_index i
            WHERE i.indrelid = c.oid AND i.indisreplident AND i.indisvalid),
           a.attnum, a.attname::text, a.atttypid::bigint, a.atttypmod, a.attndims, NOT ({not_null}), a.attisdropped,
           NOT a.attisdropped AND ({sent}),
           a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL OR t.typdefaultbin IS NOT NULL,
           CASE WHEN a.atthasmissing THEN a.attmissingval::text END
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_publication p ON p.pubname = %(publication)s
    LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
    LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    LEFT JOIN pg_type t ON t.oid = a.atttypid
    WHERE c.oid = ANY(%(oids)s::oid[]) AND c.relkind IN ('r', 'p')
    ORDER BY c.oid, a.attnum
"""
_VALID_NOT_NULL = """
    a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'n'
                                 AND k.conkey = ARRAY[a.attnum] AND NOT k.convalidated)
"""
# A list names what is sent; without one it is all but generated columns, which 18 sends too when told to.
_SENT = {
    14: "a.attgenerated = ''",
    15: "CASE WHEN r.prattrs IS NULL THEN a.attgenerated = '' ELSE a.attnum = ANY(r.prattrs::int2[]) END",
    18: "CASE WHEN r.prattrs IS NULL"
    " THEN a.attgenerated = '' OR a.attgenerated = 's' AND coalesce(p.pubgencols, 's') = 's'"
    " ELSE a.attnum = ANY(r.prattrs::int2[]) END",
}


def _entries(connection: Connection, oids: list[int], publication: str | None) -> dict[int, Entry]:
    version = connection.info.server_version // 10000
    sent = _SENT[max(known for known in _SENT if known <= max(version, 14))]
    query = _ENTRIES.format(sent=sent, not_null=_VALID_NOT_NULL if version >= 18 else "a.attnotnull")
    rows = connection.execute(query, {"publication": publication, "oids": oids}).fetchall()
    entries = {oid: _entry(list(group)) for oid, group in groupby(rows, lambda row: int(row[0]))}
    return entries | _with_leaves_missing(connection, [each for each in entries.values() if each.kind == "p"])


def _entry(rows: list[tuple[Any, ...]]) -> Entry:
    oid, schema, name, kind, identity, filenode, primary, index = rows[0][:8]
    found = [replace(Attribute(*row[8:]), missing=_only_element(row[17])) for row in rows if row[8] is not None]
    return Entry(
        oid=oid,
        table=TableName(schema, name),
        kind=kind,
        identity=identity,
        filenode=filenode,
        primary=frozenset(primary or ()),
        index=frozenset(index or ()),
        attributes={each.attnum: each for each in found},
    )


def _with_leaves_missing(connection: Connection, roots: list[Entry]) -> dict[int, Entry]:
    """The roots, with what only their leaves remember: what rows from before ADD COLUMN show."""
    if not roots:
        return {}
    rows = connection.execute(
        "SELECT DISTINCT ON (root, a.attname) root::bigint, a.attname::text, a.attmissingval::text"
        " FROM unnest(%s::oid[]) root, LATERAL pg_partition_tree(root::regclass) leaf"
        " JOIN pg_attribute a ON a.attrelid = leaf.relid AND a.atthasmissing AND NOT a.attisdropped WHERE leaf.isleaf",
        ([each.oid for each in roots],),
    ).fetchall()
    missing = {(oid, name): _only_element(text) for oid, name, text in rows}

    def filled(root: Entry) -> Entry:
        found = {n: replace(a, missing=missing.get((root.oid, a.name))) for n, a in root.attributes.items()}
        return replace(root, attributes=found)

    return {each.oid: filled(each) for each in roots}


def _only_element(array: str | None) -> str | None:
    """The element of a one-element array's text. Not by SQL: the delimiter depends on the type."""
    if array is None:
        return None
    inner = array[1:-1]
    return re.sub(r"\\(.)", r"\1", inner[1:-1], flags=re.DOTALL) if inner.startswith('"') else inner


@dataclass(frozen=True, slots=True)
class _Type:
    """A row of pg_type: of a domain, the type below it; of an array, its elements' type."""

    domain_of: int
    typmod: int
    dims: int
    element: int
    delimiter: str  # of arrays of it


@dataclass(frozen=True, slots=True)
class _Types:
    """Types by OID, and the spelling of types with their modifiers."""

    known: Mapping[int, _Type]
    names: Mapping[tuple[int, int], str]

    def base(self, oid: int, typmod: int, dims: int) -> BaseType | None:
        """What a type comes down to; None if it is gone."""
        if oid not in self.known:
            return None
        name = self.names[oid, typmod]
        oid, typmod, dims = self._peeled(oid, typmod, dims)
        if element := self.known[oid].element:
            dims = max(dims, 1)
            # A domain over an array, as the element of an array, stays one: its text is one value.
            oid, typmod, _ = self._peeled(element, typmod, 0)
            return BaseType(oid, typmod, dims, name, self.known[element].delimiter)
        return BaseType(oid, typmod, 0, name)

    def _peeled(self, oid: int, typmod: int, dims: int) -> tuple[int, int, int]:
        while below := self.known[oid].domain_of:
            oid, typmod, dims = below, self.known[oid].typmod, self.known[oid].dims
        return oid, typmod, dims


def _types(connection: Connection, used: set[tuple[int, int]]) -> _Types:
    rows = connection.execute(
        "WITH RECURSIVE needed(oid) AS (SELECT unnest(%s::oid[]) UNION SELECT below.oid FROM needed"
        " JOIN pg_type t ON t.oid = needed.oid, LATERAL unnest(ARRAY[t.typbasetype, t.typelem]) below(oid)"
        " WHERE below.oid <> 0)"
        " SELECT t.oid::bigint, t.typbasetype::bigint, t.typtypmod, t.typndims, CASE"
        " WHEN t.typsubscript = 'array_subscript_handler'::regproc AND t.oid <> ALL(%s::oid[]) THEN t.typelem::bigint"
        " ELSE 0 END, t.typdelim::text FROM needed JOIN pg_type t USING (oid)",
        ([oid for oid, _ in used], list(_VECTORS)),
    ).fetchall()
    pairs = sorted(used)
    names = connection.execute(
        "SELECT oid::bigint, typmod, format_type(oid, typmod) FROM unnest(%s::oid[], %s::int[]) used(oid, typmod)",
        ([oid for oid, _ in pairs], [typmod for _, typmod in pairs]),
    ).fetchall()
    return _Types({row[0]: _Type(*row[1:]) for row in rows}, {(oid, typmod): name for oid, typmod, name in names})
