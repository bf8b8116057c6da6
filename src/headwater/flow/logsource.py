"""A mirrored table of PostgreSQL as the source of a route: its changes straight from the log, its rows from the mirror.

A route reads up to where the mirror is and no further, inside the group's delivery. So what the log does not tell, all
rows at a position, or a large value that an update left alone, the mirror has exactly as it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.change import Lsn, Relation, TableName
from headwater.errors import LogGap, Outdated, TableError
from headwater.flow.gaps import mend
from headwater.flow.identities import covers, identity_problem, needed
from headwater.flow.logbatch import LogBatch, read_batch
from headwater.flow.logtable import mirror_columns, source_at
from headwater.flow.mirroring import Mirroring
from headwater.flow.routesource import Changed, RouteRules, SourceAt
from headwater.lake.sink import Delivery, Kinds, Plan
from headwater.lake.stream import STAGED, Stream
from headwater.lake.target import Sought
from headwater.log import place
from headwater.merge import Mirror
from headwater.merge.mirrorrows import MirrorRows, ScanUnit
from headwater.route.units import EventUnit
from headwater.state import TableRow
from headwater.values.types import LakeType, lake_types

__all__ = ["LogSource"]

TRIMMED = "the log no longer has the changes that it has not read yet"
COPIED = "its table was copied again"
REMOVED = "a partition of its table lost its rows"
TRUNCATED = "its table was truncated"
OTHER_KEY = "its table has another key than before"
UNCOVERED = "for a while, the replica identity of its table did not tell where rows were"


@dataclass(frozen=True, slots=True)
class LogSource:
    """Implements `headwater.flow.routesource.RouteSource`, for the thread that delivers the group.

    `table` is its name in the config. Outdated: its mirror is not there yet, or about to be another one.
    """

    m: Mirroring
    table: TableName
    rules: RouteRules
    most: int  # rows of one read

    @property
    def stream(self) -> Stream[Lsn]:
        return STAGED

    def id(self) -> str:
        group = self.m.state.group(self.m.group)
        assert group is not None
        return place(group.source_id, group.name)

    def newest(self) -> SourceAt:
        row, plan = self._row(), self.m.sink.plan()
        standing = plan.standings.get(row.oid)
        if standing is None or row.state in ("PENDING", "SNAPSHOT", "CATCHUP"):
            raise self._waits("is being copied")
        relation = self._relation(row, standing.position)
        if problem := identity_problem(relation, self.rules):
            raise problem
        if _differs(plan, relation, self._kinds(row, relation)):
            raise self._waits("does not have its newest columns in the lake yet")
        return self._described(row, relation, standing.position)

    def oldest(self) -> SourceAt:
        return self.newest()

    def at(self, position: int) -> SourceAt | None:
        row, at = self._row(), Lsn(position)
        return self._described(row, self._relation(row, at), at)

    def gap(self, position: int) -> str | None:
        row, after, upto = self._row(), Lsn(position), self._reached()
        if not self.m.log.reaches(after):
            return TRIMMED
        if row.copy_lsn is not None and after < row.copy_lsn <= upto:
            return COPIED
        removed = self.m.state.removed(self.m.group, row.oid)
        if removed is not None and after < removed <= upto:
            return REMOVED
        batch, newest = self._read(row, after, upto, None), self._relation(row, upto)
        if not all(covers(each, needed(newest, self.rules)) for each in batch.versions("UD")):
            return UNCOVERED
        if not self.rules.keys and any(each.key_attnums != newest.key_attnums for each in batch.versions()):
            return OTHER_KEY
        return TRUNCATED if batch.truncates(self._mirror(row, newest, after)) else None

    def changes(self, after: int, upto: SourceAt) -> Changed:
        """TOASTed values that are missing are in the mirror: where some may be, it is read up to where that is."""
        row, reached = self._row(), self._reached()
        batch = self._read(row, Lsn(after), min(Lsn(upto.position.value), reached), self.most)
        toasted = any(each.identity != "f" for each in batch.versions("U"))
        if toasted:
            batch = self._read(row, Lsn(after), reached, None)
        relation = self._relation(row, batch.upto)
        at, mirror = self._described(row, relation, batch.upto), self._mirror(row, relation, batch.after)
        key = tuple(each.name for each in at.relation.columns if each.key)
        lake = self._mirror_rows(mirror, batch.upto) if toasted else None
        return Changed(at, batch.units(mirror, key, lake, self.m.spark.sparkContext.defaultParallelism))

    def scan(self, at: SourceAt) -> Sequence[EventUnit]:
        delivery = self._delivery(at.table, Lsn(at.position.value), (next(iter(at.readable)),))
        return [ScanUnit(delivery.target, each, at.position.value) for each in delivery.places({at.table: Sought()})]

    # -- the table

    def _row(self) -> TableRow:
        rows = (row for row in self.m.state.tables(self.m.group) if row.configured == self.table)
        row = next((row for row in rows if row.state != "REMOVED"), None)
        if row is None:
            raise self._waits("is not mirrored yet")
        return row

    def _reached(self) -> Lsn:
        """Where the mirror is."""
        standing = self.m.sink.standings().get(self._row().oid)
        if standing is None:
            raise self._waits("is being copied")
        return standing.position

    def _relation(self, row: TableRow, at: Lsn) -> Relation:
        found = self.m.log.relation_at(row.oid, at)
        if found is None:
            raise self._waits("has no known columns yet")
        return found

    def _waits(self, why: str) -> Outdated:
        return Outdated(f"table {str(self.table)!r} of group {self.m.group!r} {why}", hint="its routes wait for that")

    def _kinds(self, row: TableRow, relation: Relation) -> dict[str, LakeType]:
        return lake_types(relation.columns, row.options.types, calendar_only=self.m.sink.calendar_only)

    def _described(self, row: TableRow, relation: Relation, at: Lsn) -> SourceAt:
        return source_at(relation, self._kinds(row, relation), self.rules, at)

    # -- its changes, and its mirror

    def _read(self, row: TableRow, after: Lsn, upto: Lsn, most: int | None) -> LogBatch:
        try:
            return read_batch(self.m.log, row.oid, after, upto, most)
        except LogGap as gap:
            mend(self.m)
            raise Outdated(gap.message, hint="destinations that have not read them are seeded again") from gap

    def _mirror(self, row: TableRow, relation: Relation, start: Lsn) -> Mirror:
        key = tuple(each.name for each in relation.columns if each.key)
        columns = mirror_columns(relation, self._kinds(row, relation))
        return Mirror(row.oid, str(relation.table), start, columns, key, rows=0, bytes=0, inserts_only=False)

    def _mirror_rows(self, mirror: Mirror, at: Lsn) -> MirrorRows:
        delivery = self._delivery(mirror.oid, at, mirror.key)
        places = delivery.places({mirror.oid: Sought()})
        return MirrorRows(delivery.target, tuple(places), tuple(mirror.key_types))

    def _delivery(self, oid: int, at: Lsn, key: tuple[str, ...]) -> Delivery[Lsn]:
        """The mirror, which must be at this position; it is only read."""
        plan = self.m.sink.plan()
        standing = plan.standings.get(oid)
        if standing is None or standing.position != at:
            raise self._waits(f"is not at {at} any more")
        return plan.begin({oid: key}, attempt="read")


def _differs(plan: Plan[Lsn], relation: Relation, kinds: Kinds) -> bool:
    """Whether the mirror has other columns than this version of the table."""
    try:
        return plan.evolved(relation, kinds)[1]
    except TableError:
        return True
