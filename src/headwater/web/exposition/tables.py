"""Metrics of a table: its state, rows, lag and copy, and what its mirror is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

from headwater.lake.maintenance import Chores, Figures
from headwater.status import GroupStatus, TableStatus
from headwater.web.exposition.metric import Event, Metric, Sample

__all__ = ["METRICS", "maintenance_events", "samples"]

_TABLE = ("group", "table")


def _gauge(name: str, explanation: str, *more: str) -> Metric:
    return Metric(f"headwater_table_{name}", "gauge", (*_TABLE, *more), explanation)


def _counter(name: str, explanation: str, *more: str) -> Metric:
    return Metric(f"headwater_table_{name}_total", "counter", (*_TABLE, *more), explanation)


def _chores(name: str, explanation: str) -> Metric:
    return Metric(f"headwater_maintenance_{name}_total", "counter", ("group",), explanation)


_INFO = Metric(
    "headwater_table_info",
    "info",
    (*_TABLE, "lake", "lake_table", "mode"),
    "Always 1; the labels have the mirror's lake and name, and whether it is a mirror or a history.",
)
_STATE = _gauge("state", "1 for the table's state.", "state")
_ERROR = _gauge("error", "1 if an error keeps the table from going on.")
_RETRY = _gauge("retry_timestamp_seconds", "When a table that failed is tried again, in Unix time.")
_RESYNC = _gauge("resync", "1 if the table is to be copied again.")
_LAG = _gauge("lag_seconds", "The age of the oldest commit that the mirror does not show.")
_LAG_BYTES = _gauge("lag_bytes", "The source's WAL since the oldest commit that the mirror does not show.")
_ROWS = _gauge("rows", "Rows that the mirror should hold.")
_CHANGES = _counter("changes", "Net changes delivered: `insert`, `update`, `delete`.", "change")
_COPIED = _counter("copied_rows", "Rows that copies have brought.")
_COPY_ROWS = _gauge("copy_rows", "Rows that the copy which is under way has brought so far.")
_COPY_TOTAL = _gauge("copy_expected_rows", "Rows that the copy which is under way will bring, approximately.")
_COPY_AGE = _gauge("copy_age_seconds", "How long ago the copy began that is under way.")
_QUARANTINE = _gauge("quarantine_values", "Values that went to quarantine, in total, including resolved ones.")
_QUARANTINED = _counter("quarantined_values", "Values that have gone to quarantine.")
_MAINTAINED = _gauge("maintained_timestamp_seconds", "When maintenance last did something to the mirror, in Unix time.")

_FIGURES = {
    "files": _gauge("files", "Data files of the mirror's newest snapshot."),
    "small_files": _gauge("small_files", "Data files that are small, and worth merging."),
    "bytes": _gauge("file_bytes", "Size of the data files of the mirror's newest snapshot."),
    "deleted_rows": _gauge("deleted_rows", "Deleted rows that are still in data files."),
    "inlined_rows": _gauge("inlined_rows", "Rows in the lake's catalog instead of files."),
    "old_rows": _gauge("old_rows", "Earlier versions of rows in the catalog, which only older snapshots show."),
    "old_files": _gauge("old_files", "Data files that only older snapshots show."),
    "old_bytes": _gauge("old_file_bytes", "Size of the data files that only older snapshots show."),
}
_CHORES = {
    "merged_files": _chores("merged_files", "Files that maintenance has merged into fewer."),
    "merged_bytes": _chores("merged_bytes", "Size of the files that were merged."),
    "written_files": _chores(
        "written_files",
        "Files that maintenance has written, instead of those that it merged and for rows of the catalog.",
    ),
    "flushed_rows": _chores("flushed_rows", "Rows that maintenance has moved from the catalog into files."),
    "expired_snapshots": _chores("expired_snapshots", "Snapshots that maintenance has expired."),
    "expired_files": _chores("expired_files", "Files that only expired snapshots needed, deleted."),
    "orphans": _chores("orphan_files", "Files that no snapshot had, deleted."),
    "orphan_bytes": _chores("orphan_bytes", "Size of the files that no snapshot had, deleted."),
}
_RUNS = _chores("runs", "How often maintenance has done something to a table.")

METRICS = (
    *(_INFO, _STATE, _ERROR, _RETRY, _RESYNC, _LAG, _LAG_BYTES, _ROWS, _CHANGES),
    *(_COPIED, _COPY_ROWS, _COPY_TOTAL, _COPY_AGE, _QUARANTINE, _QUARANTINED),
    *_FIGURES.values(),
    *(_MAINTAINED, _RUNS, *_CHORES.values()),
)


def samples(group: GroupStatus) -> Iterator[Sample]:
    for each in _by_name(group.tables):
        name = group.name, each.table
        yield _INFO.of(1, *name, each.lake, each.lake_table, each.mode)
        yield _STATE.of(1, *name, each.state)
        yield _ERROR.of(each.error is not None, *name)
        yield _RETRY.of(each.retry_at.timestamp() if each.retry_at else None, *name)
        yield _RESYNC.of(each.resync is not None, *name)
        yield _LAG.of(each.lag_seconds, *name)
        yield _LAG_BYTES.of(each.lag_bytes, *name)
        yield _QUARANTINE.of(each.quarantined, *name)
        yield _QUARANTINED.of(each.quarantined, *name)
        yield from _rows(each, name)
        yield from _made_of(each, name)
    for metric in (_RUNS, *_CHORES.values()):
        yield metric.of(0, group.name)


def maintenance_events(group: GroupStatus) -> Iterator[Event]:
    """What maintenance did last to each table."""
    for each in group.tables:
        if each.last_maintenance is not None:
            done, identity = each.last_maintenance.done, (group.name, each.lake_table, each.last_maintenance.at)
            yield Event(_RUNS, (group.name,), identity)
            for field in fields(Chores):
                yield Event(_CHORES[field.name], (group.name,), identity, getattr(done, field.name))


def _by_name(tables: Iterable[TableStatus]) -> Iterable[TableStatus]:
    """One of each name: a table that was removed may have been replaced by another of its name."""
    return {each.table: each for each in sorted(tables, key=lambda each: each.state != "REMOVED")}.values()


def _rows(table: TableStatus, name: tuple[str, str]) -> Iterator[Sample]:
    yield _ROWS.of(table.rows, *name)
    yield _CHANGES.of(table.inserted, *name, "insert")
    yield _CHANGES.of(table.updated, *name, "update")
    yield _CHANGES.of(table.deleted, *name, "delete")
    yield _COPIED.of(table.copied_rows, *name)
    if table.state == "SNAPSHOT":
        yield _COPY_ROWS.of(table.copied_rows, *name)
        yield _COPY_TOTAL.of(table.copy_total, *name)
        yield _COPY_AGE.of(table.copy_seconds, *name)


def _made_of(table: TableStatus, name: tuple[str, str]) -> Iterator[Sample]:
    if table.figures is not None:
        for field in fields(Figures):
            yield _FIGURES[field.name].of(getattr(table.figures, field.name), *name)
    if table.last_maintenance is not None:
        yield _MAINTAINED.of(table.last_maintenance.at.timestamp(), *name)
