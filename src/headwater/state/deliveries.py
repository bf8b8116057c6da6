"""The rows of deliveries: what each of them did, and where its time went, kept for a while for people to see."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from typing import Any

from headwater.change import Lsn
from headwater.lake.counts import Counts
from headwater.state.database import Database

__all__ = ["Deliveries", "DeliveryRow", "Phases", "Work", "noting"]

KEPT, KEPT_AT_LEAST = timedelta(hours=2), 100  # deliveries of each group


@dataclass(frozen=True, slots=True)
class Phases:
    """Where a delivery's time went, in seconds; together from when its oldest change was in the log to its commit."""

    wait: float = 0.0  # until the delivery began
    fold: float = 0.0  # read the log, and leave one net change per key
    locate: float = 0.0  # find the rows of the lake that are replaced
    write: float = 0.0
    commit: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """What a delivery did, beside bringing tables to their positions."""

    changes: int  # rows of the log that it read
    bytes: int  # of the data files that it wrote
    oldest: datetime  # source commit that it brought, by the source's clock
    phases: Phases
    counts: Counts  # of all tables
    oids: tuple[int, ...]  # of the tables that it changed


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery that changed something. `lag_seconds` is the age of the oldest commit that it brought, at its end."""

    id: int
    group: str
    at: datetime
    position: Lsn
    snapshot_id: int
    changes: int
    tables: int
    inserted: int
    updated: int
    deleted: int
    bytes: int
    lag_seconds: float
    phases: Phases
    oids: tuple[int, ...]


class Deliveries(Database):
    """The newest deliveries of the state."""

    def deliveries(self, group: str | None = None, *, after: int = 0, limit: int = 100) -> list[DeliveryRow]:
        """The newest deliveries of a group, or of all, whose ids are above `after`; the newest first.

        Empty if the state is not migrated yet.
        """
        if not self.knows("deliveries"):
            return []
        rows = self.query(
            "SELECT id, group_name, at, position, snapshot_id, changes, tables, inserted, updated, deleted, bytes,"
            " lag_seconds, phase_wait, phase_fold, phase_locate, phase_write, phase_commit, source_oids"
            " FROM headwater.deliveries WHERE id > %(after)s AND (%(group)s::text IS NULL OR group_name = %(group)s)"
            " ORDER BY id DESC LIMIT %(limit)s",
            {"after": after, "group": group, "limit": limit},
        )
        return [_delivery(*row) for row in rows]

    def forget_deliveries(self, group: str, kept: timedelta = KEPT, at_least: int = KEPT_AT_LEAST) -> None:
        """Delete the group's deliveries that are older than `kept` and not among the newest `at_least`."""
        self._write(
            "DELETE FROM headwater.deliveries WHERE group_name = %(group)s AND at < now() - %(kept)s AND id NOT IN ("
            "SELECT id FROM headwater.deliveries WHERE group_name = %(group)s ORDER BY id DESC LIMIT %(at_least)s)",
            {"group": group, "kept": kept, "at_least": at_least},
        )


def _delivery(*row: Any) -> DeliveryRow:
    *facts, wait, fold, locate, write, commit, oids = row
    return DeliveryRow(*facts, Phases(wait, fold, locate, write, commit), tuple(oids))  # type: ignore[call-arg]


_NOTED = """
    WITH noted AS (
      INSERT INTO headwater.deliveries (group_name, position, snapshot_id, changes, tables, inserted, updated, deleted,
        bytes, lag_seconds, phase_wait, phase_fold, phase_locate, phase_write, phase_commit, source_oids)
      SELECT %s::text, %s::pg_lsn, %s, %s, %s, %s, %s, %s, %s,
        greatest(extract(epoch FROM clock_timestamp() - %s::timestamptz), 0), %s, %s, %s, %s, %s, %s::bigint[]
      WHERE EXISTS (SELECT FROM headwater.tables AS t JOIN unnest(%s::bigint[], %s::pg_lsn[]) AS n(oid, position)
                    ON t.source_oid = n.oid WHERE t.group_name = %s AND t.position IS DISTINCT FROM n.position))
"""


def noting(
    group: str, position: Lsn, snapshot_id: int, positions: dict[int, Lsn], work: Work
) -> tuple[str, tuple[Any, ...]]:
    """What stands before the statement that notes the tables' new positions; it does nothing where they are known.

    So the delivery is there once, though its transaction may have to be repeated, and it costs no time of its own.
    """
    counts = work.counts
    return _NOTED, (
        *(group, position, snapshot_id, work.changes, len(work.oids)),
        *(counts.inserted, counts.updated, counts.deleted, work.bytes, work.oldest),
        *(*astuple(work.phases), list(work.oids)),
        *([*positions], [*positions.values()], group),
    )
