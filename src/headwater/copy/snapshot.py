"""A snapshot of the source and the exact position it shows, for a first copy."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from headwater.change import Lsn
from headwater.errors import HeadwaterError
from headwater.postgres.connect import connect, translated
from headwater.postgres.replication import Replication

__all__ = ["Exported", "exported_snapshot"]

_logger = logging.getLogger("headwater.copy")


@dataclass(frozen=True, slots=True)
class Exported:
    """`SET TRANSACTION SNAPSHOT snapshot_name` shows the source at exactly this position of its timeline."""

    lsn: Lsn
    snapshot_name: str
    timeline: int


@contextmanager
def exported_snapshot(url: str, report_after: float = 5.0) -> Iterator[Exported]:
    """Export a snapshot; it can be imported while the block runs.

    The server first waits for transactions that are running; which, is logged after some seconds.
    """
    with closing(Replication(url, "headwater export")) as connection:
        option = "(SNAPSHOT 'export')" if connection.server_version >= 15 else "EXPORT_SNAPSHOT"
        name = f"headwater_copy_{uuid.uuid4().hex[:16]}"
        waits, timeline = _Waits(url, report_after), connection.timeline_id()
        row = connection.query(f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput {option}", waits.report)
        # The connection must not run another command: that would end the snapshot. Closing it drops the slot.
        yield Exported(Lsn.parse(row[1]), row[2], timeline)


class _Waits:
    """Logs, less and less often, which transactions the export waits for."""

    def __init__(self, url: str, report_after: float) -> None:
        self._url = url
        self._next = report_after

    def report(self, waited: float) -> None:
        if waited < self._next:
            return
        self._next = waited * 2
        try:
            with closing(connect(self._url, application_name="headwater export")) as connection, translated(self._url):
                rows = connection.execute(
                    "SELECT pid, now() - xact_start, application_name FROM pg_stat_activity"
                    " WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 5"
                ).fetchall()
        except HeadwaterError:
            return  # the export itself will say so
        running = ", ".join(
            f"PostgreSQL pid {pid} ({application!r}, running for {age})" for pid, age, application in rows
        )
        hidden = "of other roles, which only pg_read_all_stats may see"
        _logger.warning("the first copy has waited %.0f s for transactions to end: %s", waited, running or hidden)
