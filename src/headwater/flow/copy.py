"""Source → lake: the first copy of a table, as it was at one position."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Row

from headwater import failpoints
from headwater import merge as merging
from headwater.change import Lsn, Relation, TableName
from headwater.copy.reading import Range, balanced, read_range, showing
from headwater.copy.snapshot import Exported, exported_snapshot
from headwater.errors import (
    AlreadyDelivered,
    CommitConflict,
    ConfigError,
    HeadwaterError,
    OperatorMustAct,
    TableError,
    Unreachable,
)
from headwater.flow.isolate import surviving
from headwater.flow.mirroring import Mirroring, fail
from headwater.flow.names import free_names, settle_names
from headwater.lake import history
from headwater.lake.quarantine import Origin, quarantined
from headwater.lake.target import Target
from headwater.sink.ducklake import NewMirror, Standing
from headwater.sink.target import DuckLakeTarget
from headwater.source.naming import object_name
from headwater.source.relations import described, row_filter
from headwater.source.replaced import table_names
from headwater.spark import on_tasks
from headwater.spark.faults import table_error
from headwater.state import State, TableRow
from headwater.values.decode import Bad
from headwater.values.types import LakeType, lake_type

__all__ = ["copy"]

logger = logging.getLogger(__name__)

TELL_EVERY = 5.0  # seconds
_COPIED = pa.schema([("oid", pa.int64()), ("report", pa.binary()), ("error", pa.string())])


def copy(m: Mirroring) -> dict[int, int]:
    """Source → lake, once per table: all tables that wait for it, as they were at one position, in one snapshot."""
    waiting = _waiting(m)
    if not waiting:
        settle_names(m)
        return {}
    with exported_snapshot(m.source_url) as exported:
        new, units, moved = _copy_plan(m, waiting, exported.snapshot_name)
        if not new:
            return {}
        logger.info("copying %d tables at %s in %d ranges", len(new), exported.lsn, len(units))
        quarantine = m.sink.new_quarantine()

        def written(oids: Collection[int]) -> tuple[DuckLakeTarget, list[Row]]:
            target = m.sink.copy_target([new[oid] for oid in oids], quarantine)
            work = CopyRange(m.source_url, exported, m.state.url, m.group, target)
            pieces = [each for each in units if each.relation.oid in oids]
            return target, on_tasks(m.spark, pieces, work, _COPIED).collect()

        with _progress_told(m, new):
            survived = surviving(m.spark, new.keys(), written)
    rows = {row.oid: row for row in waiting}
    for oid, error in survived.failed.items():
        fail(m, rows[oid], error)
    if survived.done is None:
        return {}
    new = {oid: new[oid] for oid in survived.tables}
    target, found = survived.done
    reports, failed = _gathered(found)
    for oid, error in failed.items():
        del new[oid]
        m.sink.discard_copy(target, {each: reports.pop(each, []) for each in (oid, -oid)})
        fail(m, rows[oid], error)
    failpoints.hit("copy.written")
    if not new:
        return {}
    try:
        snapshot, landed = m.sink.create(list(new.values()), quarantine, reports, exported.lsn, moved, target.attempt)
    except (CommitConflict, AlreadyDelivered, TableError) as error:
        m.sink.discard_copy(target, reports)
        _not_landed(m, [rows[oid] for oid in new], error)
        return {}
    failpoints.hit("copy.committed")
    # The lake as a whole is where the hindmost of its tables is.
    others = [row.position for row in m.state.tables(m.group) if row.state in ("CATCHUP", "STREAMING") and row.position]
    m.state.record_delivery(m.group, min([exported.lsn, *others]), snapshot, {}, {})
    standings = m.sink.standings()
    for oid, name in moved.items():
        m.state.rename_table(m.group, oid, source=name, lake=name)
    for oid in landed:
        _copied(m, rows[oid], standings[oid])
    logger.info("copied %d rows", sum(each.copied for each in landed.values()))
    return {oid: each.copied for oid, each in landed.items()}


def _gathered(written: Iterable[Row]) -> tuple[dict[int, list[bytes]], dict[int, str]]:
    """The lake's reports by table, and the tables of which a range could not be copied."""
    reports: defaultdict[int, list[bytes]] = defaultdict(list)
    failed: dict[int, str] = {}
    for each in written:
        if each.error is None:
            reports[each.oid].append(bytes(each.report))
        else:
            failed.setdefault(each.oid, each.error)
    return reports, failed


def _not_landed(m: Mirroring, rows: Iterable[TableRow], error: HeadwaterError) -> None:
    """What others did to the lake meanwhile is no table's fault: they are copied again in the next round."""
    if not isinstance(error, TableError):
        logger.warning("copying again: %s", error)
        return
    for row in rows:
        fail(m, row, str(error))


def _waiting(m: Mirroring) -> list[TableRow]:
    """The tables to copy. One that the lake has, though nobody noted it, goes on from there if the log does."""
    group, standings = m.state.group(m.group), m.sink.standings()
    begin = (group and group.trimmed_lsn) or Lsn(0)
    waiting = []
    for row in m.state.tables(m.group):
        if row.state in ("PENDING", "SNAPSHOT"):
            there = standings.get(row.oid)
            if there is not None and row.resync is None and there.position >= begin:
                _copied(m, row, there)  # we died before we could note it
            else:  # also if the state was lost: what came between the lake's position and the new slot is in no log
                waiting.append(row)
    return waiting


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


