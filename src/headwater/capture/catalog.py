"""The source's catalog, asked for what a Relation message does not tell."""

from __future__ import annotations

import time

from headwater.capture.shapes import completed
from headwater.change import Relation
from headwater.decode import TEXT_SETTINGS
from headwater.state.connect import Connection, connect, translated

__all__ = ["Catalog"]

_OPTIONS = " ".join(f"-c {name}={value}".replace(", ", ",") for name, value in TEXT_SETTINGS.items())
_PATIENCE = 5.0  # seconds for a transaction to become visible


class Catalog:
    """A connection of its own, opened when it is first needed."""

    def __init__(self, url: str, publication: str) -> None:
        self._url = url
        self._publication = publication
        self._connection: Connection | None = None

    def complete(self, told: Relation, before: Relation | None, xid: int) -> Relation:
        """The relation with what the catalog knows of it, once transaction `xid`, which told it, is visible there."""
        if self._connection is None:
            self._connection = connect(self._url, application_name="headwater catalog", options=_OPTIONS)
        with translated(self._url):
            self._wait_for(self._connection, xid)
            return completed(self._connection, told, before, self._publication)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _wait_for(self, connection: Connection, xid: int) -> None:
        """A commit is sent as soon as it is in the WAL, and visible a moment later: when it lets go of its own lock."""
        # Not for ever: with us as a synchronous standby it would wait for our confirmation meanwhile.
        deadline = time.monotonic() + _PATIENCE
        held = "SELECT FROM pg_locks WHERE locktype = 'transactionid' AND transactionid::text = %s AND granted"
        while connection.execute(held, (str(xid),)).fetchone() is not None and time.monotonic() < deadline:
            time.sleep(0.01)
