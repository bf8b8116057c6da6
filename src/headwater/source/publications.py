"""Each table's place in our publication: has somebody else altered it, so that changes may not have been sent?"""

from __future__ import annotations

import logging

from headwater.errors import OperatorMustAct
from headwater.postgres.connect import Connection
from headwater.source.database import current_end, object_name, sends_all
from headwater.state import State, TableRow

__all__ = ["ALTERED", "look_at_publication", "places"]

ALTERED = "its publication was altered: some of its changes may not have been sent"
_logger = logging.getLogger("headwater.capture")


def places(connection: Connection, publication: str) -> dict[int, str]:
    """What marks each table's place in a publication that sends all there is to send; empty if it does not.

    The mark is another one once the table was taken out and put back, or the publication was altered and altered back:
    looking now and then, or only at a start, misses nothing.
    """
    rows = connection.execute(
        "SELECT r.prrelid::bigint, concat_ws('/', p.oid, p.xmin, r.oid) FROM pg_publication p"
        f" JOIN pg_publication_rel r ON r.prpubid = p.oid WHERE p.pubname = %s AND {sends_all(connection)}",
        (publication,),
    )
    return dict(rows.fetchall())


def look_at_publication(connection: Connection, state: State, group: str) -> None:
    """Have tables copied again whose place was altered; OperatorMustAct, noted in the state, if one has none."""
    rows = [row for row in state.tables(group) if row.state != "PAUSED"]
    now = places(connection, object_name(group))
    lacking = [row for row in rows if row.oid not in now and _there(connection, row.oid)]
    if lacking:
        error = _altered(object_name(group), lacking)
        state.record_error(group, "capture", str(error))
        raise error
    for row in rows:
        if row.published is not None and now.get(row.oid, row.published) != row.published:
            _logger.warning("table %s will be copied again: %s", row.source, ALTERED)
            state.request_resync(group, row.oid, ALTERED, current_end(connection))
            state.note_published(group, {row.oid: now[row.oid]})


def _altered(publication: str, lacking: list[TableRow]) -> OperatorMustAct:
    names = ", ".join(str(row.source) for row in lacking)
    return OperatorMustAct(
        f"publication {publication!r} was altered: it does not send all changes of {names}",
        hint="start `headwater run` again: it sets the publication right and copies these tables again",
    )


def _there(connection: Connection, oid: int) -> bool:
    """A table that was dropped has left the publication with it."""
    return connection.execute("SELECT FROM pg_class WHERE oid = %s", (oid,)).fetchone() is not None
