"""What was added to the config by command or in SQL, which groups are disabled, and what the config has itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb

from headwater.postgres.connect import Connection
from headwater.state.database import Database

__all__ = ["AddedTable", "Additions", "forget_group"]


class AddedTable(NamedTuple):
    """A table that was added to a group: `entry` is what the config would have under `tables:`."""

    group: str
    table: str  # as `TableName` spells it
    entry: Mapping[str, Any]
    copy: bool


class Additions(Database):
    """The additions of the state: they stay until they are removed."""

    def added_tables(self) -> list[AddedTable]:
        rows = self.query(
            "SELECT group_name, table_name, entry, copy FROM headwater.added_tables ORDER BY group_name, table_name"
        )
        return [AddedTable(*row) for row in rows]

    def add_table(self, added: AddedTable, by: str | None = None) -> None:
        """Add a table, or let it have another entry; `by` is the role that asked for it, by default our own."""
        self._write(
            "INSERT INTO headwater.added_tables (group_name, table_name, entry, copy, added_by)"
            " VALUES (%s, %s, %s, %s, coalesce(%s, session_user)) ON CONFLICT (group_name, table_name)"
            " DO UPDATE SET entry = excluded.entry, copy = excluded.copy",
            (added.group, added.table, Jsonb(dict(added.entry)), added.copy, by),
        )

    def move_added_table(self, table: str, group: str, to: str) -> None:
        """Have another group have it, which copies it; nothing if the group does not have it."""
        self._write(
            "UPDATE headwater.added_tables SET group_name = %s, copy = true WHERE group_name = %s AND table_name = %s",
            (to, group, table),
        )

    def forget_added_table(self, group: str, table: str) -> None:
        self._write("DELETE FROM headwater.added_tables WHERE group_name = %s AND table_name = %s", (group, table))

    def added_groups(self) -> dict[str, Mapping[str, Any]]:
        """By name, what the config would have of each group, without its tables."""
        return dict(self.query("SELECT name, settings FROM headwater.added_groups ORDER BY name"))

    def add_group(self, name: str, settings: Mapping[str, Any], by: str | None = None) -> None:
        """Add a group, or let it have other settings; `by` is the role that asked for it, by default our own."""
        self._write(
            "INSERT INTO headwater.added_groups (name, settings, added_by) VALUES (%s, %s, coalesce(%s, session_user))"
            " ON CONFLICT (name) DO UPDATE SET settings = excluded.settings",
            (name, Jsonb(dict(settings)), by),
        )

    def forget_added_group(self, name: str) -> None:
        self._write("DELETE FROM headwater.added_groups WHERE name = %s", (name,))

    def disabled_groups(self) -> set[str]:
        return {name for (name,) in self.query("SELECT name FROM headwater.disabled_groups")}

    def enable_group(self, name: str) -> None:
        self._write("DELETE FROM headwater.disabled_groups WHERE name = %s", (name,))

    def disable_group(self, name: str) -> None:
        self._write("INSERT INTO headwater.disabled_groups (name) VALUES (%s) ON CONFLICT (name) DO NOTHING", (name,))

    def declare(self, log: str, tables: Mapping[str, Collection[str]]) -> None:
        """Note the tables of each group in the config, as `TableName` spells them, in place of what was noted before.

        What the configs of other logs have stays.
        Nothing is written if that is the same, so that an idle source stays idle.
        """
        pairs = [(group, table) for group, each in tables.items() for table in each]
        arguments = {"log": log, "groups": [group for group, _ in pairs], "tables": [table for _, table in pairs]}

        def work(connection: Connection) -> None:
            connection.execute(
                "DELETE FROM headwater.declared_tables WHERE log_path = %(log)s AND (group_name, table_name) NOT IN"
                " (SELECT * FROM unnest(%(groups)s::text[], %(tables)s::text[]))",
                arguments,
            )
            connection.execute(
                "INSERT INTO headwater.declared_tables (group_name, table_name, log_path)"
                " SELECT *, %(log)s FROM unnest(%(groups)s::text[], %(tables)s::text[]) ON CONFLICT DO NOTHING",
                arguments,
            )

        self._connection.run(work)


def forget_group(connection: Connection, name: str) -> None:
    """Forget what was added to the group, and the group if it was added, in the caller's transaction."""
    connection.execute("DELETE FROM headwater.added_tables WHERE group_name = %s", (name,))
    connection.execute("DELETE FROM headwater.declared_tables WHERE group_name = %s", (name,))
    connection.execute("DELETE FROM headwater.added_groups WHERE name = %s", (name,))
    connection.execute("DELETE FROM headwater.disabled_groups WHERE name = %s", (name,))
