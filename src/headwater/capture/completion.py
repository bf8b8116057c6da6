"""What a Relation message leaves out, read from the source's catalog."""

from __future__ import annotations

import time

from headwater.capture.evolution import completed
from headwater.change import Relation
from headwater.postgres.connect import Connection, connect, translated
from headwater.source.relations import GENERATED_SINCE, defined

__all__ = ["CatalogReader", "complete"]

_PATIENCE = 5.0  # seconds for a transaction to become visible


class CatalogReader:
    """A connection of its own, opened when it is first needed."""

    def __init__(self, url: str, publication: str) -> None:
        self._url = url
        self._publication = publication
        self._connection: Connection | None = None

    def complete(self, message: Relation, before: Relation | None, xid: int) -> Relation:
        """The relation with what the catalog proves about it, once transaction `xid`, which sent it, is visible."""
        connection = self._opened()
        with translated(self._url):
            self._wait_for(connection, xid)
            return complete(connection, message, before, self._publication)

    def check(self) -> None:
        """Unreachable if the source has gone, or is shutting down."""
        connection = self._opened()
        with translated(self._url):
            connection.execute("SELECT 1")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _opened(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._url, application_name="headwater catalog")
        return self._connection

    def _wait_for(self, connection: Connection, xid: int) -> None:
        """A commit is sent as soon as it is in the WAL, and visible a moment later: when it lets go of its own lock."""
        # Not for ever: with us as a synchronous standby it would wait for our confirmation meanwhile.
        deadline = time.monotonic() + _PATIENCE
        held = "SELECT FROM pg_locks WHERE locktype = 'transactionid' AND transactionid::text = %s AND granted"
        while connection.execute(held, (str(xid),)).fetchone() is not None and time.monotonic() < deadline:
            time.sleep(0.01)


def complete(connection: Connection, message: Relation, before: Relation | None, publication: str | None) -> Relation:
    """A Relation message with what the catalog proves about it; `before` is the newest version known."""
    types = {(each.type_oid, each.typmod) for each in message.columns}
    now = defined(connection, [message.oid], types).get(message.oid)
    generated = connection.info.server_version >= GENERATED_SINCE
    return completed(message, before, now, now.sent(publication, generated=generated) if now else ())
