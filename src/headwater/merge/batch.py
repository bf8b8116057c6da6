"""What a merge works on: the tables of one batch, and the reader of their changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headwater.change import Position
from headwater.merge.mirror import Mirror
from headwater.merge.reader import ChangeReader

__all__ = ["Batch"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes to merge: whole transactions, up to a position."""

    reader: ChangeReader
    mirrors: Mapping[int, Mirror]  # by the source's OID
    upto: Position

    def only(self, tables: Collection[int]) -> Batch:
        """The changes to these tables."""
        mirrors = {oid: mirror for oid, mirror in self.mirrors.items() if oid in tables}
        return Batch(self.reader.only(tables), mirrors, self.upto)
