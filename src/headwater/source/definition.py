"""A table's definition in the source's catalog at one moment, types down to their parts. No IO.

The same SQL reads it over a connection and inside the event triggers, which put it into the WAL beside the rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from headwater.change import BaseType, Column, Facts, Relation, ReplicaIdentity, TableName

__all__ = ["GENERATED_SINCE", "LISTS_SINCE", "Attribute", "Definition", "Rewrite", "definition_sql", "parse"]

LISTS_SINCE = 150000  # a publication's lists of columns, and its row filters
GENERATED_SINCE = 180000  # a publication's generated columns; constraints NOT NULL that are NOT VALID

# What one command of ALTER TABLE did to the rows that were there: nothing, a cast to another type, or anything.
Rewrite = Literal["none", "cast", "values"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A row of pg_attribute."""

    attnum: int
    name: str
    type_oid: int
    typmod: int
    dims: int
    nullable: bool
    dropped: bool
    generated: str  # empty, s: stored, v: virtual
    missing: str | None  # what rows from before ADD COLUMN ... DEFAULT show; kept until the table is rewritten
    stamp: str  # another one after every change of this row, or of its default


@dataclass(frozen=True, slots=True)
class _Published:
    """A table's entry in a publication. `columns` is None where all are sent that can be."""

    columns: frozenset[int] | None
    generated: bool  # stored generated columns are among them


@dataclass(frozen=True, slots=True)
class _Type:
    """A row of pg_type: of a domain, the type below it; of an array, its elements' type."""

    domain_of: int
    typmod: int
    dims: int
    element: int
    delimiter: str  # of arrays of it
    parts: list[str] | None  # an enum's labels, the oldest first; a composite type's attributes, as one
    below: list[int]  # the types that it is made of


@dataclass(frozen=True, slots=True)
class Definition:
    """A table as the catalog has it, and what the command that reported it did to its rows."""

    oid: int
    table: TableName
    kind: str  # r: plain, p: partitioned
    identity: ReplicaIdentity
    files: Mapping[int, int]  # filenodes, of a partitioned table those of its leaves, by OID
    primary: frozenset[int]  # attribute numbers of an immediate primary key
    primary_index: int  # its OID, or 0
    index: frozenset[int]  # attribute numbers of the index that is the replica identity
    attributes: Mapping[int, Attribute]
    publications: Mapping[str, _Published]
    types: Mapping[int, _Type]
    names: Mapping[tuple[int, int], str]  # as format_type spells a type with its modifier
    rewrite: Rewrite = "none"
    xid: int = 0  # the subtransaction whose command it was; 0: not known

    @property
    def key(self) -> frozenset[int]:
        """The columns that rows are merged by."""
        return self.index if self.identity == "i" else self.primary

    def sent(self, publication: str | None, *, generated: bool) -> tuple[Attribute, ...]:
        """The columns that a publication sends; None: one of ours, which sends stored columns if `generated`."""
        entry = self.publications.get(publication or "", _Published(None, generated))
        alive = (each for _, each in sorted(self.attributes.items()) if not each.dropped)
        if entry.columns is not None:
            return tuple(each for each in alive if each.attnum in entry.columns)
        return tuple(each for each in alive if each.generated == "" or (each.generated == "s" and entry.generated))

    def relation(self, sent: Iterable[Attribute]) -> Relation:
        """The definition as a relation version of these columns; its id is 0."""
        columns = tuple(map(self.column, sent))
        parts = self._parts(each.type_oid for each in columns)
        alive = {number for number, each in self.attributes.items() if not each.dropped}
        unsent = sorted(alive - {each.attnum for each in columns})
        facts = Facts(dict(self.files), parts, self.primary_index, unsent)
        return Relation(0, self.oid, self.table, self.identity, columns, facts)

    def column(self, each: Attribute) -> Column:
        return Column(
            name=each.name,
            type_oid=each.type_oid,
            typmod=each.typmod,
            key=each.attnum in self.key,
            attnum=each.attnum,
            base=self.base(each.type_oid, each.typmod, each.dims),
            nullable=each.nullable,
            missing=each.missing,
            stamp=each.stamp,
        )

    def base(self, oid: int, typmod: int, dims: int) -> BaseType | None:
        """What a type comes down to; None if the definition does not know it."""
        if oid not in self.types or (oid, typmod) not in self.names:
            return None
        name = self.names[oid, typmod]
        oid, typmod, dims = self._peeled(oid, typmod, dims)
        if element := self.types[oid].element:
            dims = max(dims, 1)
            # A domain over an array, as the element of an array, stays one: its text is one value.
            oid, typmod, _ = self._peeled(element, typmod, 0)
            return BaseType(oid, typmod, dims, name, self.types[element].delimiter)
        return BaseType(oid, typmod, 0, name)

    def _parts(self, used: Iterable[int]) -> dict[int, list[str]]:
        """By OID, the types among these and below them whose definition says how their values are printed."""
        found: dict[int, list[str]] = {}
        seen, waiting = set[int](), list(used)
        while waiting:
            oid = waiting.pop()
            if oid in seen or oid not in self.types:
                continue
            seen.add(oid)
            if (parts := self.types[oid].parts) is not None:
                found[oid] = parts
            waiting += self.types[oid].below
        return dict(sorted(found.items()))

    def _peeled(self, oid: int, typmod: int, dims: int) -> tuple[int, int, int]:
        while below := self.types[oid].domain_of:
            oid, typmod, dims = below, self.types[oid].typmod, self.types[oid].dims
        return oid, typmod, dims


