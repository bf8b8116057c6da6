"""How everything stands: one query, rendered as a table, as JSON, and by the demo's view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime

from headwater.change import Lsn
from headwater.config import Config
from headwater.errors import ConfigError
from headwater.state import State, TableRow
from headwater.state.leftover import Leftover, leftovers

__all__ = ["GroupStatus", "Status", "TableStatus", "open_status", "status"]


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table of a group. `rows` is what the lake should hold: what was copied, plus and minus what was delivered."""

    group: str
    table: str
    lake: str
    lake_table: str
    state: str
    rows: int
    inserted: int
    updated: int
    deleted: int
    copied_rows: int
    copy_total: int | None
    position: str | None
    mode: str  # mirror or history
    quarantined: int  # values, counted since ever, that the lake's types could not hold
    resync: str | None  # why the table is to be copied again
    error: str | None
    retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group. The WAL its slot holds, what is staged and not delivered, and how old the oldest of that is."""

    name: str
    lake: str
    slot: str
    slot_active: bool | None  # None: there is no slot
    wal_status: str | None
    captured_lsn: str | None
    delivered_lsn: str | None
    snapshot_id: int | None
    capture_lag_bytes: int | None
    staged_segments: int
    staged_rows: int
    lag_seconds: float
    delivered_at: datetime | None
    error: str | None
    tables: tuple[TableStatus, ...]


@dataclass(frozen=True, slots=True)
class Status:
    source_lsn: str
    groups: tuple[GroupStatus, ...]
    leftovers: tuple[Leftover, ...]  # slots of groups that are not in the config

    @property
    def healthy(self) -> bool:
        """Nothing waits for somebody: no group has an error, no table is ERRORED."""
        return not any(group.error or any(t.state == "ERRORED" for t in group.tables) for group in self.groups)


@contextmanager
def open_status(config: Config) -> Iterator[Callable[[], Status]]:
    """Ask as often as you like: the connections stay open."""
    with (
        closing(State.connect(config.source)) as source,
        closing(State.connect(config.state_url)) as state,
    ):
        yield lambda: status(config, source, state)


_SLOT = """
    SELECT pg_current_wal_lsn()::text, slot.active, slot.wal_status,
           pg_wal_lsn_diff(pg_current_wal_lsn(), slot.confirmed_flush_lsn)::bigint
    FROM (SELECT 1) AS one LEFT JOIN pg_replication_slots AS slot ON slot.slot_name = %s
"""
_STAGED = """
    SELECT count(*), coalesce(sum(rows), 0)::bigint,
           coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float
    FROM headwater.segments
    WHERE group_name = %s AND last_lsn >= coalesce(%s, '0/0'::pg_lsn)
"""


def status(config: Config, source: State, state: State) -> Status:
    """Ask the source and the state. Both stay open: `--watch` asks every second."""
    groups = []
    if state.query("SELECT to_regclass('headwater.groups')") == [(None,)]:
        raise ConfigError("nothing has run with this config yet", hint="start it with `headwater run`")
    lsn = source.query("SELECT pg_current_wal_lsn()::text")[0][0]
    for name, group in config.groups.items():
        row = state.group(name)
        if row is None:
            continue
        lsn, active, wal_status, lag = source.query(_SLOT, (row.slot,))[0]
        segments, rows, seconds = state.query(_STAGED, (name, row.delivered_lsn))[0]
        groups.append(
            GroupStatus(
                name,
                group.lake,
                row.slot,
                active,
                wal_status,
                _text(row.captured_lsn),
                _text(row.delivered_lsn),
                row.snapshot_id,
                lag,
                segments,
                rows,
                round(seconds, 3),
                row.delivered_at,
                row.error,
                tuple(_table(each, group.lake) for each in state.tables(name)),
            )
        )
    return Status(lsn, tuple(groups), leftovers(source, state, config.groups))


def _table(row: TableRow, lake: str) -> TableStatus:
    return TableStatus(
        row.group,
        str(row.source),
        lake,
        str(row.lake),
        row.state,
        row.copied_rows + row.inserted - row.deleted,
        row.inserted,
        row.updated,
        row.deleted,
        row.copied_rows,
        row.copy_total,
        _text(row.position),
        row.options.mode,
        row.quarantined,
        row.resync,
        row.error,
        row.retry_at,
    )


def _text(lsn: Lsn | None) -> str | None:
    return None if lsn is None else str(lsn)
