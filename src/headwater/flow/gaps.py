"""Tables whose changes the log does not have any more are copied again."""

from __future__ import annotations

import logging

from headwater.change import Lsn
from headwater.flow.mirroring import Mirroring
from headwater.words import counted

__all__ = ["LOST", "mend"]

logger = logging.getLogger(__name__)

LOST = "segments of the log are gone, and changes of the table with them"


def mend(m: Mirroring) -> None:
    """Have every table copied again that needs a change which is not in the log any more; the log goes on without it.

    Only for whoever delivers.
    """
    m.log.claim()
    missing = m.log.missing()
    if missing:
        logger.error("the log of group %s has lost %s", m.group, counted(len(missing), "segment"))
    needed = _needed(m, missing)
    for row in m.state.tables(m.group):
        if row.oid in needed:
            m.state.request_resync(m.group, row.oid, LOST, needed[row.oid])
            logger.error("table %s will be copied again: %s", row.source, LOST, extra={"table": str(row.source)})
    m.log.lose(missing)  # after the requests: a crash between finds the segments missing once more


def _needed(m: Mirroring, missing: list[str]) -> dict[int, Lsn]:
    """The tables that cannot go on without what is gone, and a position after it."""
    begin, standings, changed = m.log.begin(), m.sink.standings(), m.log.changed(missing)
    tables = m.state.tables(m.group)
    # A copy that is under way, as the source was before what is gone, will not do.
    copying = {row.oid for row in tables if row.state == "SNAPSHOT"}
    needed = {
        oid: end
        for oid, last, end in changed
        if oid in copying or (oid in standings and standings[oid].position <= last)
    }
    rows = {row.oid: row for row in tables if row.oid in copying or (row.resync is None and row.state != "REMOVED")}
    for oid, row in rows.items():
        # A lake that was restored from a backup may stand where the log does not begin yet.
        if row.state in ("CATCHUP", "STREAMING") and oid in standings and standings[oid].position < begin:
            needed[oid] = max(begin, needed.get(oid, begin))
    return {oid: lsn for oid, lsn in needed.items() if oid in rows}
