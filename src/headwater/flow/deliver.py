"""Log → lake: one batch of whole transactions, one snapshot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from headwater import failpoints
from headwater import merge as merging
from headwater.change import Lsn, Relation, TableName
from headwater.errors import AlreadyDelivered, CannotFollow, CommitConflict, LogGap, TableError
from headwater.flow.gaps import mend
from headwater.flow.isolate import surviving
from headwater.flow.mirroring import Mirroring, fail, give_up
from headwater.flow.names import held_back, names_now, outdated
from headwater.flow.shapes import Seen, key_names, newest_shapes, next_key_change
from headwater.lake.counts import Counts
from headwater.log import LogSlice
from headwater.sink.ducklake import Plan, Standing
from headwater.sink.target import DuckLakePlace
from headwater.state import TableRow
from headwater.state.succession import dropped_error
from headwater.state.transitions import CaughtUp, Repositioned, Stopped
from headwater.values.types import LakeType, lake_type

__all__ = ["Delivered", "deliver"]


@dataclass(frozen=True, slots=True)
class Delivered:
    """The lake now shows the source at `position`. Without changes no snapshot was made."""

    position: Lsn
    snapshot_id: int = 0
    landed: Mapping[int, Counts] = field(default_factory=dict)
    upto: Mapping[int, Lsn] = field(default_factory=dict)  # new positions, by table


def deliver(m: Mirroring) -> Delivered:
    """The next batch of whole transactions becomes one snapshot, positions included."""
    plan = m.sink.plan()
    tables = _chosen(m, plan)
    if not tables.standing:
        return _recorded(m, tables, Delivered(Lsn(0)))
    try:
        staged, seen = _staged(m, tables)
    except LogGap:
        mend(m)
        return _recorded(m, tables, Delivered(Lsn(0)))
    if not staged.segments and not tables.behind and not seen:
        return _recorded(m, tables, Delivered(staged.upto, plan.base.id))
    batch = _batch(m, plan, tables, staged, seen)
    survived = surviving(m.spark, batch.mirrors.keys(), lambda oids: _merged(m, plan, batch, oids))
    merged = survived.done or merging.Merged()
    merged.failed.update(survived.failed)
    # Those that are ahead of the batch stay where they are: it may end long before the foremost of those it brings up.
    moving = {oid for oid, each in tables.standing.items() if each.position < staged.upto} - tables.failed.keys()
    moving -= batch.mirrors.keys() - survived.tables  # they come up to the others later
    merged.failed.update(_clashes(m, plan, tables, moving - merged.failed.keys()))
    tables.failed.update(merged.failed)
    tables.hopeless.update(merged.hopeless)
    failpoints.hit("deliver.written")
    if merged.failed and 0 in merged.reports:
        # Values were settled in the quarantine for all tables at once: go again without those that failed.
        m.sink.discard(plan, merged.reports)
        return _recorded(m, tables, Delivered(Lsn(0)))
    m.sink.discard(plan, {oid: merged.reports.pop(oid, []) for failed in merged.failed for oid in (failed, -failed)})
    upto = dict.fromkeys(moving - tables.failed.keys(), staged.upto)
    try:
        snapshot, landed = m.sink.commit(plan, merged.reports, merged.truncated, upto) if upto else (plan.base.id, {})
    except (CommitConflict, AlreadyDelivered, TableError):
        m.sink.discard(plan, merged.reports)
        raise
    failpoints.hit("deliver.committed")
    # While some tables only come up to the others, the lake as a whole is where the hindmost is.
    after = [upto.get(oid, each.position) for oid, each in tables.everywhere.items() if oid not in tables.failed]
    done = _recorded(m, tables, Delivered(min(after, default=tables.start), snapshot, landed, upto))
    for oid, name in plan.moved.items() if upto else ():
        m.state.rename_table(m.group, oid, source=name, lake=name)
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
    hopeless: set[int] = field(default_factory=set)  # of the failed: those that only a new copy would help
    renamed: dict[int, tuple[TableName, TableName]] = field(default_factory=dict)  # in the source, and in the lake

    @property
    def start(self) -> Lsn:
        return min(each.position for each in self.standing.values())


def _chosen(m: Mirroring, plan: Plan) -> _Tables:
    rows = {row.oid: row for row in m.state.tables(m.group) if row.state in ("CATCHUP", "STREAMING")}
    standing = {oid: plan.standings[oid] for oid in rows if oid in plan.standings}
    for oid, each in standing.items():  # the lake's word is the truth: a crash may have kept it from the state
        row = rows[oid]
        if row.position != each.position:
            m.state.record(m.group, oid, Repositioned(each.position))
            m.state.note_counts(m.group, {oid: each.counts})
        if row.lake != each.name:
            m.state.rename_table(m.group, oid, source=each.name if row.options.followed_name else None, lake=each.name)
    failed = {oid: str(_dropped(row)) for oid, row in rows.items() if oid not in standing}
    if not standing:
        return _Tables(rows, {}, {}, False, None, failed)
    # A table that was away, or the others when one was copied later, first comes up to where the foremost is.
    lead = max(each.position for each in standing.values())
    behind = {oid: each for oid, each in standing.items() if each.position < lead}
    if behind:
        return _Tables(rows, standing, behind, True, lead, failed)
    fences = (fence.lsn for fence in m.state.fences(m.group) if fence.lsn > lead)
    return _Tables(rows, standing, standing, False, min(fences, default=None), failed)


def _dropped(row: TableRow) -> TableError:
    return TableError(
        f"the lake has no table {row.lake} any more",
        hint="another client dropped it there: stop this run, `headwater run --recopy` copies the table again",
    )


def _staged(m: Mirroring, tables: _Tables) -> tuple[LogSlice, dict[int, Seen]]:
    """The next whole transactions, and the newest shape of each table among them; never past a change of a key."""
    positions = {oid: each.position for oid, each in tables.standing.items()}
    staged = m.log.read(tables.start, tables.upto, m.max_rows)
    while True:
        relations = m.log.relations(part.relation_id for segment in staged.segments for part in segment.parts)
        parts = [
            (relations[part.relation_id], part)
            for segment in staged.segments
            for part in segment.parts
            if relations[part.relation_id].oid in positions
            and part.first_lsn < staged.upto
            and positions[relations[part.relation_id].oid] < staged.upto
            and positions[relations[part.relation_id].oid] <= part.last_lsn
        ]
        cut = next_key_change(parts, positions)
        if cut is None:
            break
        staged = m.log.read(tables.start, cut, m.max_rows)
    defined = m.log.defined(positions, tables.start, staged.upto)
    wanted = {relation.id for relation, _ in parts}
    wanted |= {relation.id for oid, (lsn, relation) in defined.items() if lsn >= positions[oid]}
    return staged, newest_shapes(parts, m.log.relations(wanted).values())


def _batch(m: Mirroring, plan: Plan, tables: _Tables, staged: LogSlice, seen: Mapping[int, Seen]) -> merging.Batch:
    """What the staged segments hold for these tables, and the plan with their newest columns."""
    mirrors = {}
    positions = {oid: tables.standing[oid].position for oid, shape in seen.items() if shape.newest.generation}
    generations = m.log.generations(positions) if positions else {}
    for oid, shape in seen.items():
        row, standing = tables.rows[oid], tables.standing[oid]
        try:
            if shape.newest.generation != generations.get(oid, 0):
                raise CannotFollow(f"{shape.newest.table}: {shape.newest.reason}")
            kinds = _follow(m, plan, tables, row, shape.newest)
            # A history's values are never settled, so nobody looks for them by key.
            held = standing.counts.quarantined and row.options.mode == "mirror"
            if held and not standing.shape.same_key(shape.newest):
                raise CannotFollow(
                    f"table {row.source} got another key, and values in quarantine are under the old one"
                )
            if shape.rows:
                mirrors[oid] = _mirror(row, standing, shape, kinds)
        except TableError as error:
            plan.followed.pop(oid, None)
            tables.failed[oid] = str(error)
            if isinstance(error, CannotFollow):
                tables.hopeless.add(oid)
    segments = tuple(merging.Segment(each.path, each.bytes, each.commit, each.aborted) for each in staged.segments)
    relations = {relation.id: relation for shape in seen.values() for relation in shape.versions}
    return merging.Batch(segments, mirrors, relations, staged.upto)


def _follow(m: Mirroring, plan: Plan, tables: _Tables, row: TableRow, newest: Relation) -> dict[str, LakeType]:
    """Let the lake's table have the newest shape; the lake types of its columns."""
    standing = plan.standings[row.oid]
    if standing.table.partitioned:
        raise TableError(
            f"another client has partitioned {row.lake}, which this version does not write",
            hint=f"run `ALTER TABLE {row.lake} RESET PARTITIONED BY` in the lake",
        )
    kinds = {column.name: lake_type(column, row.options.types.get(column.name)) for column in newest.columns}
    here = standing.name
    moved = row.options.followed_name and newest.table != here
    m.sink.follow(plan, newest, kinds, newest.table if moved else None)
    if row.options.schema_changes == "stop" and plan.followed[row.oid].alteration is not None:
        raise TableError(
            f"table {row.source} has another shape than its mirror {row.lake}, and `schema_changes` is `stop`",
            hint="undo the change in the source, or set `schema_changes: follow`",
        )
    if moved or newest.table != row.source:
        tables.renamed[row.oid] = newest.table, newest.table if moved else here
    return kinds


