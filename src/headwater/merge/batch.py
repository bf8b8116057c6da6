"""What a merge works on: the tables of one batch and the segments that hold their changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headwater.change import Lsn, Relation
from headwater.types import LakeType

__all__ = ["Batch", "Mirror"]


@dataclass(frozen=True, slots=True)
class Mirror:
    """A table of the batch: where its copy in the lake stands, its newest shape, and how much is staged for it."""

    oid: int
    name: str
    start: Lsn  # transactions before it are in the lake already
    columns: tuple[tuple[str, LakeType], ...]
    key: tuple[str, ...]
    rows: int
    inserts_only: bool  # then no key can be in the lake yet, and nothing needs to be found there

    @property
    def key_types(self) -> list[LakeType]:
        kinds = dict(self.columns)
        return [kinds[name] for name in self.key]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, kind.arrow) for name, kind in self.columns])


@dataclass(frozen=True, slots=True)
class Batch:
    """Staged changes to merge: whole transactions, up to a position."""

    segments: tuple[tuple[str, int], ...]  # path and bytes
    mirrors: Mapping[int, Mirror]  # by the source's OID
    relations: Mapping[int, Relation]  # by version id
    upto: Lsn

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.segments)
