"""The state: groups, their tables and fences, in the schema `headwater` of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.change import Lsn
from headwater.lake.counts import Counts
from headwater.postgres.connect import Connection
from headwater.state.additions import Additions
from headwater.state.copies import Copies
from headwater.state.deliveries import Deliveries, Work, noting
from headwater.state.fences import Fences
from headwater.state.groups import Groups
from headwater.state.maintained import Maintenances
from headwater.state.pins import Pins
from headwater.state.removals import Removals
from headwater.state.requests import Requests
from headwater.state.routes import Routes
from headwater.state.tables import Tables, write_counts

__all__ = ["State"]


class State(Groups, Tables, Removals, Copies, Deliveries, Fences, Pins, Maintenances, Routes, Requests, Additions):
    """Everything that must be known again after a restart. `Database` says how it behaves as a connection."""

    def record_delivery(
        self,
        group: str,
        position: Lsn,
        snapshot_id: int,
        positions: Mapping[int, Lsn],
        counts: Mapping[int, Counts],
        *,
        work: Work | None = None,
    ) -> None:
        """Note where a delivery has brought the lake and its tables. Noting it again changes nothing.

        With `work`, it is one of the `deliveries`.
        """

        def note(connection: Connection) -> None:
            noted, values = noting(group, position, snapshot_id, dict(positions), work) if work else ("", ())
            connection.execute(
                f"{noted} UPDATE headwater.groups SET delivered_lsn = greatest(delivered_lsn, %s), snapshot_id = %s,"
                " delivered_at = now(), updated_at = now() WHERE name = %s",
                (*values, position, snapshot_id, group),
            )
            for to in set(positions.values()):  # as a rule they are all in one place
                connection.execute(
                    "UPDATE headwater.tables SET position = %s, updated_at = now()"
                    " WHERE group_name = %s AND source_oid = ANY(%s)",
                    (to, group, [oid for oid, each in positions.items() if each == to]),
                )
            write_counts(connection, group, counts)

        self._connection.run(note)
