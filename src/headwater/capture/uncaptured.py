"""When was the oldest change committed that waits in the WAL? Asked while nothing reads the slot."""

from __future__ import annotations

import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta

import psycopg

from headwater.capture import pgoutput
from headwater.change import Lsn
from headwater.errors import Unreachable
from headwater.postgres.connect import Connection, connect

__all__ = ["Unknown", "oldest_uncaptured"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EMPTY_ONES_LEFT_OUT = 150000
_MILLISECONDS = 2000  # the WAL may hold much that is not ours, and all of it is decoded


class Unknown(Exception):
    """The source cannot say it, or not in time."""


def oldest_uncaptured(source_url: str, slot: str, publication: str, captured: Lsn) -> datetime | None:
    """The commit time of the first transaction after `captured` that has changes for us, None if there is none.

    A temporary copy of the slot is read: the slot itself stays as it is, and free for capture.
    """
    try:
        with closing(connect(source_url, application_name="headwater status")) as connection:
            if connection.info.server_version < _EMPTY_ONES_LEFT_OUT:
                raise Unknown("the server's pgoutput sends transactions that have no changes for us, too")
            connection.execute(f"SET statement_timeout = {_MILLISECONDS}")
            return _peeked(connection, slot, publication, captured)
    except (psycopg.Error, Unreachable) as exc:
        raise Unknown(str(exc)) from exc


def _peeked(connection: Connection, slot: str, publication: str, captured: Lsn) -> datetime | None:
    copy = f"headwater_status_{uuid.uuid4().hex}"
    connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s, true)", (slot, copy))
    found = _first_message(connection, copy, publication, captured)
    # After an error the session's end drops the copy, but only once the server has noticed that end.
    connection.execute("SELECT pg_drop_replication_slot(%s)", (copy,))
    if found is None:
        return None
    begin = pgoutput.decode(found)
    assert isinstance(begin, pgoutput.Begin)
    return _EPOCH + timedelta(microseconds=begin.commit_ts)


def _first_message(connection: Connection, copy: str, publication: str, captured: Lsn) -> bytes | None:
    # The log may be ahead of the slot: a position is recorded before the slot is moved there.
    connection.execute(
        "SELECT pg_replication_slot_advance(slot_name, %s) FROM pg_replication_slots"
        " WHERE slot_name = %s AND confirmed_flush_lsn < %s",
        (captured, copy, captured),
    )
    # Without protocol 2 a transaction comes as a whole, and one without changes for us does not come.
    found = connection.execute(
        "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, 1, 'proto_version', '1',"
        " 'publication_names', quote_ident(%s)) LIMIT 1",
        (copy, publication),
    ).fetchone()
    return None if found is None else bytes(found[0])
