"""What the state tables hold, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from headwater.change import Lsn, TableName

__all__ = ["Counts", "Fence", "GroupRow", "TableRow", "TableState"]

TableState = Literal["PENDING", "SNAPSHOT", "CATCHUP", "STREAMING", "ERRORED", "PAUSED"]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group: one slot, one log. An LSN is None until there is one."""

    name: str
    source_id: str  # '<system_identifier>/<database>'
    slot: str
    publication: str
    slot_requested: bool  # we have decided to create the slot: one of that name is ours
    captured_lsn: Lsn | None  # the log is complete up to here
    confirmed_lsn: Lsn | None  # recorded before the slot is told
    delivered_lsn: Lsn | None  # copy of the lake's position, for display
    trimmed_lsn: Lsn | None  # segments below are deleted
    snapshot_id: int | None
    capture_error: str | None
    delivery_error: str | None
    updated_at: datetime

    @property
    def error(self) -> str | None:
        """What keeps the group from going on."""
        return "; ".join(filter(None, (self.capture_error, self.delivery_error))) or None


@dataclass(frozen=True, slots=True)
class TableRow:
    """A source table of a group, known by its OID, and where it is in its life."""

    group: str
    oid: int
    source: TableName
    lake: TableName
    state: TableState
    position: Lsn | None
    copy_lsn: Lsn | None
    copied_rows: int
    copy_total: int | None
    inserted: int
    updated: int
    deleted: int
    error: str | None
    failures: int
    retry_at: datetime | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Counts:
    """Net changes of one delivery to one table."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class Fence:
    """Somebody waits for the lake to reach `lsn`.

    `reached_snapshot` is the first snapshot that did, `reached_lsn` how far its foremost table had come: not beyond
    `lsn`, unless a delivery was under way already when the fence was put up.
    """

    id: int
    group: str
    lsn: Lsn
    reached_snapshot: int | None
    reached_lsn: Lsn | None
    created_at: datetime
    expires_at: datetime
