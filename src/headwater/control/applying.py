"""Take the steps of a plan, in the source and in the state."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing

from headwater.capture.run import prepare
from headwater.capture.watch import first_look
from headwater.config import Config
from headwater.control.steps import (
    CopyAgain,
    CreateSlot,
    Enter,
    NoteDropped,
    NoteNewName,
    Publish,
    Reclaim,
    Remove,
    Resume,
    Step,
    Stop,
    Succeed,
)
from headwater.log import Log
from headwater.postgres.connect import Connection, connect, translated
from headwater.source.naming import object_name
from headwater.source.publications import places
from headwater.source.replaced import drop, stop
from headwater.source.server import wal_end
from headwater.state import State
from headwater.state.succession import add_successor, reclaim, take_over
from headwater.state.transitions import Removed, Resumed

__all__ = ["apply"]

logger = logging.getLogger(__name__)

_WARNED = (NoteNewName, Succeed, CopyAgain, Remove)


def apply(steps: Sequence[Step], config: Config, state: State, group: str, log: Log) -> None:
    """Take the steps of a group's plan in their order; then note how its tables stand in the publication and look.

    It may be done again and again, also while the group is captured and delivered.
    """
    with closing(connect(config.source)) as connection, translated(config.source):
        for step in steps:
            if isinstance(step, _WARNED):
                logger.warning("%s", step)
            elif isinstance(step, Enter) and step.joins:
                logger.info("%s", step)
            _take(step, config.source, connection, state, group)
        state.note_published(group, places(connection, object_name(group)))
    first_look(config.source, state, log, group)


def _take(step: Step, source: str, connection: Connection, state: State, group: str) -> None:
    match step:
        case NoteDropped(row):
            drop(connection, state, row)
        case Succeed(row, oid, table):
            add_successor(state, row, oid, table)
            take_over(state, row, oid, wal_end(connection), None)
        case CopyAgain(oid, _, reason):
            state.request_resync(group, oid, reason)
        case Remove(oid, _, _, reason):
            state.record(group, oid, Removed(reason))
        case Publish(_, tables):
            prepare(source, state, group, dict(tables))
        case Enter(oid, name, lake, configured):
            state.ensure_table(group, oid, name, lake, configured)
        case Reclaim(oid):
            reclaim(state, group, oid)
        case Resume(oid):
            state.record(group, oid, Resumed())
        case Stop(oid, _, error):
            stop(state, next(row for row in state.tables(group) if row.oid == oid), error)
        case NoteNewName() | CreateSlot():
            pass  # said above; made by `prepare`, after the publication
