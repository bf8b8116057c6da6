"""The tables of one delivery, and what the log has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from headwater.change import Column, Facts, Lsn, NewestCommit, Relation
from headwater.errors import TableError
from headwater.flow.mirroring import Mirroring, check_lake
from headwater.flow.versions import TableChanges, next_key_change, table_changes
from headwater.lake.sink import Plan, Standing
from headwater.log import LogSlice, Part, SegmentRef
from headwater.merge import Failure, Failures, Segment, StagedChanges
from headwater.state import Removal, TableRow
from headwater.state.transitions import Repositioned

__all__ = ["DeliveryTables", "StagedBatch", "chosen", "staged"]

_NO_FACTS = Facts()  # nothing that is done to rows depends on them


@dataclass(frozen=True, slots=True)
class DeliveryTables:
    """The tables that are delivered, and where they stand in the lake."""

    rows: Mapping[int, TableRow]
    everywhere: Mapping[int, Standing[Lsn]] = field(default_factory=dict)
    taking_part: Mapping[int, Standing[Lsn]] = field(default_factory=dict)  # in this delivery
    behind: bool = False  # those that take part come up to the others first
    upto: Lsn | None = None
    failed: Failures = field(default_factory=dict)
    left: Mapping[int, Standing[Lsn]] = field(default_factory=dict)  # behind the others, who go on without them
    removals: Sequence[Removal] = ()  # that the delivery stops for

    @property
    def start(self) -> Lsn:
        return min(each.position for each in self.taking_part.values())


def chosen(m: Mirroring, plan: Plan[Lsn], *, leave_behind: bool) -> DeliveryTables:
    """The tables to deliver now: all of them, or only those that are behind the others; or the others, if these were
    only copied too long ago, and are to be left behind for once.
    """
    rows = {row.oid: row for row in m.state.tables(m.group) if row.state in ("CATCHUP", "STREAMING")}
    standing = {oid: plan.standings[oid] for oid in rows if oid in plan.standings}
    if len(standing) < len(rows):
        check_lake(m)
    for oid, each in standing.items():
        _believe(m, rows[oid], each)
    failed = {oid: Failure(str(_dropped(row))) for oid, row in rows.items() if oid not in standing}
    if not standing:
        return DeliveryTables(rows, failed=failed)
    # A table that was away, or the others when one was copied later, first comes up to where the foremost is.
    lead = max(each.position for each in standing.values())
    behind = {oid: each for oid, each in standing.items() if each.position < lead}
    removals = _ahead(m, lead)
    stops = [fence.lsn for fence in m.state.fences(m.group) if fence.lsn > lead]
    stops += [each.lsn for each in removals if each.lsn is not None]
    stop = min(stops, default=None)
    if behind and not (leave_behind and all(rows[oid].state == "CATCHUP" for oid in behind)):
        if m.log.defined(behind, lead, m.log.end()):
            # Where the others are, it may have what only a later ALTER TABLE mends, and they may stay there for long.
            return DeliveryTables(rows, standing, standing, True, stop, failed, removals=removals)
        return DeliveryTables(rows, standing, behind, True, lead, failed)
    foremost = {oid: each for oid, each in standing.items() if oid not in behind}
    return DeliveryTables(rows, standing, foremost, False, stop, failed, behind, removals)


def _ahead(m: Mirroring, lead: Lsn) -> list[Removal]:
    """The removals that the lake comes to. It is past others already: another position is to be found for them."""
    placed = [each for each in m.state.removals(m.group) if each.lsn is not None]
    late = [each for each in placed if each.lsn is not None and each.lsn <= lead]
    if late:
        m.state.place_removals(late, None)
    return [each for each in placed if each not in late]


def _believe(m: Mirroring, row: TableRow, standing: Standing[Lsn]) -> None:
    """The lake's word is the truth: a crash may have kept it from the state."""
    if row.position != standing.position:
        m.state.record(m.group, row.oid, Repositioned(standing.position))
        m.state.note_counts(m.group, {row.oid: standing.counts})
    if row.lake != standing.name:
        source = standing.name if row.options.followed_name else None
        m.state.rename_table(m.group, row.oid, source=source, lake=standing.name)


def _dropped(row: TableRow) -> TableError:
    return TableError(
        f"the lake has no table {row.lake} any more",
        hint="another client dropped it there: stop this run, `headwater run --recopy` copies the table again",
    )


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """The next whole transactions in the log: up to where, and each table's part of them.

    `oldest` is the first commit of the segments with such a part, `age` for how many seconds the log has had them.
    """

    segments: tuple[Segment, ...]
    upto: Lsn
    changes: Mapping[int, TableChanges]
    newest: NewestCommit | None = None  # of the transactions
    oldest: datetime | None = None
    age: float = 0.0

    @property
    def reader(self) -> StagedChanges:
        versions = (relation for each in self.changes.values() for relation in each.versions)
        relations = {each.id: replace(each, columns=_shared(each.columns), facts=_NO_FACTS) for each in versions}
        return StagedChanges(self.segments, relations, self.upto)


@lru_cache(maxsize=4096)
def _shared(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The same columns for all tables that have these, so that they are sent to Spark once."""
    return columns


def staged(m: Mirroring, tables: DeliveryTables) -> StagedBatch:
    """The next batch for these tables; it never goes past a change of a key."""
    positions = {oid: each.position for oid, each in tables.taking_part.items()}
    batch = m.log.read(tables.start, tables.upto, m.max_rows)
    relations, parts = _parts(m, batch, positions)
    while (cut := next_key_change([each.known for each in parts], positions)) is not None:
        batch = m.log.read(tables.start, cut, m.max_rows)
        relations, parts = _parts(m, batch, positions)
    defined = m.log.defined(positions, tables.start, batch.upto)
    wanted = {each.relation.id for each in parts}
    wanted |= {relation.id for oid, (lsn, relation) in defined.items() if lsn >= positions[oid]}
    if not wanted <= relations.keys():  # asked for together, they come in the order of the timeline
        relations = m.log.relations(wanted)
    versions = [relation for id_, relation in relations.items() if id_ in wanted]
    segments = tuple(Segment(each.path, each.bytes, each.commit, each.aborted) for each in batch.segments)
    changes = table_changes([each.known for each in parts], versions)
    oldest = min((each.segment.first_commit for each in parts), default=None)
    age = max((each.segment.age for each in parts), default=0.0)
    return StagedBatch(segments, batch.upto, changes, batch.newest, oldest, age)


class _NewPart(NamedTuple):
    """What a segment has for a table that takes part."""

    segment: SegmentRef
    relation: Relation
    part: Part

    @property
    def known(self) -> tuple[Relation, Part]:
        return self.relation, self.part


def _parts(
    m: Mirroring, batch: LogSlice, positions: Mapping[int, Lsn]
) -> tuple[Mapping[int, Relation], list[_NewPart]]:
    """The versions that the segments have rows of, in the order of the timeline; the parts that are new for a table."""
    relations = m.log.relations(part.relation_id for segment in batch.segments for part in segment.parts)
    found = (
        _NewPart(segment, relations[part.relation_id], part) for segment in batch.segments for part in segment.parts
    )
    return relations, [
        each
        for each in found
        if each.relation.oid in positions
        and each.part.first_lsn < batch.upto
        and positions[each.relation.oid] < batch.upto
        and positions[each.relation.oid] <= each.part.last_lsn
    ]
