"""The rows of pins: snapshots of lakes that must not expire, since they are being read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.postgres.connect import Connection
from headwater.state.database import Database

__all__ = ["Pins"]

LONGEST = 24 * 3600.0  # seconds that a reader may take


class Pins(Database):
    """The pins of the state."""

    @contextmanager
    def pinned(self, lake_id: str, snapshot_id: int) -> Iterator[None]:
        """Inside, the snapshot does not expire; for a day at most."""

        def work(connection: Connection) -> int:
            connection.execute("DELETE FROM headwater.pins WHERE expires_at < now()")
            row = connection.execute(
                "INSERT INTO headwater.pins (lake_id, snapshot_id, expires_at)"
                " VALUES (%s, %s, now() + make_interval(secs => %s)) RETURNING id",
                (lake_id, snapshot_id, LONGEST),
            ).fetchone()
            assert row is not None
            return int(row[0])

        id_ = self._connection.run(work)
        try:
            yield
        finally:
            self._write("DELETE FROM headwater.pins WHERE id = %s", (id_,))

    def pins(self, lake_id: str) -> set[int]:
        """The snapshots of a lake that are being read, and those that a `verify` is about to read."""
        found = self.query(
            "SELECT snapshot_id FROM headwater.pins WHERE lake_id = %s AND expires_at > now()"
            " UNION SELECT f.reached_snapshot FROM headwater.fences f JOIN headwater.groups g ON g.name = f.group_name"
            " WHERE g.lake_id = %s AND f.reached_snapshot IS NOT NULL AND f.expires_at > now()"
            " AND f.created_at > now() - interval '1 hour'",
            (lake_id, lake_id),
        )
        return {int(id_) for (id_,) in found}
