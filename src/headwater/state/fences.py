"""The rows of fences: positions that a reader waits for."""

from __future__ import annotations

from headwater.change import Lsn
from headwater.postgres.connect import Connection
from headwater.state.database import Database
from headwater.state.rows import Fence
from headwater.state.waitfunction import AWAITED

__all__ = ["Fences"]

_FENCE = (
    'SELECT id, group_name AS "group", lsn, reached_snapshot, reached_lsn, created_at, expires_at FROM headwater.fences'
)


class Fences(Database):
    """The fences of the state."""

    def add_fence(self, group: str, lsn: Lsn, ttl_seconds: float) -> int:
        """Ask for a note when the lake has reached `lsn`; the request expires after that time."""

        def work(connection: Connection) -> int:
            connection.execute("DELETE FROM headwater.fences WHERE expires_at < now() - interval '1 day'")
            row = connection.execute(
                "INSERT INTO headwater.fences (group_name, lsn, expires_at)"
                " VALUES (%s, %s, now() + make_interval(secs => %s)) RETURNING id",
                (group, lsn, ttl_seconds),
            ).fetchone()
            assert row is not None
            return int(row[0])

        return self._connection.run(work)

    def fences(self, group: str) -> list[Fence]:
        """Those neither reached nor expired, the nearest first."""
        return self._rows(
            Fence,
            f"{_FENCE} WHERE group_name = %s AND reached_snapshot IS NULL AND expires_at > now() ORDER BY lsn, id",
            (group,),
        )

    def awaited(self, group: str) -> Lsn:
        """The furthest position that is waited for, by a fence or by `headwater.wait_for`; 0/0 if none is."""
        ((lsn,),) = self.query(
            f"SELECT coalesce(greatest({AWAITED}, max(lsn)), '0/0')"
            " FROM headwater.fences WHERE group_name = %s AND reached_snapshot IS NULL AND expires_at > now()",
            (group,),
        )
        assert isinstance(lsn, Lsn)
        return lsn

    def reach_fences(self, group: str, upto: Lsn, snapshot_id: int, foremost: Lsn) -> None:
        """Note that fences at or below `upto` are reached; no table of the snapshot is beyond `foremost`."""
        self._write(
            "UPDATE headwater.fences SET reached_snapshot = %s, reached_lsn = %s"
            " WHERE group_name = %s AND reached_snapshot IS NULL AND lsn <= %s",
            (snapshot_id, foremost, group, upto),
        )

    def fence(self, id: int) -> Fence:
        return self._rows(Fence, f"{_FENCE} WHERE id = %s", (id,))[0]
