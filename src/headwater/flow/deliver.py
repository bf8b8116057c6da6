"""Log → lake: one batch of whole transactions, one snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headwater import failpoints
from headwater import merge as merging
from headwater.change import Lsn, Relation
from headwater.errors import AlreadyDelivered, CommitConflict, TableError
from headwater.flow.mirroring import Mirroring, fail
from headwater.log import Batch, Part
from headwater.sink.ducklake import Landed, Plan, Standing
from headwater.state import Counts, TableRow
from headwater.types import lake_type

__all__ = ["Delivered", "deliver"]


@dataclass(frozen=True, slots=True)
class Delivered:
    """The lake now shows the source at `position`. Without changes no snapshot was made."""

    position: Lsn
    snapshot_id: int = 0
    landed: Mapping[int, Landed] = field(default_factory=dict)
    upto: Mapping[int, Lsn] = field(default_factory=dict)  # new positions, by table


def deliver(m: Mirroring) -> Delivered:
    """The next batch of whole transactions becomes one snapshot, positions included."""
    plan = m.sink.plan()
    tables = _chosen(m, plan)
    if not tables.standing:
        return _recorded(m, tables, Delivered(Lsn(0)))
    staged = m.log.read(tables.start, tables.upto, m.max_rows)
    if not staged.segments and not tables.behind:
        return _recorded(m, tables, Delivered(staged.upto, plan.base.id))
    batch = _batch(m, tables, staged)
    merged = _merged(m, plan, batch)
    tables.failed.update(merged.failed)
    failpoints.hit("deliver.written")
    m.sink.discard(plan, {oid: merged.reports.pop(oid, []) for oid in merged.failed})
    upto = {oid: staged.upto for oid in tables.standing if oid not in tables.failed}
    try:
        snapshot, landed = m.sink.commit(plan, merged.reports, merged.truncated, upto) if upto else (plan.base.id, {})
    except (CommitConflict, AlreadyDelivered, TableError):
        m.sink.discard(plan, merged.reports)
        raise
    failpoints.hit("deliver.committed")
    # While some tables only come up to the others, the lake as a whole is where it was.
    reached = tables.start if tables.behind else staged.upto
    done = _recorded(m, tables, Delivered(reached, snapshot, landed, upto))
    failpoints.hit("deliver.recorded")
    return done


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of one delivery, where they stand, and those that cannot take part, with the reason."""

    rows: Mapping[int, TableRow]
    everywhere: Mapping[int, Standing]
    standing: Mapping[int, Standing]  # of those that take part
    behind: bool  # they come up to the others first
    upto: Lsn | None
    failed: dict[int, str]

    @property
    def start(self) -> Lsn:
        return min(each.position for each in self.standing.values())


def _chosen(m: Mirroring, plan: Plan) -> _Tables:
    rows = {row.oid: row for row in m.state.tables(m.group) if row.state in ("CATCHUP", "STREAMING")}
    standing = {oid: plan.standings[oid] for oid in rows if oid in plan.standings}
    for oid, each in standing.items():  # the lake's word is the truth: a crash may have kept it from the state
        if rows[oid].position != each.position:
            m.state.set_state(m.group, oid, rows[oid].state, position=each.position, failures=rows[oid].failures)
    failed = {oid: f"the lake has no table {row.lake} any more" for oid, row in rows.items() if oid not in standing}
    if not standing:
        return _Tables(rows, {}, {}, False, None, failed)
    # A table that was away, or the others when one was copied later, first comes up to where the foremost is.
    lead = max(each.position for each in standing.values())
    behind = {oid: each for oid, each in standing.items() if each.position < lead}
    if behind:
        return _Tables(rows, standing, behind, True, lead, failed)
    fences = (fence.lsn for fence in m.state.fences(m.group) if fence.lsn > lead)
    return _Tables(rows, standing, standing, False, min(fences, default=None), failed)


def _batch(m: Mirroring, tables: _Tables, staged: Batch) -> merging.Batch:
    """What the staged segments hold for these tables."""
    relations = m.log.relations(part.relation_id for segment in staged.segments for part in segment.parts)
    parts: defaultdict[int, list[Part]] = defaultdict(list)
    for segment in staged.segments:
        for part in segment.parts:
            parts[relations[part.relation_id].oid].append(part)
    mirrors = {}
    for oid in parts.keys() & tables.standing.keys():
        newest = relations[max(part.relation_id for part in parts[oid])]
        try:
            mirrors[oid] = _mirror(tables.rows[oid], tables.standing[oid], newest, parts[oid])
        except TableError as error:
            tables.failed[oid] = str(error)
    return merging.Batch(tuple((each.path, each.bytes) for each in staged.segments), mirrors, relations, staged.upto)


def _mirror(row: TableRow, standing: Standing, newest: Relation, parts: Iterable[Part]) -> merging.Mirror:
    if standing.table.partitioned:
        raise TableError(
            f"another client has partitioned {row.lake}, which this version does not write",
            hint=f"run `ALTER TABLE {row.lake} RESET PARTITIONED BY` in the lake",
        )
    columns = tuple((column.name, lake_type(column.type_oid, column.typmod)) for column in newest.columns)
    ours = {name: kind.ducklake for name, kind in columns}
    lakes = {field.name: field.type for field in standing.table.columns}
    if ours != lakes:
        changed = sorted(name for name, _ in ours.items() ^ lakes.items())
        raise TableError(
            f"table {row.source} and its mirror {row.lake} differ in column {changed[0]!r}",
            hint="schema changes are not followed in this version: undo it, or mirror the table anew with `as:`",
        )
    return merging.Mirror(
        oid=row.oid,
        name=str(row.source),
        start=standing.position,
        columns=columns,
        key=tuple(newest.columns[index].name for index in newest.key),
        rows=sum(part.rows for part in parts),
        # In CATCHUP an insert may have been copied already.
        inserts_only=row.state == "STREAMING" and all(part.ops == "I" for part in parts),
    )


def _merged(m: Mirroring, plan: Plan, batch: merging.Batch) -> merging.Merged:
    if not batch.mirrors:
        return merging.Merged()
    keys = {oid: mirror.key for oid, mirror in batch.mirrors.items()}
    return merging.merge(m.spark, batch, plan.target(keys), lambda wanted: m.sink.places(plan, keys, wanted), m.scratch)


def _recorded(m: Mirroring, tables: _Tables, done: Delivered) -> Delivered:
    """Tell the state what the lake already knows; the state's copy is for people to see."""
    counts = {oid: Counts(each.inserted, each.updated, each.deleted) for oid, each in done.landed.items()}
    if done.upto:
        m.state.record_delivery(m.group, done.position, done.snapshot_id, counts, done.upto)
    for oid, error in tables.failed.items():
        fail(m, tables.rows[oid], error)
    if done.position > Lsn(0):
        _moved_on(m, tables, done)
        foremost = max([*done.upto.values(), *(each.position for each in tables.everywhere.values())])
        m.state.reach_fences(m.group, done.position, done.snapshot_id, foremost)
    return done


def _moved_on(m: Mirroring, tables: _Tables, done: Delivered) -> None:
    """A table that the log has passed, and that is where the others are, is STREAMING."""
    end = m.log.end()
    for row in tables.rows.values():
        level = not tables.behind or row.oid not in tables.standing or done.upto.get(row.oid) == tables.upto
        if row.state == "CATCHUP" and row.oid not in tables.failed and level and (row.copy_lsn or end) <= end:
            m.state.set_state(m.group, row.oid, "STREAMING")