def parse(text: str | Mapping[str, Any]) -> Definition:
    """The definition that `definition_sql` returns, or that an event trigger reports."""
    found = json.loads(text) if isinstance(text, str) else text
    index, primary = found["primary"] or (0, ())
    leaves = found["leaves"] or {}
    attributes = [Attribute(*each) for each in found["attributes"] or ()]
    attributes = [replace(each, missing=_only_element(leaves.get(each.name, each.missing))) for each in attributes]
    return Definition(
        oid=found["oid"],
        table=TableName(found["schema"], found["name"]),
        kind=found["kind"],
        identity=cast(ReplicaIdentity, found["identity"]),
        files={int(oid): file for oid, file in found["files"].items()},
        primary=frozenset(primary),
        primary_index=index,
        index=frozenset(found["index"] or ()),
        attributes={each.attnum: each for each in attributes},
        publications={
            name: _Published(None if columns is None else frozenset(columns), generated)
            for name, (columns, generated) in found["publications"].items()
        },
        types={oid: _Type(*rest) for oid, *rest in found["types"] or ()},
        names={(oid, typmod): name for oid, typmod, name in found["names"] or ()},
        rewrite=found.get("rewrite", "none"),
        xid=found.get("xid", 0),
    )


def definition_sql(version: int, oids: str, types: str, typmods: str) -> str:
    """A query for the definitions, as JSON, of tables and, besides theirs, of types; the three are arrays in SQL.

    `version` is the server's, as `server_version_num` has it.
    """
    lists = "to_json(r.prattrs::int2[])" if version >= LISTS_SINCE else "NULL::json"
    generated = "p.pubgencols = 's'" if version >= GENERATED_SINCE else "false"
    not_null = _VALID_NOT_NULL if version >= GENERATED_SINCE else "a.attnotnull"
    constant = {"key": _KEY, "below": _BELOW, "vectors": "{22,30}"}  # int2vector, oidvector: printed unlike arrays
    return _SQL.format(
        oids=oids, types=types, typmods=typmods, lists=lists, generated=generated, not_null=not_null, **constant
    )


