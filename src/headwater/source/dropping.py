"""The end of a group in the source: its slot and its publication go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
from psycopg import sql

from headwater.errors import OperatorMustAct
from headwater.postgres.connect import Connection, connect, translated
from headwater.source import triggers as ddl
from headwater.source.naming import quoted
from headwater.source.publishing import owner_of
from headwater.source.server import identify
from headwater.source.slots import slot_of
from headwater.state import GroupRow

__all__ = ["drop_from_source"]

_PATIENCE = 3.0  # seconds: the server needs a moment to notice that a reader is gone


def drop_from_source(url: str, row: GroupRow, *, last: bool) -> Iterator[str]:
    """Drop the group's slot, then its publication, as far as they are there; what was dropped, one by one.

    With the `last` group of a source the event triggers go, too, if our role may drop them.
    Of a group that was captured from another database nothing is dropped: what has these names here is not its own.
    """
    with closing(connect(url, application_name="headwater group drop")) as connection, translated(url):
        if identify(connection).source_id != row.source_id:
            return
        if row.slot_requested and slot_of(connection, row.slot) is not None:
            _drop_slot(connection, row.slot)
            yield f"slot {row.slot!r}"
        owner, ours = owner_of(connection, row.publication)
        if ours:
            connection.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(row.publication)))
            yield f"publication {row.publication!r}"
        elif ours is False:
            yield f"no publication, because its owner is {owner!r}, who may DROP PUBLICATION {quoted(row.publication)}"
        if last and ddl.installed(connection):
            yield _drop_triggers(connection)


def _drop_triggers(connection: Connection) -> str:
    try:
        ddl.remove(connection)
    except psycopg.errors.InsufficientPrivilege:
        return "no event trigger, because they are another role's: `DROP EVENT TRIGGER` needs its owner"
    return "the event triggers"


def _drop_slot(connection: Connection, name: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
            return
        except psycopg.errors.ObjectInUse as exc:
            if time.monotonic() > deadline:
                raise OperatorMustAct(
                    f"slot {name!r} is being read: {str(exc).strip()}",
                    hint="stop its reader, or end its session: pg_terminate_backend with the PostgreSQL pid above",
                ) from exc
        time.sleep(0.1)
