"""The facts that travel through every stage: a stream's position, a commit, a version of a source table's columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal, NamedTuple, Self

from headwater.pickling import pickled_by_fields

__all__ = [
    "BaseType",
    "Column",
    "Committed",
    "Facts",
    "Lsn",
    "NewestCommit",
    "Position",
    "Relation",
    "ReplicaIdentity",
    "SnapshotId",
    "TableName",
]

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_$]*")

ReplicaIdentity = Literal["d", "n", "f", "i"]  # replica identity as PostgreSQL spells it: default, nothing, full, index


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """How far a stream of changes has come. Positions of one stream have an order.

    A merge and a sink know no more about it. Of PostgreSQL's stream it is an LSN, of a DuckLake's a snapshot; each says
    by itself whether a change exactly there is included. One kind is never compared with another.
    """

    label: ClassVar[str]  # what a lake's commits call it
    value: int

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.value,)  # as `pickled_by_fields` does for more than one

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` has written; ValueError if it is something else."""
        return cls(int(text))

    def at(self, value: int) -> Self:
        """Another position of the same stream."""
        return type(self)(value)

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True, order=True)
class Lsn(Position):
    """A byte position in the write-ahead log.

    As a position (of the log, of a lake) it means that every transaction whose commit record starts before it is
    included. A transaction with `commit_lsn == position` is therefore not included yet, and a snapshot exported at its
    consistent point is the source at exactly that position.
    """

    label: ClassVar[str] = "lsn"

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _LSN.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not an LSN: {text!r}")
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId(Position):
    """A snapshot of a DuckLake: as a position, it means that everything is included which that snapshot shows."""

    label: ClassVar[str] = "snapshot"


class TableName(NamedTuple):
    """A schema-qualified name, exactly as PostgreSQL stores it (no case folding)."""

    schema: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read `schema.table` or `"Odd schema".tab`; without a schema it is `public`."""
        parts = re.findall(r'"((?:[^"]|"")+)"|([^."]+)', text)
        names = [quoted.replace('""', '"') or plain for quoted, plain in parts]
        rebuilt = ".".join(f'"{quoted}"' if quoted else plain for quoted, plain in parts)
        if rebuilt != text or len(names) not in (1, 2):
            raise ValueError(f"not a table name: {text!r} (write schema.table)")
        return cls(names[0], names[1]) if len(names) == 2 else cls("public", names[0])

    def __str__(self) -> str:
        return ".".join(n if _PLAIN_NAME.fullmatch(n) else '"' + n.replace('"', '""') + '"' for n in self)


class Committed(NamedTuple):
    """The commit of a transaction: where, when, and its number."""

    lsn: Lsn
    ts: datetime
    xid: int


class NewestCommit(NamedTuple):
    """The newest of several transactions: where it committed, and the latest time at which one of them did."""

    lsn: Lsn
    ts: datetime


class BaseType(NamedTuple):
    """The type underneath a column's type: that of a domain, or of an array's elements."""

    oid: int
    typmod: int
    dims: int  # of an array as it was declared, at least 1; 0: not an array
    name: str  # as PostgreSQL spells the column's own type
    delimiter: str = ","  # between the elements of an array's text


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Column:
    """A column as pgoutput's Relation message describes it, and what the source's catalog adds."""

    name: str
    type_oid: int
    typmod: int
    key: bool  # part of the key that rows are merged by
    attnum: int = 0  # pg_attribute.attnum: it survives a rename and is never reused; 0: not known
    base: BaseType | None = None  # None: the catalog no longer had the type
    nullable: bool = True
    missing: str | None = None  # what rows from before ADD COLUMN ... DEFAULT show, as PostgreSQL prints it
    volatile: bool = False  # older rows may hold values in it that no message has sent
    stamp: str = field(default="", compare=False)  # changes with every change of its entry in the catalog

    def __hash__(self) -> int:
        return hash((self.name, self.attnum))  # enough, and asked for very often


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Facts:
    """What the catalog says about a table besides its columns, to compare two moments."""

    files: Mapping[int, int] = field(
        default_factory=dict
    )  # filenodes; of a partitioned table, those of its leaf partitions
    parts: Mapping[int, list[str]] = field(default_factory=dict)  # labels of enums, attributes of composite types
    primary_index: int = 0  # OID of the primary key's index
    unsent: list[int] = field(default_factory=list)  # columns that no message sends, by their numbers


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Relation:
    """One version of a source table's columns. `id` identifies the version, `oid` the table.

    Without key columns the table has no key: rows are compared by all their values.
    A higher `generation` than an earlier version's means that rows may have values that no message has sent, for the
    `reason` given, so that only a new copy can show them.
    """

    id: int
    oid: int
    table: TableName
    identity: ReplicaIdentity
    columns: tuple[Column, ...]
    facts: Facts = field(default=Facts(), compare=False)
    generation: int = 0
    reason: str = field(default="", compare=False)

    @property
    def key(self) -> tuple[int, ...]:
        """Indexes of the key columns, in the table's column order."""
        return tuple(index for index, column in enumerate(self.columns) if column.key)

    @property
    def key_attnums(self) -> frozenset[int]:
        """The key columns by the numbers that survive a rename."""
        return frozenset(column.attnum for column in self.columns if column.key)
