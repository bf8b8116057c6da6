"""The rows of tables: their names, what the config wants of them, their states and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from psycopg.types.json import Jsonb

from headwater.change import Lsn, TableName
from headwater.lake.counts import Counts
from headwater.postgres.connect import Connection
from headwater.state.copies import forget
from headwater.state.database import Database, storable
from headwater.state.removals import conditions_of
from headwater.state.rows import Configured, Member, Partitions, TableOptions, TableRow
from headwater.state.transitions import Copied, Displaced, Event, RecopyRequested, Removed, after

__all__ = ["Tables", "apply", "write_counts"]

_TABLE = (
    "SELECT group_name, source_oid, namespace, name, lake_schema, lake_table, state, position, copy_lsn, copied_rows,"
    " copy_total, inserted, updated, deleted, error, failures, retry_at, configured_schema, configured_table, options,"
    " quarantined, resync, resync_lsn, published, replaces, dropped_lsn, updated_at FROM headwater.tables"
)


class Tables(Database):
    """The tables of the state."""

    def ensure_table(
        self, group: str, oid: int, source: TableName, lake: TableName, configured: Configured | None = None
    ) -> TableRow:
        """Make the table known (PENDING), or note its new name; a table that was copied keeps its name in the lake.

        Without `configured` it has its present name in the config, and no options.
        """
        name, options = configured or Configured(source, TableOptions())
        self._write(
            "INSERT INTO headwater.tables (group_name, source_oid, namespace, name, lake_schema, lake_table,"
            " configured_schema, configured_table, options)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (group_name, source_oid) DO UPDATE SET"
            " namespace = excluded.namespace, name = excluded.name, updated_at = now(),"
            " configured_schema = excluded.configured_schema, configured_table = excluded.configured_table,"
            " options = excluded.options,"
            " lake_schema = CASE WHEN tables.position IS NULL THEN excluded.lake_schema ELSE tables.lake_schema END,"
            " lake_table = CASE WHEN tables.position IS NULL THEN excluded.lake_table ELSE tables.lake_table END",
            (group, oid, *source, *lake, *name, Jsonb(asdict(options))),
        )
        (row,) = self.query(f"{_TABLE} WHERE group_name = %s AND source_oid = %s", (group, oid))
        return _table(row)

    def tables(self, group: str) -> list[TableRow]:
        rows = self.query(f"{_TABLE} WHERE group_name = %s ORDER BY namespace, name, source_oid", (group,))
        return [_table(row) for row in rows]

    def rename_table(
        self, group: str, oid: int, *, source: TableName | None = None, lake: TableName | None = None
    ) -> None:
        """Note the table's new name in the source or in the lake."""
        self._write(
            "UPDATE headwater.tables SET namespace = coalesce(%s, namespace), name = coalesce(%s, name),"
            " lake_schema = coalesce(%s, lake_schema), lake_table = coalesce(%s, lake_table), updated_at = now()"
            " WHERE group_name = %s AND source_oid = %s",
            (*(source or (None, None)), *(lake or (None, None)), group, oid),
        )

    def record(self, group: str, oid: int, event: Event) -> None:
        """Record what happened to a table, and move it to the state that follows (see `transitions`)."""
        self._connection.run(lambda connection: apply(connection, group, oid, event))

    def request_resync(self, group: str, oid: int, reason: str, lsn: Lsn | None = None) -> None:
        """Have the table copied again: only a copy of `lsn` or later will do; None: any that is still to come."""
        self.record(group, oid, RecopyRequested(reason, lsn))

    def note_published(self, group: str, found: Mapping[int, str]) -> None:
        """Keep what marks each table's place in the publication."""
        self._note("published", group, found)

    def note_partitions(self, group: str, found: Mapping[int, Partitions]) -> None:
        """Keep what the source's catalog shows below each partitioned table."""
        kept = {
            oid: Jsonb({"lsn": str(each.lsn), "horizon": each.horizon, "members": dict(each.members)})
            for oid, each in found.items()
        }
        self._note("partitions", group, kept)

    def forget_partitions(self, group: str) -> None:
        """The next look is the first one."""
        self._write("UPDATE headwater.tables SET partitions = NULL WHERE group_name = %s", (group,))

    def partitions(self, group: str) -> dict[int, Partitions]:
        """What was below each partitioned table, as `note_partitions` kept it."""
        rows = self.query(
            "SELECT source_oid, partitions FROM headwater.tables WHERE group_name = %s AND partitions IS NOT NULL",
            (group,),
        )
        return {
            oid: Partitions(
                Lsn.parse(kept["lsn"]),
                kept["horizon"],
                {int(each): _member(*member) for each, member in kept["members"].items()},
            )
            for oid, kept in rows
        }

    def note_counts(self, group: str, counts: Mapping[int, Counts]) -> None:
        """Keep what the lake counted for each table."""
        self._connection.run(lambda connection: write_counts(connection, group, counts))

    def record_progress(self, group: str, oid: int, copied_rows: int, copy_total: int | None) -> None:
        """Note how far a first copy is."""
        self._write(
            "UPDATE headwater.tables SET copied_rows = %s, copy_total = %s, inserted = 0, updated = 0, deleted = 0,"
            " updated_at = now()"
            " WHERE group_name = %s AND source_oid = %s",
            (copied_rows, copy_total, group, oid),
        )

    def _note(self, column: str, group: str, found: Mapping[int, object]) -> None:
        def work(connection: Connection) -> None:
            connection.cursor().executemany(
                f"UPDATE headwater.tables SET {column} = %s WHERE group_name = %s AND source_oid = %s",
                [(value, group, oid) for oid, value in found.items()],
            )

        self._connection.run(work)


