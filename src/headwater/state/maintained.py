"""The rows of what maintenance has done: for each table of a lake, the last."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from headwater.change import TableName
from headwater.lake.maintenance import Chores
from headwater.state.database import Database

__all__ = ["LastMaintenance", "Maintenances"]


@dataclass(frozen=True, slots=True)
class LastMaintenance:
    at: datetime
    done: Chores


class Maintenances(Database):
    """What was last done to the tables of groups' lakes."""

    def record_maintained(self, group: str, table: TableName, done: Chores) -> None:
        self._write(
            "INSERT INTO headwater.maintained (group_name, lake_schema, lake_table, done) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (group_name, lake_schema, lake_table) DO UPDATE SET done = excluded.done, done_at = now()",
            (group, table.schema, table.name, Jsonb(asdict(done))),
        )

    def maintained(self, group: str) -> dict[TableName, LastMaintenance]:
        """By the tables' names in the lake; none of a state that was not migrated yet."""
        if not self.knows("maintained"):
            return {}
        found = self.query(
            "SELECT lake_schema, lake_table, done_at, done FROM headwater.maintained WHERE group_name = %s", (group,)
        )
        return {TableName(schema, name): LastMaintenance(at, Chores(**done)) for schema, name, at, done in found}
