"""A group opened for delivery, and what becomes of a table of it that cannot go on."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from headwater.change import Lsn
from headwater.copy.reading import FEWEST_PAGES
from headwater.errors import ErrorKind, OperatorMustAct
from headwater.lake.indexes import KeyIndexes
from headwater.lake.sink import Sink
from headwater.log import Log
from headwater.merge import SPLIT_FROM, Scratch
from headwater.state import State, TableRow
from headwater.state.holding import needed_from
from headwater.state.transitions import Failed, Retried
from headwater.words import counted

__all__ = ["Mirroring", "check_lake", "fail", "give_up", "retry", "tidy", "try_again"]

logger = logging.getLogger(__name__)

RETRY_FIRST, RETRY_LONGEST = timedelta(seconds=30), timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Mirroring:
    """A group, opened for delivery."""

    group: str
    source_url: str
    state: State
    log: Log
    sink: Sink[Any, Lsn]
    lake_id: str  # of the lake that was opened
    spark: SparkSession
    scratch: str  # a folder or prefix of its own, that all of Spark's workers reach
    max_rows: int  # of one delivery, unless a single transaction is larger
    split_from: int = SPLIT_FROM  # changes of one table in a delivery that are divided among tasks
    range_pages: int = FEWEST_PAGES  # that a copy reads at once, at least
    indexes: KeyIndexes | None = None  # of the keys in the lake's files; None: they are read each time
    inline_rows: int | None = None  # that a table may have in the lake's catalog; None: rows go into files only
    retention: timedelta = timedelta(hours=1)  # of segments that every table and route has passed

    def close(self) -> None:
        """Give back the lake's connections; state and Spark belong to whoever opened them."""
        self.sink.close()


def check_lake(m: Mirroring) -> None:
    """Refuse a lake that has taken the place of the one that was opened: in it, all mirrors seem to be dropped."""
    found = m.sink.lake_id()
    if found != m.lake_id:
        raise OperatorMustAct(
            f"the lake of group {m.group!r} was replaced by another one: it had id {m.lake_id}, and now it has {found}",
            hint="restore it; or give it up: stop this run, `headwater run --recopy` copies all its tables anew",
        )


def fail(m: Mirroring, row: TableRow, error: str, kind: ErrorKind = "configuration") -> None:
    """A table that fails waits, longer each time; the others go on."""
    wait = min(RETRY_FIRST * 2 ** min(row.failures, 10), RETRY_LONGEST)
    m.state.record(m.group, row.oid, Failed(error, datetime.now(UTC) + wait, kind))
    logger.error("table %s: %s", row.source, error, extra={"table": str(row.source), "retry_in": wait.total_seconds()})


def give_up(m: Mirroring, row: TableRow, reason: str) -> None:
    """What cannot be followed is copied again, unless the config says to stop."""
    if row.options.schema_changes == "stop":
        fail(m, row, f"{reason}\nhint: `schema_changes: follow` would copy the table again")
        return
    m.state.request_resync(m.group, row.oid, reason)
    logger.warning("table %s will be copied again: %s", row.source, reason, extra={"table": str(row.source)})


def retry(m: Mirroring) -> None:
    """Let tables whose waiting time is over try again, from where the lake has them."""
    try_again(m.state, m.group, datetime.now(UTC))


def try_again(state: State, group: str, due: datetime | None = None) -> None:
    """Let the group's ERRORED tables try again whose waiting time is over by `due`; without it, all of them.

    Not those that were stopped: they wait for an operator.
    """
    for row in state.tables(group):
        waits = due is not None and (row.retry_at is None or row.retry_at > due)
        if row.state == "ERRORED" and not row.stopped and not waits:
            state.record(group, row.oid, Retried())


def tidy(m: Mirroring, routes: Collection[Lsn] = ()) -> None:
    """Delete segments that every table has passed, files that never became segments, and what killed batches left.

    `routes` are the positions of others who read the log.
    """
    Scratch.clear(m.scratch)
    if gone := m.sink.collect():
        logger.info("deleted %s of the lake that no commit has registered", counted(gone, "file"))
    m.state.forget_deliveries(m.group)
    end = m.log.end()  # a copy that is still to begin needs nothing from before that
    positions = [at for row in m.state.tables(m.group) if (at := needed_from(row)) is not None]
    trimmed = m.log.trim(min([end, *positions, *routes]), m.retention)
    if gone := trimmed + m.log.collect_orphans():
        logger.info("deleted %s of the log that every table has passed", counted(gone, "segment file"))