def apply(connection: Connection, group: str, oid: int, event: Event) -> None:
    """Move a table to where an event brings it, in the caller's transaction; one that is not known is left alone."""
    found = connection.execute(
        f"{_TABLE} WHERE group_name = %s AND source_oid = %s FOR UPDATE", (group, oid)
    ).fetchone()
    if found is None:
        return
    row = _table(found)
    now = after(row, event)
    if _ends_copy(event):
        forget(connection, group, [oid])  # in the same transaction, or the next copy would go on with it
    if now == row:
        return
    connection.execute(
        "UPDATE headwater.tables SET state = %s, position = %s, copy_lsn = %s, error = %s, failures = %s,"
        " retry_at = %s, resync = %s, resync_lsn = %s, replaces = %s::bigint[], dropped_lsn = %s, updated_at = now()"
        " WHERE group_name = %s AND source_oid = %s",
        (
            *(now.state, now.position, now.copy_lsn, storable(now.error), now.failures, now.retry_at),
            *(now.resync, now.resync_lsn, list(now.replaces), now.dropped_lsn, group, oid),
        ),
    )


def _ends_copy(event: Event) -> bool:
    """Whether no copy may go on with what an earlier one has done."""
    return isinstance(event, Copied | Removed | Displaced) or (isinstance(event, RecopyRequested) and event.lsn is None)


def write_counts(connection: Connection, group: str, counts: Mapping[int, Counts]) -> None:
    """Keep what the lake counted for each table, in the caller's transaction."""
    if not counts:
        return
    rows = [
        (oid, each.copied, each.copied, each.inserted, each.updated, each.deleted, each.quarantined)
        for oid, each in counts.items()
    ]
    arrays = [list(column) for column in zip(*rows, strict=True)]
    connection.execute(
        "UPDATE headwater.tables t SET copied_rows = n.copied_rows, copy_total = n.copy_total, inserted = n.inserted,"
        " updated = n.updated, deleted = n.deleted, quarantined = n.quarantined, updated_at = now()"
        " FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])"
        " AS n(oid, copied_rows, copy_total, inserted, updated, deleted, quarantined)"
        " WHERE t.group_name = %s AND t.source_oid = n.oid",
        (*arrays, group),
    )


def _table(row: tuple[Any, ...]) -> TableRow:
    group, oid, *names = row[:6]
    *life, schema, name, options, quarantined, resync, resync_lsn, published, replaces, dropped_lsn, updated_at = row[
        6:
    ]
    named = TableName(*names[:2]), TableName(*names[2:])
    wanted = TableName(schema, name), TableOptions(**{key: _frozen(value) for key, value in options.items()})
    rest = quarantined, resync, resync_lsn, published, tuple(replaces), dropped_lsn, updated_at
    return TableRow(group, oid, *named, *life, *wanted, *rest)  # type: ignore[call-arg]


def _member(filenode: int, attached: int, parent: int = 0, conditions: Sequence[Sequence[Any]] | None = None) -> Member:
    """A member as an older version may have kept it, too."""
    return Member(filenode, attached, parent, None if conditions is None else conditions_of(conditions))


def _frozen(value: Any) -> Any:
    """A list of JSON as the tuple that it was."""
    return tuple(value) if isinstance(value, list) else value
