"""pgoutput messages made by hand, and the relations they are about."""

from __future__ import annotations

import struct
from typing import Any

from headwater.change import BaseType, Column, Lsn, Relation, ReplicaIdentity, TableName
from headwater.merge.mirror import Mirror, MirrorColumn
from headwater.values.types import LakeType, lake_type

__all__ = [
    "DOUBLE", "INT4", "INT4S", "INT8", "NUMERIC", "OID", "TEXT", "TOAST", "column", "delete", "insert",
    "kind_of", "mirror", "number", "relation", "tuple_of", "update",
]  # fmt: skip

OID = 77  # of the table that all of it is about
TOAST = object()  # a large value that the update left alone, and PostgreSQL therefore did not send

INT4, INT8, TEXT, DOUBLE = (BaseType(oid, -1, 0, "") for oid in (23, 20, 25, 701))
NUMERIC = BaseType(1700, (10 << 16 | 2) + 4, 0, "numeric(10,2)")
INT4S = BaseType(23, -1, 1, "integer[]")


def tuple_of(mark: str, values: tuple[Any, ...]) -> bytes:
    def cell(value: Any) -> bytes:
        if value is None:
            return b"n"
        if value is TOAST:
            return b"u"
        text = str(value).encode()
        return b"t" + struct.pack("!I", len(text)) + text

    return mark.encode() + struct.pack("!H", len(values)) + b"".join(map(cell, values))


def insert(*new: Any) -> bytes:
    return b"I" + struct.pack("!I", OID) + tuple_of("N", new)


def update(*new: Any, key: tuple[Any, ...] | None = None, row: tuple[Any, ...] | None = None) -> bytes:
    old = tuple_of("K", key) if key else tuple_of("O", row) if row else b""
    return b"U" + struct.pack("!I", OID) + old + tuple_of("N", new)


def delete(*key: Any, row: tuple[Any, ...] | None = None) -> bytes:
    return b"D" + struct.pack("!I", OID) + (tuple_of("O", row) if row else tuple_of("K", key))


def column(name: str, base: BaseType, attnum: int, missing: str | None = None) -> Column:
    return Column(name, base.oid, base.typmod, name.startswith("id"), attnum, base, missing=missing)


def relation(*columns: Column, id: int = 1, identity: ReplicaIdentity = "d") -> Relation:
    return Relation(id, OID, TableName("public", "t"), identity, columns)


def kind_of(base: BaseType) -> LakeType:
    return lake_type(column("x", base, 1))


def mirror(newest: Relation, *, history: bool = False) -> Mirror:
    """The table's copy in the lake, in its newest shape; columns named id... are the key."""
    columns = tuple(MirrorColumn(each.name, lake_type(each), each.attnum, each.missing) for each in newest.columns)
    key = tuple(each.name for each in newest.columns if each.key)
    return Mirror(OID, "public.t", Lsn(0), columns, key, rows=0, bytes=0, inserts_only=False, history=history)


def number(value: int) -> bytes:
    """A key of one whole number."""
    return value.to_bytes(8, "big", signed=True)