def _mirror(row: TableRow, standing: Standing, shape: Seen, kinds: Mapping[str, LakeType]) -> merging.Mirror:
    columns = shape.newest.columns
    return merging.Mirror(
        oid=row.oid,
        name=str(shape.newest.table),
        start=standing.position,
        columns=tuple(merging.MirrorColumn(each.name, kinds[each.name], each.attnum, each.missing) for each in columns),
        key=key_names(shape),
        rows=shape.rows,
        bytes=shape.bytes,
        inserts_only=shape.ops == {"I"},
        history=row.options.mode == "history",
    )


def _clashes(m: Mirroring, plan: Plan, tables: _Tables, oids: set[int]) -> dict[int, str]:
    """Of these tables those that cannot have their new names, although others give up theirs as soon as they may."""
    standings = plan.standings
    renamed = {oid: lake for oid, (_, lake) in tables.renamed.items() if lake != standings[oid].name}
    keep = held_back(m, standings, renamed)
    while True:
        for oid in keep:
            _keep_name(plan, tables, oid)
        clashes = m.sink.clashes(plan, oids)
        if clashes:
            plan.moved.update(names_now(m, standings, tables.renamed))
            clashes = m.sink.clashes(plan, oids)
        # A name that the table has given up since is not worth an error: it gets the one it has now.
        keep = outdated(m, {oid: renamed[oid] for oid in clashes if oid in tables.renamed})
        if not keep:
            return clashes


