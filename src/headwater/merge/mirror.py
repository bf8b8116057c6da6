"""A table of a batch: its mirror in the lake, and how much there is to merge into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from headwater.change import Position
from headwater.pickling import pickled_by_fields
from headwater.values.types import LakeType

__all__ = ["Mirror", "MirrorColumn"]


class MirrorColumn(NamedTuple):
    """A column of the lake's table: its name and type there, its number in the source.

    `missing` is what rows show that PostgreSQL wrote before it had the column.
    """

    name: str
    kind: LakeType
    attnum: int
    missing: str | None = None

    @property
    def shown_before(self) -> bytes | None:
        return None if self.missing is None else self.missing.encode()


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Mirror:
    """A table of the batch: the position of its mirror, its newest columns, and how many changes there are for it."""

    oid: int
    name: str
    start: Position  # transactions before it are in the lake already
    columns: tuple[MirrorColumn, ...]
    key: tuple[str, ...]  # none: rows are known by all their values
    rows: int
    bytes: int  # of their messages
    inserts_only: bool  # then no key can be in the lake yet, and nothing needs to be found there
    history: bool = False  # every change becomes a row
    overlaps: bool = False  # rows in the lake may be later than its position: an insert may meet its own row

    @property
    def key_columns(self) -> tuple[MirrorColumn, ...]:
        """What rows are known by."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key) or self.columns

    @property
    def key_types(self) -> list[LakeType]:
        return [column.kind for column in self.key_columns]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.kind.arrow) for column in self.columns])
