"""Source → lake: the first copy of a table, as it was at one position."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater import failpoints
from headwater.capture import exported_snapshot
from headwater.capture.copy import Range, balanced, read_range, showing
from headwater.capture.source import describe
from headwater.change import Lsn, Relation
from headwater.errors import ConfigError, OperatorMustAct, TableError, Unreachable
from headwater.flow.mirroring import Mirroring, fail
from headwater.sink.ducklake import NewMirror
from headwater.spark import on_tasks
from headwater.state import State, TableRow
from headwater.target import Target

__all__ = ["copy"]

logger = logging.getLogger(__name__)

TELL_EVERY = 5.0  # seconds
_COPIED = "oid long, report binary, error string"


def copy(m: Mirroring) -> dict[int, int]:
    """Source → lake, once per table: all tables that wait for it, as they were at one position, in one snapshot."""
    standings = m.sink.standings()
    waiting = []
    for row in m.state.tables(m.group):
        if row.state in ("PENDING", "SNAPSHOT"):
            if row.oid in standings:  # copied, but we died before we could note it
                _copied(m, row, standings[row.oid].position)
            else:
                waiting.append(row)
    if not waiting:
        return {}
    with exported_snapshot(m.source_url) as exported:
        new, units = _copy_plan(m, waiting, exported.snapshot_name)
        if not new:
            return {}
        logger.info("copying %d tables at %s in %d ranges", len(new), exported.lsn, len(units))
        work = CopyRange(m.source_url, exported.snapshot_name, m.state.url, m.group, m.sink.copy_target(new.values()))
        with _progress_told(m, new):
            written = on_tasks(m.spark, units, work, _COPIED).collect()
    reports: defaultdict[int, list[bytes]] = defaultdict(list)
    rows = {row.oid: row for row in waiting}
    for each in written:
        if each.error is None:
            reports[each.oid].append(bytes(each.report))
        elif new.pop(each.oid, None):
            fail(m, rows[each.oid], each.error)
    failpoints.hit("copy.written")
    if not new:
        return {}
    try:
        snapshot, counts = m.sink.create(new.values(), reports, exported.lsn)
    except TableError as error:
        for oid in new:
            fail(m, rows[oid], str(error))
        return {}
    failpoints.hit("copy.committed")
    m.state.record_delivery(m.group, exported.lsn, snapshot, {}, {})
    for oid, count in counts.items():
        m.state.record_progress(m.group, oid, count, count)
        _copied(m, rows[oid], exported.lsn)
    logger.info("copied %d rows", sum(counts.values()))
    return counts


@contextmanager
def _progress_told(m: Mirroring, oids: Container[int]) -> Iterator[None]:
    """Say every few seconds how far a long copy is; the tasks count their rows in the state."""
    done = threading.Event()

    def tell() -> None:
        while not done.wait(TELL_EVERY):
            with suppress(Unreachable):
                rows = [row for row in m.state.tables(m.group) if row.oid in oids]
                total = sum(max(row.copy_total or 0, row.copied_rows) for row in rows)
                logger.info("copied %d of about %d rows so far", sum(row.copied_rows for row in rows), total)

    teller = threading.Thread(target=tell, name="copy-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _copied(m: Mirroring, row: TableRow, at: Lsn) -> None:
    m.state.set_state(m.group, row.oid, "CATCHUP", position=at, copy_lsn=at)


def _copy_plan(
    m: Mirroring, waiting: Iterable[TableRow], snapshot: str
) -> tuple[dict[int, NewMirror], list[tuple[Relation, Range]]]:
    """The new tables and the ranges to read, as the snapshot has them."""
    new, units = {}, []
    cores = m.spark.sparkContext.defaultParallelism
    with showing(m.source_url, snapshot) as connection:
        for row in waiting:
            try:
                relation = describe(connection, row.source)
                if relation.oid != row.oid:
                    raise TableError(f"{row.source} is another table by now: it was dropped and created again")
                new[row.oid] = m.sink.new_mirror(relation, row.lake)
                parts = balanced(connection, row.oid, cores)
            except (TableError, ConfigError, OperatorMustAct) as error:
                new.pop(row.oid, None)
                fail(m, row, str(error))
                continue
            units += [(relation, part) for part in parts]
            known = [part.rows for part in parts if part.rows is not None]
            m.state.set_state(m.group, row.oid, "SNAPSHOT")
            m.state.record_progress(m.group, row.oid, 0, sum(known) if known else None)
    return new, units


@dataclass(frozen=True, slots=True)
class CopyRange:
    """One Spark task: a range of a table → data files that nobody sees yet."""

    source_url: str
    snapshot: str
    state_url: str
    group: str
    target: Target[Any]

    def __call__(self, unit: tuple[Relation, Range]) -> Iterator[pa.RecordBatch]:
        relation, part = unit
        count = 0

        def rows() -> Iterator[tuple[pa.Table, None]]:
            nonlocal count
            for batch in read_range(self.source_url, self.snapshot, relation, part):
                count += batch.num_rows
                yield pa.Table.from_batches([batch]), None

        reports: list[bytes | None] = []
        error = None
        try:
            reports = [*self.target.write(relation.oid, rows())]
        except TableError as exc:
            reports, error = [None], str(exc)
        with closing(State.connect(self.state_url)) as state:
            state.add_progress(self.group, relation.oid, count)
        schema = pa.schema([("oid", pa.int64()), ("report", pa.binary()), ("error", pa.string())])
        columns = [[relation.oid] * len(reports), reports, [error] * len(reports)]
        yield pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