def _keep_name(plan: Plan, tables: _Tables, oid: int) -> None:
    del tables.renamed[oid]
    followed = plan.followed[oid]
    same = followed.fields == plan.standings[oid].table.columns
    if followed.alteration is not None:
        kept = None if same else replace(followed.alteration, name=None)
        plan.followed[oid] = replace(followed, alteration=kept)


def _merged(m: Mirroring, plan: Plan, batch: merging.Batch, oids: Collection[int]) -> merging.Merged:
    if not oids:
        return merging.Merged()
    batch = replace(batch, mirrors={oid: batch.mirrors[oid] for oid in oids})
    keys = {oid: mirror.key for oid, mirror in batch.mirrors.items()}
    quarantine = m.sink.quarantine_places(plan)

    def places(wanted: Mapping[int, tuple[int, int] | None]) -> list[DuckLakePlace]:
        return m.sink.places(plan, keys, wanted)

    m.sink.begin(plan)
    return merging.merge(m.spark, batch, plan.target(keys), places, m.scratch, quarantine)


def _recorded(m: Mirroring, tables: _Tables, done: Delivered) -> Delivered:
    """Tell the state what the lake already knows; the state's copy is for people to see."""
    if done.upto:
        counts = {oid: tables.standing[oid].counts + each for oid, each in done.landed.items()}
        m.state.record_delivery(m.group, done.position, done.snapshot_id, done.upto, counts)
        for oid, (source, lake) in tables.renamed.items():
            if oid in done.upto:
                m.state.rename_table(m.group, oid, source=source, lake=lake)
    for oid, error in tables.failed.items():
        (give_up if oid in tables.hopeless else fail)(m, tables.rows[oid], error)
    if done.position > Lsn(0):
        _moved_on(m, tables, done)
        foremost = max([*done.upto.values(), *(each.position for each in tables.everywhere.values())])
        m.state.reach_fences(m.group, done.position, done.snapshot_id, foremost)
    return done


def _moved_on(m: Mirroring, tables: _Tables, done: Delivered) -> None:
    """A table that the log has passed, and that is where the others are, is STREAMING."""
    end = m.log.end()
    for row in tables.rows.values():
        if row.oid not in tables.failed and row.dropped_lsn is not None and row.dropped_lsn <= done.position:
            m.state.record(m.group, row.oid, Stopped(str(dropped_error(row, row.dropped_lsn))))
            continue
        level = not tables.behind or row.oid not in tables.standing or done.upto.get(row.oid) == tables.upto
        if row.state == "CATCHUP" and row.oid not in tables.failed and level and (row.copy_lsn or end) <= end:
            m.state.record(m.group, row.oid, CaughtUp())