def _copied(m: Mirroring, row: TableRow, there: Standing) -> None:
    m.state.note_counts(m.group, {row.oid: there.counts})
    m.state.set_state(m.group, row.oid, "CATCHUP", position=there.position, copy_lsn=there.position)
    m.state.rename_table(m.group, row.oid, lake=there.name)


def _copy_plan(
    m: Mirroring, waiting: Sequence[TableRow], snapshot: str
) -> tuple[dict[int, NewMirror], list[Piece], dict[int, TableName]]:
    """The new tables and the pieces to read, as the snapshot has them, and mirrors that give up their names."""
    new, units = {}, []
    cores = m.spark.sparkContext.defaultParallelism
    publication = object_name(m.group)
    with showing(m.source_url, snapshot) as connection:
        called = table_names(connection, [row.oid for row in waiting], [])
        lands = {row.oid: called.get(row.oid, row.lake) if row.options.followed_name else row.lake for row in waiting}
        names, moved = free_names(m, waiting, lands.values())
        for row in waiting:
            history = row.options.mode == "history"
            try:
                relation = described(connection, row.oid, publication)
                kinds = {
                    column.name: lake_type(column, row.options.types.get(column.name)) for column in relation.columns
                }
                new[row.oid] = m.sink.new_mirror(
                    relation, kinds, lands[row.oid], names, history=history, replaces=row.replaces
                )
                parts = balanced(connection, row.oid, cores)
                where = row_filter(connection, publication, row.oid)
            except (TableError, ConfigError, OperatorMustAct) as error:
                new.pop(row.oid, None)
                fail(m, row, str(error))
                continue
            units += [Piece(relation, part, tuple(kinds.values()), where, history) for part in parts]
            known = [part.rows for part in parts if part.rows is not None]
            m.state.set_state(m.group, row.oid, "SNAPSHOT")
            m.state.record_progress(m.group, row.oid, 0, sum(known) if known else None)
    return new, units, moved


class Piece(NamedTuple):
    """What one task copies: a range of a table, the types of its columns in the lake, which rows, and in which mode."""

    relation: Relation
    part: Range
    kinds: tuple[LakeType, ...]
    where: str | None
    history: bool


@dataclass(frozen=True, slots=True)
class CopyRange:
    """One Spark task: a range of a table → data files that nobody sees yet."""

    source_url: str
    exported: Exported
    state_url: str
    group: str
    target: Target[Any]

    def __call__(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        oid, count = piece.relation.oid, 0
        found: list[dict[str, object]] = []
        bad: list[pa.Table] = []

        def rows() -> Iterator[tuple[pa.Table, None]]:
            nonlocal count
            name = self.exported.snapshot_name
            for batch, misfits in read_range(
                self.source_url, name, piece.relation, piece.part, piece.kinds, piece.where
            ):
                count += batch.num_rows
                table = pa.Table.from_batches([batch])
                if misfits:
                    bad.append(self._quarantined(piece, table, misfits))
                failpoints.hit("copy.read", str(piece.relation.table))
                yield _as_history(table, self.exported.lsn) if piece.history else table, None

        try:
            found += [{"oid": oid, "report": report} for report in self.target.write(oid, rows())]
            if bad:
                found += [
                    {"oid": -oid, "report": report} for report in self.target.write(-oid, [(t, None) for t in bad])
                ]
        except Exception as exc:
            found.append(
                {"oid": oid, "error": str(table_error(exc))}
            )  # beside what was written before it, to be deleted
        with closing(State.connect(self.state_url)) as state:
            state.add_progress(self.group, oid, count)
        yield pa.RecordBatch.from_pylist(found, schema=_COPIED)

    def _quarantined(self, piece: Piece, rows: pa.Table, misfits: dict[int, tuple[Bad, ...]]) -> pa.Table:
        relation = piece.relation
        key = [relation.columns[index].name for index in relation.key]
        bad = {relation.columns[index].name: each for index, each in misfits.items()}
        kinds = dict(zip((column.name for column in relation.columns), piece.kinds, strict=True))
        for name in key if not piece.history else ():
            if name in bad:
                raise merging.unfit_key(str(relation.table), name, kinds[name], bad[name][0])
        keys = merging.row_keys(rows, {name: kinds[name] for name in key}) if not piece.history else None
        numbers = {column.name: column.attnum for column in relation.columns}
        origin = Origin(self.target.source, relation.oid, str(relation.table), numbers)
        return quarantined(origin, rows, key, bad, self.exported.lsn, keys)


def _as_history(rows: pa.Table, at: Lsn) -> pa.Table:
    """Copied rows as the first of their history."""
    told = {"_op": "copy", "_commit_lsn": at.value, "_seq": 0}
    head = [pa.repeat(pa.scalar(told.get(field.name), field.type), rows.num_rows) for field in history.SCHEMA]
    return pa.Table.from_arrays([*head, *rows.columns], schema=pa.schema([*history.SCHEMA, *rows.schema]))
