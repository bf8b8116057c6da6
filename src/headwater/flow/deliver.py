"""Log → lake: one batch of whole transactions, one snapshot."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from headwater import failpoints
from headwater import merge as merging
from headwater.change import Lsn
from headwater.errors import AlreadyDelivered, CommitConflict, LogGap, TableError
from headwater.flow.forks import forked, settle_fork
from headwater.flow.gaps import mend
from headwater.flow.mirroring import Mirroring
from headwater.flow.names import granted
from headwater.flow.preparing import Prepared, prepared
from headwater.flow.recording import Delivered, record
from headwater.flow.removals import remove
from headwater.flow.tables import DeliveryTables, StagedBatch, chosen, staged
from headwater.lake.counts import Counts
from headwater.lake.sink import Delivery, Inline, Landed, Volume
from headwater.lake.target import SETTLED, misfits_of, rows_of
from headwater.merge import Failure, Merged, Mirror
from headwater.spark import surviving
from headwater.state import Phases, Work

__all__ = ["deliver"]


def deliver(m: Mirroring, *, leave_behind: bool = False) -> Delivered:
    """The next batch of whole transactions becomes one snapshot, positions included.

    Tables that are behind the others come up to them first. With `leave_behind`, those that still catch up after their
    copy do not: so others need not wait until they have.
    """
    begun = time.monotonic()
    settle_fork(m)
    plan = m.sink.plan()
    tables = chosen(m, plan, leave_behind=leave_behind)
    if not tables.taking_part:
        return record(m, tables, Delivered())
    try:
        batch = staged(m, tables)
    except LogGap:
        mend(m)
        return record(m, tables, Delivered())
    wait = max(0.0, batch.age - (time.monotonic() - begun))
    if forked(m) is not None:  # after it was read: the batch may be of the new timeline
        return record(m, tables, Delivered())
    if not batch.segments and not tables.behind and not batch.changes:
        hindmost = min([batch.upto, *(each.position for each in tables.left.values())])
        there = tables.taking_part.keys() if batch.upto == tables.upto else ()
        return remove(m, tables, record(m, tables, Delivered(hindmost, plan.snapshot_id)), there)
    ready = prepared(m, plan, tables, batch)
    written = _write(m, ready, batch)
    wrote = time.monotonic()
    failpoints.hit("deliver.written")
    landed = _land(m, tables, ready, batch, written)
    failpoints.hit("deliver.committed")
    phases = _phases(wait, wrote - begun, written.merged, time.monotonic() - wrote)
    done = record(m, tables, replace(landed, work=_work(batch, landed, phases)))
    failpoints.hit("deliver.recorded")
    return remove(m, tables, done, [oid for oid, lsn in done.upto.items() if lsn == tables.upto])


def _phases(wait: float, until_written: float, merged: Merged, commit: float) -> Phases:
    """What is neither searching nor writing counts as fold: planning the delivery, and tries that died, too."""
    locate, write = merged.locate_seconds, merged.write_seconds
    return Phases(wait, max(0.0, until_written - locate - write), locate, write, commit)


def _work(batch: StagedBatch, done: Delivered, phases: Phases) -> Work | None:
    if not done.landed or batch.oldest is None:
        return None
    changes = sum(batch.changes[oid].rows for oid in done.landed)
    return Work(changes, done.bytes, batch.oldest, phases, sum(done.landed.values(), Counts()), tuple(done.landed))


@dataclass(frozen=True, slots=True)
class _Written:
    """What Spark has written, and the tables that it has done; others died with it, or wait for the next delivery."""

    attempt: Delivery[Lsn]
    merged: Merged
    tables: frozenset[int]


def _write(m: Mirroring, ready: Prepared, batch: StagedBatch) -> _Written:
    """Merge as many of the tables as Spark survives."""

    def job(oids: Collection[int]) -> tuple[Delivery[Lsn], Merged]:
        mirrors = {oid: ready.mirrors[oid] for oid in oids}
        inline = None if m.inline_rows is None else Inline(_volumes(mirrors), m.inline_rows)
        keys = {oid: mirror.key for oid, mirror in mirrors.items()}
        attempt = ready.plan.begin(keys, batch.newest, inline=inline)
        if not mirrors:
            return attempt, Merged()
        lake = merging.LakeSide(attempt.target, attempt.places, attempt.quarantine(), m.indexes)
        changes = merging.Batch(batch.reader, mirrors, batch.upto)
        return attempt, merging.merge(m.spark, changes, lake, m.scratch, m.split_from)

    survived = surviving(m.spark, ready.mirrors.keys(), job)
    attempt, merged = survived.done or job(())
    died = {oid: Failure(error) for oid, error in survived.failed.items()}
    return _Written(attempt, replace(merged, failed={**merged.failed, **died}), survived.tables)


def _volumes(mirrors: Mapping[int, Mirror]) -> dict[int, Volume]:
    return {oid: Volume(mirror.rows, mirror.bytes) for oid, mirror in mirrors.items()}


def _land(m: Mirroring, tables: DeliveryTables, ready: Prepared, batch: StagedBatch, written: _Written) -> Delivered:
    """Commit what was written, as far as its tables did not fail."""
    reports, failed = dict(written.merged.reports), {**ready.failed, **written.merged.failed}
    left_out = ready.mirrors.keys() - written.tables  # they come up to the others later
    # Those that are ahead of the batch stay where they are: it may end long before the foremost of those it brings up.
    moving = {oid for oid, each in tables.taking_part.items() if each.position < batch.upto} - left_out - failed.keys()
    wanted = {oid: name for oid, name in ready.names.items() if oid in moving}
    names = granted(m, tables.everywhere, wanted, ready.sources.keys())
    late = {**written.merged.failed, **{oid: Failure(error) for oid, error in names.refused.items()}}
    failed |= late
    if late and SETTLED in reports:
        # Values were settled in the quarantine for all tables at once: go again without those that failed.
        written.attempt.discard(reports)
        return Delivered(failed=failed)
    lost = {to: reports.pop(to) for oid in late for to in (rows_of(oid), misfits_of(oid)) if to in reports}
    written.attempt.discard(lost)
    upto = dict.fromkeys(moving - failed.keys(), batch.upto)
    landed, renamed = Landed(ready.plan.snapshot_id), {}
    if upto:
        renamed = {**names.moved, **names.granted}
        try:
            landed = written.attempt.commit(reports, written.merged.truncated, upto, renamed)
        except (CommitConflict, AlreadyDelivered, TableError):
            written.attempt.discard(reports)
            raise
        upto = {oid: lsn for oid, lsn in upto.items() if oid not in landed.missed}
        renamed = {oid: name for oid, name in renamed.items() if oid not in landed.missed}
    # While some tables only come up to the others, the lake as a whole is where the hindmost is.
    after = [upto.get(oid, each.position) for oid, each in tables.everywhere.items() if oid not in failed]
    sources = {oid: name for oid, name in ready.sources.items() if oid in upto and oid not in names.kept}
    return Delivered(
        position=min(after, default=tables.start),
        snapshot_id=landed.snapshot_id,
        landed=landed.counts,
        bytes=landed.bytes,
        upto=upto,
        failed=failed,
        sources={**sources, **{oid: name for oid, name in names.moved.items() if oid in renamed}},
        mirrors=renamed,
    )
