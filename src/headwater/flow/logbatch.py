"""What the log has of one table between two positions, for a route to read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc

from headwater.change import Lsn, Relation
from headwater.log import Log, Part
from headwater.merge import Mirror, Segment, StagedChanges
from headwater.merge.images import ImageUnit
from headwater.merge.mirrorrows import MirrorRows
from headwater.merge.net import TRUNCATE
from headwater.spark import deal

__all__ = ["LogBatch", "PartOfTable", "read_batch"]


@dataclass(frozen=True, slots=True)
class PartOfTable:
    """A table's changes in one segment, under one version."""

    segment: Segment
    relation: Relation
    part: Part


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A table's changes that commit with after <= lsn < upto."""

    after: Lsn
    upto: Lsn
    parts: tuple[PartOfTable, ...]

    def versions(self, ops: str = "IUD") -> Iterator[Relation]:
        """The versions under which there are such changes."""
        return (each.relation for each in self.parts if set(ops) & set(each.part.ops))

    def truncates(self, table: Mirror) -> bool:
        """Whether the table is truncated in it; a subtransaction that was rolled back does not count."""
        segments = tuple(dict.fromkeys(each.segment for each in self.parts if "T" in each.part.ops))
        found = self._changes().read(segments, {table.oid: table})
        return any(pc.any(pc.equal(reads.rows["op"], TRUNCATE)).as_py() for reads in found)

    def units(self, table: Mirror, key: tuple[str, ...], lake: MirrorRows | None, tasks: int) -> list[ImageUnit]:
        """The events, in at most so many units of similar size."""
        sizes = dict[Segment, tuple[int, int]]()
        for each in self.parts:
            rows, size = sizes.get(each.segment, (0, 0))
            sizes[each.segment] = rows + each.part.rows, size + each.part.bytes
        return [
            ImageUnit(
                self._changes(), mine, table, key, sum(sizes[each][0] for each in mine),
                sum(sizes[each][1] for each in mine), lake,
            )
            for mine in deal([(segment, size) for segment, (_, size) in sizes.items()], tasks)
        ]  # fmt: skip

    def _changes(self) -> StagedChanges:
        relations = {each.relation.id: each.relation for each in self.parts}
        return StagedChanges((), relations, self.upto)


def read_batch(log: Log, oid: int, after: Lsn, upto: Lsn, most: int | None) -> LogBatch:
    """The next whole transactions, about `most` rows of the group's tables; LogGap if some of them are gone."""
    found = log.read(after, upto, most)
    relations = log.relations(part.relation_id for segment in found.segments for part in segment.parts)
    parts = (
        PartOfTable(Segment(each.path, each.bytes, each.commit, each.aborted), relations[part.relation_id], part)
        for each in found.segments
        for part in each.parts
        if relations[part.relation_id].oid == oid and part.last_lsn >= after and part.first_lsn < found.upto
    )
    return LogBatch(after, found.upto, tuple(parts))
