"""Metrics of a group: its lag, its slot, its log, and its two processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headwater.change import Lsn
from headwater.state.rows import TableState
from headwater.status import GroupStatus, PartStatus
from headwater.web.exposition.metric import Metric, Sample

__all__ = ["METRICS", "samples"]

_GROUP, _STAGE = ("group",), ("group", "stage")
_STATES: tuple[TableState, ...] = TableState.__args__  # type: ignore[attr-defined]


def _gauge(name: str, explanation: str, labels: tuple[str, ...] = _GROUP) -> Metric:
    return Metric(f"headwater_{name}", "gauge", labels, explanation)


_STATE = _gauge("group_state", "1 for the group's state: RUNNING, STARTING or STOPPED.", ("group", "lake", "state"))
_ENABLED = _gauge("group_enabled", "0 if the group was disabled by hand, else 1.")
_LAG = _gauge(
    "group_lag_seconds", "The age of the oldest commit that is not in the lake, for the table furthest behind."
)
_LAG_BYTES = _gauge("group_lag_bytes", "The source's WAL since the oldest commit that is not in the lake.")
_TABLES = _gauge("group_tables", "Tables in each state.", ("group", "state"))
_SKIPPED = _gauge("group_skipped_tables", "Tables that a pattern matches and that cannot be mirrored as they are.")
_CAPTURED = _gauge("group_captured_lsn_bytes", "The log is complete up to here: an LSN as a number.")
_CAPTURED_WAL = Metric(
    "headwater_group_captured_wal_bytes_total", "counter", _GROUP, "WAL of the source that capture has passed."
)
_CAPTURED_CHANGES = Metric(
    "headwater_group_captured_changes_total", "counter", _GROUP, "Changes that capture has put into the log."
)
_DELIVERED = _gauge("group_delivered_lsn_bytes", "The position that the lake shows: an LSN as a number.")
_DELIVERED_AT = _gauge("group_delivered_timestamp_seconds", "When the newest delivery was committed, in Unix time.")
_SNAPSHOT = _gauge("group_snapshot_id", "The newest snapshot that Headwater committed; absent for Iceberg.")

_SLOT = _gauge("slot_exists", "1 if the group has its replication slot, 0 if it is gone.")
_SLOT_ACTIVE = _gauge("slot_active", "1 if a process reads the slot.")
_WAL_STATUS = _gauge(
    "slot_wal_status", "1 for PostgreSQL's status of the slot's WAL, such as `reserved` or `lost`.", ("group", "status")
)
_WAL = _gauge("slot_wal_bytes", "WAL that the source keeps for the slot.")
_WAL_LIMIT = _gauge("slot_wal_limit_bytes", "The source's max_slot_wal_keep_size; absent without such a limit.")
_WAL_SAFE = _gauge("slot_wal_safe_bytes", "WAL that may be written before the slot is in danger; absent without limit.")
_UNCONFIRMED = _gauge("slot_unconfirmed_bytes", "WAL since the position that capture has confirmed.")

_STAGED_ROWS = _gauge("log_staged_rows", "Changes that are in the log and not yet in the lake.")
_STAGED_SEGMENTS = _gauge("log_staged_segments", "Segments with changes that are not yet in the lake.")
_SEGMENTS = _gauge("log_segments", "Segments of the log.")
_LOG = _gauge("log_bytes", "Size of the log's segments.")
_LOG_NEEDED = _gauge(
    "log_needed_bytes", "The part of the log that tables that are not paused, and routes, have not passed."
)
_LOG_MAX = _gauge("log_max_bytes", "The log's bound, log.max_bytes; absent without one.")
_OLDEST = _gauge("log_oldest_change_age_seconds", "The age of the oldest change that waits in the log; 0 if none does.")

_RUNNING = _gauge("stage_running", "1 if the process that captures, or delivers, the group runs.", _STAGE)
_STAGE_ERROR = _gauge("stage_error", "1 if an error keeps capture, or delivery, from going on.", _STAGE)
_HEARTBEAT = _gauge(
    "stage_heartbeat_age_seconds", "The age of the process' last heartbeat; more than 30 is too old.", _STAGE
)
_STARTED = _gauge("stage_start_time_seconds", "When the process started that runs, or ran last, in Unix time.", _STAGE)
_STAGE_LAG = _gauge(
    "stage_lag_seconds",
    "For capture, the age of the oldest commit that is not in the log; for delivery, of the oldest that is in the log"
    " and not in the lake.",
    _STAGE,
)
_STAGE_LAG_BYTES = _gauge(
    "stage_lag_bytes", "How far capture is behind the source, and delivery behind the log, in bytes of WAL.", _STAGE
)

METRICS = (
    *(_STATE, _ENABLED, _LAG, _LAG_BYTES, _TABLES, _SKIPPED),
    *(_CAPTURED, _CAPTURED_WAL, _CAPTURED_CHANGES, _DELIVERED, _DELIVERED_AT, _SNAPSHOT),
    *(_SLOT, _SLOT_ACTIVE, _WAL_STATUS, _WAL, _WAL_LIMIT, _WAL_SAFE, _UNCONFIRMED),
    *(_STAGED_ROWS, _STAGED_SEGMENTS, _SEGMENTS, _LOG, _LOG_NEEDED, _LOG_MAX, _OLDEST),
    *(_RUNNING, _STAGE_ERROR, _HEARTBEAT, _STARTED, _STAGE_LAG, _STAGE_LAG_BYTES),
)


def samples(group: GroupStatus, *, source_up: bool, enabled: bool) -> Iterator[Sample]:
    name, captured, delivered = group.name, _number(group.captured_lsn), _number(group.delivered_lsn)
    yield _STATE.of(1, name, group.lake, group.state)
    yield _ENABLED.of(enabled, name)
    yield _LAG.of(group.lag_seconds, name)
    yield _LAG_BYTES.of(group.lag_bytes, name)
    states = Counter(each.state for each in group.tables)
    yield from (_TABLES.of(states[state], name, state) for state in _STATES)
    yield _SKIPPED.of(len(group.skipped), name)
    yield _CAPTURED.of(captured, name)
    yield _CAPTURED_WAL.of(captured, name)
    yield _CAPTURED_CHANGES.of(group.captured_changes, name)
    yield _DELIVERED.of(delivered, name)
    yield _DELIVERED_AT.of(group.delivered_at.timestamp() if group.delivered_at else None, name)
    yield _SNAPSHOT.of(group.snapshot_id, name)
    if source_up and group.slot is not None:
        yield from _slot(group)
    yield from _log(group)
    yield from _stage("capture", name, group.capture)
    yield from _stage("delivery", name, group.delivery)


def _slot(group: GroupStatus) -> Iterator[Sample]:
    yield _SLOT.of(group.slot_active is not None, group.name)
    yield _SLOT_ACTIVE.of(bool(group.slot_active), group.name)
    if group.wal_status is not None:
        yield _WAL_STATUS.of(1, group.name, group.wal_status)
    yield _WAL.of(group.wal_bytes, group.name)
    yield _WAL_LIMIT.of(group.wal_limit_bytes, group.name)
    yield _WAL_SAFE.of(group.wal_safe_bytes, group.name)
    yield _UNCONFIRMED.of(group.unconfirmed_bytes, group.name)


def _log(group: GroupStatus) -> Iterator[Sample]:
    yield _STAGED_ROWS.of(group.staged_rows, group.name)
    yield _STAGED_SEGMENTS.of(group.staged_segments, group.name)
    yield _SEGMENTS.of(group.log_segments, group.name)
    yield _LOG.of(group.log_bytes, group.name)
    yield _LOG_NEEDED.of(group.log_needed_bytes, group.name)
    yield _LOG_MAX.of(group.log_max_bytes, group.name)
    yield _OLDEST.of(group.oldest_change.seconds if group.oldest_change else 0.0, group.name)


def _stage(stage: str, group: str, part: PartStatus) -> Iterator[Sample]:
    yield _RUNNING.of(part.state == "RUNNING", group, stage)
    yield _STAGE_ERROR.of(part.error is not None, group, stage)
    yield _HEARTBEAT.of(part.heartbeat_seconds, group, stage)
    yield _STARTED.of(part.started_at.timestamp() if part.started_at else None, group, stage)
    yield _STAGE_LAG.of(part.lag_seconds, group, stage)
    yield _STAGE_LAG_BYTES.of(part.lag_bytes, group, stage)


def _number(lsn: str | None) -> int | None:
    return None if lsn is None else Lsn.parse(lsn).value