_VALID_NOT_NULL = """
    a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'n'
                                 AND k.conkey = ARRAY[a.attnum] AND NOT k.convalidated)
"""
_KEY = "to_json((i.indkey::int2[])[0:i.indnkeyatts - 1])"
_BELOW = """
    SELECT one.oid FROM pg_type t, unnest(ARRAY[t.typbasetype, t.typelem]) one(oid)
    WHERE t.oid = needed.oid AND one.oid <> 0
    UNION ALL SELECT rngsubtype FROM pg_range WHERE rngtypid = needed.oid
    UNION ALL SELECT rngtypid FROM pg_range WHERE rngmultitypid = needed.oid
    UNION ALL SELECT a.atttypid FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid
    WHERE t.oid = needed.oid AND t.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped
"""
_SQL = """
    SELECT json_build_object(
        'oid', c.oid::bigint, 'schema', n.nspname, 'name', c.relname, 'kind', c.relkind, 'identity', c.relreplident,
        'files', CASE c.relkind WHEN 'r' THEN json_build_object(c.oid::bigint, c.relfilenode::bigint) ELSE (
            SELECT coalesce(json_object_agg(f.oid::bigint, f.relfilenode::bigint), '{{}}'::json)
            FROM pg_partition_tree(c.oid) leaf JOIN pg_class f ON f.oid = leaf.relid WHERE leaf.isleaf) END,
        'primary', (SELECT json_build_array(i.indexrelid::bigint, {key}) FROM pg_index i
                    WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND i.indisvalid),
        'index', (SELECT {key} FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident AND i.indisvalid),
        'attributes', (
            SELECT json_agg(json_build_array(
                a.attnum, a.attname, a.atttypid::bigint, a.atttypmod, a.attndims, NOT ({not_null}), a.attisdropped,
                a.attgenerated, CASE WHEN a.atthasmissing THEN a.attmissingval::text END,
                concat_ws('/', a.xmin, d.oid, d.xmin)) ORDER BY a.attnum)
            FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attrelid = c.oid AND a.attnum > 0),
        'leaves', CASE c.relkind WHEN 'p' THEN (
            SELECT json_object_agg(a.attname, a.attmissingval::text) FROM pg_partition_tree(c.oid) leaf
            JOIN pg_attribute a ON a.attrelid = leaf.relid AND a.atthasmissing AND NOT a.attisdropped
            WHERE leaf.isleaf) END,
        'publications', (
            SELECT coalesce(json_object_agg(p.pubname, json_build_array({lists}, {generated})), '{{}}'::json)
            FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = c.oid),
        'types', (
            WITH RECURSIVE needed(oid) AS (
                SELECT used.oid FROM (
                    SELECT a.atttypid FROM pg_attribute a
                    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                    UNION SELECT unnest({types}::oid[])) used(oid)
                UNION SELECT part.oid FROM needed CROSS JOIN LATERAL ({below}) part)
            SELECT json_agg(json_build_array(
                needed.oid::bigint, t.typbasetype::bigint, t.typtypmod, t.typndims,
                CASE WHEN t.typsubscript = 'array_subscript_handler'::regproc AND t.oid <> ALL ('{vectors}'::oid[])
                     THEN t.typelem::bigint ELSE 0 END,
                t.typdelim,
                CASE t.typtype
                WHEN 'e' THEN to_json(ARRAY(
                    SELECT enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.oid))
                WHEN 'c' THEN to_json(ARRAY[coalesce((
                    SELECT string_agg(concat_ws(' ', a.attnum, a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
                    FROM pg_attribute a
                    WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped), '')]) END,
                to_json(ARRAY(SELECT part.oid::bigint FROM ({below}) part))))
            FROM needed JOIN pg_type t ON t.oid = needed.oid),
        'names', (
            SELECT json_agg(json_build_array(named.oid::bigint, named.typmod, format_type(named.oid, named.typmod)))
            FROM (SELECT a.atttypid, a.atttypmod FROM pg_attribute a
                  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                  UNION SELECT * FROM unnest({types}::oid[], {typmods}::int4[])) named(oid, typmod)))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = ANY({oids}::oid[]) AND c.relkind IN ('r', 'p')
"""


def _only_element(array: str | None) -> str | None:
    """The element of a one-element array's text. Not by SQL: the delimiter depends on the type."""
    if array is None:
        return None
    inner = array[1:-1]
    return re.sub(r"\\(.)", r"\1", inner[1:-1], flags=re.DOTALL) if inner.startswith('"') else inner
