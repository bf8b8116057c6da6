"""A source that was promoted: the log goes on with the new timeline, and what the old one had beyond is given up."""

from __future__ import annotations

import logging

from headwater.capture.watch import Definitions, first_look
from headwater.change import Lsn
from headwater.errors import OperatorMustAct
from headwater.postgres.timeline import Timeline
from headwater.source.server import pass_wal
from headwater.state import GroupRow, State

__all__ = ["BEYOND", "follow"]

_logger = logging.getLogger("headwater.capture")

BEYOND = "the source was promoted, and the new primary may lack changes of the table that were read from the old one"
_FENCE_SECONDS = 7 * 24 * 3600.0  # until the lake is compared with what happened


def follow(url: str, state: State, log: Definitions, row: GroupRow, now: Timeline, confirmed: Lsn) -> None:
    """Go on with the source as it is `now`, whose slot is at `confirmed`; OperatorMustAct if that is an older one.

    On the new timeline, LSNs after the fork have other changes. The log neither has the old ones from there on, nor
    leaves out new ones that a table needs: where it cannot be so, all tables are copied again, past its end. Delivery
    looks at what the lake has.
    """
    before = Timeline.parse(row.timeline) if row.timeline else now
    forked = before.common(now)
    if row.timeline is None:
        state.follow(row.name, now)
    if forked is None:
        return
    if now.id <= before.id:
        raise _abandoned(row, before, now)
    assert row.captured_lsn is not None
    what = f"the source was promoted: timeline {before.id} → {now.id} at {forked}"
    begin = None
    if row.captured_lsn > forked:
        _logger.error("%s; the log of group %r goes on to %s, which the new primary never had", what, *_ends(row))
        _copy_all(url, state, log, row.name, row.captured_lsn)
    elif confirmed > row.captured_lsn:
        _logger.error("%s; the log of group %r ends at %s, and its slot is at %s", what, *_ends(row), confirmed)
        begin = confirmed  # tables that are behind it are copied again
    else:
        _logger.warning("%s; capture of group %r goes on at %s", what, *_ends(row))
    state.follow(row.name, now, forked, begin)
    state.add_fence(row.name, forked, _FENCE_SECONDS)  # so that delivery looks at once what the lake has beyond


def _ends(row: GroupRow) -> tuple[str, Lsn | None]:
    return row.name, row.captured_lsn


def _copy_all(url: str, state: State, log: Definitions, group: str, captured: Lsn) -> None:
    """The log stays as it is, and no table needs it: each is copied as it is after the end of it.

    All of this may be done twice, and is, if we die before the timeline is noted.
    """
    pass_wal(url, captured)
    state.forget_partitions(group)  # they are known by transaction ids of the old timeline
    first_look(url, state, log, group)
    for table in state.tables(group):
        if table.state != "REMOVED" and table.dropped_lsn is None:
            _logger.warning("table %s will be copied again: %s", table.source, BEYOND)
            state.request_resync(group, table.oid, BEYOND, captured.at(captured.value + 1))


def _abandoned(row: GroupRow, before: Timeline, now: Timeline) -> OperatorMustAct:
    return OperatorMustAct(
        f"group {row.name!r} has followed the source to timeline {before}, and this server is on {now}: it is an old"
        " primary, or was promoted beside the other one",
        hint="stop it, and point `source` at the server that the applications write to",
    )
