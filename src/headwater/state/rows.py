"""Rows of the state's tables, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from headwater.change import Lsn, TableName

__all__ = [
    "Condition",
    "Conditions",
    "Configured",
    "Fence",
    "GroupRow",
    "Location",
    "Member",
    "Partitions",
    "Removal",
    "Stage",
    "TableOptions",
    "TableRow",
    "TableState",
]

Stage = Literal["capture", "delivery"]
TableState = Literal["PENDING", "SNAPSHOT", "CATCHUP", "STREAMING", "ERRORED", "PAUSED", "REMOVED"]


class Location(NamedTuple):
    """Where a log or a lake was when it was last used, and its id, which it keeps when it is moved."""

    place: str
    id: str

    @classmethod
    def of(cls, place: str | None, id: str | None) -> Location | None:
        return None if place is None or id is None else cls(place, id)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group: one slot, one log. An LSN is None until there is one."""

    name: str
    source_id: str  # '<system_identifier>/<database>'
    slot: str
    publication: str
    slot_requested: bool  # we were about to create the slot: one of that name is ours
    captured_lsn: Lsn | None  # the log is complete up to here
    confirmed_lsn: Lsn | None  # recorded before it is sent to the slot
    delivered_lsn: Lsn | None  # copy of the lake's position, for display
    trimmed_lsn: Lsn | None  # where the log begins: segments below are deleted, or never were
    ddl_marks: str | None  # what marks the event triggers that report schema changes; None: they are not all there
    ddl_lsn: Lsn | None  # they have reported every schema change from here on
    ddl_doubted: bool  # they were trusted, and may have missed changes since
    watched_lsn: Lsn | None  # what only the catalog shows (columns, partitions) is dealt with up to here
    snapshot_id: int | None
    delivered_at: datetime | None  # when that snapshot was noted
    capture_error: str | None
    delivery_error: str | None
    log_path: str | None
    log_id: str | None
    lake_url: str | None
    lake_id: str | None
    timeline: str | None  # of the source, as `Timeline` spells it; None: nothing was captured yet
    forked_lsn: Lsn | None  # it was promoted here, and what the lake has beyond was not looked at yet
    updated_at: datetime

    @property
    def log(self) -> Location | None:
        """The group's log; None until there is one."""
        return Location.of(self.log_path, self.log_id)

    @property
    def lake(self) -> Location | None:
        """The lake that the group is mirrored into; None until there is one."""
        return Location.of(self.lake_url, self.lake_id)

    @property
    def error(self) -> str | None:
        """What keeps the group from going on."""
        return "; ".join(filter(None, (self.capture_error, self.delivery_error))) or None


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What the config asks for one table."""

    mode: Literal["mirror", "history"] = "mirror"
    types: Mapping[str, str] = field(default_factory=dict)  # lake types asked for, by the source column's name
    schema_changes: Literal["follow", "stop"] = "follow"
    followed_name: bool = True  # without `as:` the lake's name follows the source's
    columns: tuple[str, ...] | None = None  # carried; None: all
    exclude: tuple[str, ...] = ()
    append_only: bool = False
    replaced: Literal["copy", "stop"] = "copy"  # what to do when another table has its name
    partition_by: tuple[str, ...] = ()  # as `PartitionBy` spells it
    copied: bool = True  # else its mirror begins empty, with what changes from then on
    pattern: str | None = None  # that has brought the table; None: it is listed itself


class Configured(NamedTuple):
    """A table's name in the config, and what the config asks for it."""

    name: TableName
    options: TableOptions


class Condition(NamedTuple):
    """What a partition's bounds ask of a column: a value from `low` to below `high` (None: no bound), or one of some.

    Values are spelled as PostgreSQL prints them.
    """

    attnum: int  # of the root's column
    low: str | None = None
    high: str | None = None
    values: tuple[str, ...] | None = None


Conditions = tuple[Condition, ...]  # all of them


class Member(NamedTuple):
    """A partition: its file (0: it is partitioned itself), the transaction that made it one, and what it is below.

    Its rows are those of the root that meet the `conditions`; None: its bounds cannot be put so.
    """

    filenode: int
    attached: int
    parent: int = 0
    conditions: Conditions | None = None


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions below a partitioned table, as the catalog showed them."""

    lsn: Lsn  # the catalog was read before this position
    horizon: int  # every transaction below it had ended by then
    members: Mapping[int, Member]  # by OID


@dataclass(frozen=True, slots=True)
class Removal:
    """A partition that lost its rows, which the mirror still has: those that meet the conditions.

    With an LSN, the source has no such row there.
    """

    id: int
    oid: int  # of the root
    reason: str
    conditions: Conditions
    lsn: Lsn | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """A source table of a group, known by its OID, and its state.

    `configured` is its name in the config, `source` its name now: it may have been renamed since.
    """

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
    configured: TableName
    options: TableOptions
    quarantined: int
    resync: str | None  # why it must be copied again
    resync_lsn: Lsn  # a copy of an earlier position is not enough
    published: str | None  # what marks its place in the publication
    replaces: tuple[int, ...]  # tables whose mirrors its next copy takes the place of
    dropped_lsn: Lsn | None  # the source had no such table any more at this position
    updated_at: datetime

    @property
    def stopped(self) -> bool:
        """ERRORED, and not tried again by itself: its table is gone, or another one has its name."""
        return self.state == "ERRORED" and self.retry_at is None


@dataclass(frozen=True, slots=True)
class Fence:
    """A request to know when the lake has reached `lsn`.

    `reached_snapshot` is the first snapshot that has, `reached_lsn` the position of its foremost table: not beyond
    `lsn`, unless a delivery was already under way when the fence was added.
    """

    id: int
    group: str
    lsn: Lsn
    reached_snapshot: int | None
    reached_lsn: Lsn | None
    created_at: datetime
    expires_at: datetime
