"""The rows of removals: partitions that lost their rows without a word in the stream."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from psycopg.types.json import Jsonb

from headwater.change import Lsn
from headwater.postgres.connect import Connection
from headwater.state.database import Database
from headwater.state.rows import Condition, Conditions, Removal

__all__ = ["Removals", "conditions_of"]


class Removals(Database):
    """The removals of the state."""

    def request_removal(self, group: str, oid: int, reason: str, conditions: Conditions) -> None:
        """Have a table's rows removed that meet these conditions. One that waits already is not asked for twice."""
        self._write(
            "INSERT INTO headwater.removals (group_name, source_oid, reason, conditions)"
            " SELECT group_name, source_oid, %(reason)s, %(conditions)s FROM headwater.tables"
            " WHERE group_name = %(group)s AND source_oid = %(oid)s AND NOT EXISTS (SELECT FROM headwater.removals"
            " WHERE group_name = %(group)s AND source_oid = %(oid)s AND conditions = %(conditions)s AND lsn IS NULL)",
            {"group": group, "oid": oid, "reason": reason, "conditions": Jsonb(conditions)},
        )

    def removals(self, group: str) -> list[Removal]:
        """Those that are not done, the oldest first."""
        rows = self.query(
            "SELECT id, source_oid, reason, conditions, lsn FROM headwater.removals WHERE group_name = %s ORDER BY id",
            (group,),
        )
        return [Removal(id_, oid, reason, conditions_of(found), lsn) for id_, oid, reason, found, lsn in rows]

    def place_removals(self, removals: Iterable[Removal], lsn: Lsn | None) -> None:
        """Note where the source has no such rows; None: the lake is past that, and another position is to be found."""
        ids = [each.id for each in removals]
        self._write("UPDATE headwater.removals SET lsn = %s WHERE id = ANY(%s)", (lsn, ids))

    def end_removals(self, removals: Collection[Removal], lsn: Lsn) -> None:
        """Note that their rows are gone from the mirrors, which are at this position."""

        def work(connection: Connection) -> None:
            connection.execute(
                "UPDATE headwater.tables t SET removed_lsn = greatest(removed_lsn, %s) FROM headwater.removals r"
                " WHERE r.id = ANY(%s) AND t.group_name = r.group_name AND t.source_oid = r.source_oid",
                (lsn, ids),
            )
            connection.execute("DELETE FROM headwater.removals WHERE id = ANY(%s)", (ids,))

        ids = [each.id for each in removals]
        self._connection.run(work)

    def forget_removals(self, group: str, oid: int) -> None:
        """Give up a table's removals: it is copied again."""
        self._write("DELETE FROM headwater.removals WHERE group_name = %s AND source_oid = %s", (group, oid))

    def removed(self, group: str, oid: int) -> Lsn | None:
        """Where rows of a partition were last removed from the table's mirror."""
        rows = self.query(
            "SELECT removed_lsn FROM headwater.tables WHERE group_name = %s AND source_oid = %s", (group, oid)
        )
        return rows[0][0] if rows else None


def conditions_of(found: Iterable[Sequence[Any]]) -> Conditions:
    """Conditions as they were kept in JSON."""
    return tuple(
        Condition(attnum, low, high, None if values is None else tuple(values)) for attnum, low, high, values in found
    )
