"""A source that was promoted, and a lake that has more of the old timeline: such tables are copied again.

Capture notes the fork before it reads the first change of the new timeline.
"""

from __future__ import annotations

import logging

from headwater.capture.promotion import BEYOND
from headwater.change import Lsn
from headwater.flow.mirroring import Mirroring
from headwater.postgres.timeline import Timeline

__all__ = ["forked", "outdated", "settle_fork"]

logger = logging.getLogger(__name__)


def forked(m: Mirroring) -> Lsn | None:
    """Where the source was promoted, if the lake was not compared with that yet."""
    group = m.state.group(m.group)
    return group.forked_lsn if group else None


def settle_fork(m: Mirroring) -> None:
    """Have every table copied again that the lake has beyond the fork; no delivery or copy may commit meanwhile."""
    fork = forked(m)
    if fork is None:
        return
    beyond = {oid: each.position for oid, each in m.sink.standings().items() if each.position > fork}
    for row in m.state.tables(m.group):
        if row.oid in beyond and row.state != "REMOVED" and row.dropped_lsn is None:
            position = beyond[row.oid]
            logger.error("table %s will be copied again: %s", row.source, BEYOND, extra={"table": str(row.source)})
            m.state.request_resync(m.group, row.oid, BEYOND, position.at(position.value + 1))
    kept = m.state.kept_copies(m.group)
    m.state.forget_copies(m.group, [oid for oid, copy in kept.items() if any(each.lsn > fork for each in copy.ranges)])
    m.state.place_removals(m.state.removals(m.group), None)  # where they were placed is of the old timeline
    m.state.settle_fork(m.group, fork)  # last: a crash before it finds the same once more


def outdated(m: Mirroring, timeline: int) -> bool:
    """Whether the source has left this timeline, as far as capture knows."""
    group = m.state.group(m.group)
    return group is not None and group.timeline is not None and Timeline.parse(group.timeline).id > timeline
