"""The state: groups, their tables and fences, in the schema `headwater` of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, astuple
from datetime import datetime
from typing import Any, Literal, TypeVar

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from headwater.change import Lsn, TableName
from headwater.errors import OperatorMustAct
from headwater.lake.counts import Counts
from headwater.postgres.connect import Connection
from headwater.state.connection import SharedConnection
from headwater.state.lock import PATIENCE, Lock
from headwater.state.migrations import migrate
from headwater.state.rows import Fence, GroupRow, Location, Member, Partitions, TableOptions, TableRow, TableState

__all__ = ["State"]

Row = TypeVar("Row")

_GROUP = (
    "SELECT name, source_id, slot, publication, slot_requested, captured_lsn, confirmed_lsn, delivered_lsn,"
    " trimmed_lsn, ddl_marks, ddl_lsn, ddl_doubted, watched_lsn, snapshot_id, delivered_at, capture_error,"
    " delivery_error, log_path, log_id, lake_url, lake_id, updated_at FROM headwater.groups"
)
_TABLE = (
    "SELECT group_name, source_oid, namespace, name, lake_schema, lake_table, state, position, copy_lsn, copied_rows,"
    " copy_total, inserted, updated, deleted, error, failures, retry_at, configured_schema, configured_table, options,"
    " quarantined, resync, published, replaces, dropped_lsn, updated_at FROM headwater.tables"
)
_FENCE = (
    'SELECT id, group_name AS "group", lsn, reached_snapshot, reached_lsn, created_at, expires_at FROM headwater.fences'
)


class State:
    """May be used from several threads; survives a restart of its server; raises Unreachable while there is none."""

    def __init__(self, session: SharedConnection) -> None:
        self._session = session

    @classmethod
    def connect(cls, url: str) -> State:
        """Open the state's database now, so that a wrong URL is known now."""
        session = SharedConnection(url)
        with session.transaction():
            return cls(session)

    @property
    def url(self) -> str:
        return self._session.url

    def migrate(self) -> None:
        """Create the schema `headwater`, or bring an older one to this version."""
        self._session.run(migrate)

    def close(self) -> None:
        self._session.close()

    def transaction(self) -> AbstractContextManager[Connection]:
        """A transaction on the state's connection, for the log's index; tried once."""
        return self._session.transaction()

    def query(self, sql: str, parameters: tuple[Any, ...] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a reading statement."""
        return self._session.run(lambda connection: connection.execute(sql, parameters).fetchall())

    def ensure_group(self, name: str, source_id: str, slot: str, publication: str) -> GroupRow:
        """Make the group known; refuse one that belongs to another source."""
        self._write(
            "INSERT INTO headwater.groups (name, source_id, slot, publication) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (name) DO NOTHING",
            (name, source_id, slot, publication),
        )
        row = self.group(name)
        assert row is not None
        if (row.source_id, row.slot, row.publication) != (source_id, slot, publication):
            raise OperatorMustAct(
                f"group {name!r} was captured from source {row.source_id!r}, slot {row.slot!r};"
                f" now it should be {source_id!r}, slot {slot!r}",
                hint=f"point `source` at the database it was; or start over: `headwater group drop {name}`, then"
                " `headwater run` copies the tables anew",
            )
        return row

    def group(self, name: str) -> GroupRow | None:
        return next(iter(self._rows(GroupRow, f"{_GROUP} WHERE name = %s", (name,))), None)

    def groups(self) -> list[GroupRow]:
        return self._rows(GroupRow, f"{_GROUP} ORDER BY name", ())

    def record_lake(self, group: str, lake: Location | None) -> None:
        """Note which lake is the group's; None: whichever is opened next."""
        self._write(
            "UPDATE headwater.groups SET lake_url = %s, lake_id = %s, updated_at = now() WHERE name = %s",
            (*(lake or (None, None)), group),
        )

    def record_log(self, group: str, settle: Callable[[Location | None], Location]) -> None:
        """Note which log is the group's, as `settle` makes it of what is recorded; one process at a time does so."""
        with self.transaction() as connection:
            row = connection.execute(
                "SELECT log_path, log_id FROM headwater.groups WHERE name = %s FOR UPDATE", (group,)
            ).fetchone()
            assert row is not None, "a group is made before its log is used"
            recorded = Location.of(*row)
            if (settled := settle(recorded)) != recorded:
                connection.execute(
                    "UPDATE headwater.groups SET log_path = %s, log_id = %s, updated_at = now() WHERE name = %s",
                    (*settled, group),
                )

    def drop_group(self, name: str) -> None:
        """Forget the group, its tables and the index of its log."""
        with self.transaction() as connection:
            # Its segments first: the rows that tell of their parts hold on to the relations.
            connection.execute("DELETE FROM headwater.segments WHERE group_name = %s", (name,))
            connection.execute("DELETE FROM headwater.groups WHERE name = %s", (name,))

    def request_slot(self, group: str) -> None:
        """Note that the group's slot is about to be created, so that it is known as ours after a crash."""
        self._write("UPDATE headwater.groups SET slot_requested = true, updated_at = now() WHERE name = %s", (group,))

    def begin_capture(self, group: str, lsn: Lsn) -> None:
        """Note where the new slot begins, and the log with it: of what came before there is nothing to be had."""
        self._write(
            "UPDATE headwater.groups SET captured_lsn = %s, confirmed_lsn = %s, trimmed_lsn = %s, captured_at = now(),"
            " updated_at = now()"
            " WHERE name = %s AND captured_lsn IS NULL",
            (lsn, lsn, lsn, group),
        )

    def record_error(self, group: str, stage: Literal["capture", "delivery"], error: str | None) -> None:
        """Say what keeps a stage of the group from going on; None: nothing any more."""
        error = _storable(error)
        self._write(
            f"UPDATE headwater.groups SET {stage}_error = %s, updated_at = now()"
            f" WHERE name = %s AND {stage}_error IS DISTINCT FROM %s",
            (error, group, error),
        )

    def ensure_table(
        self,
        group: str,
        oid: int,
        source: TableName,
        lake: TableName,
        configured: TableName | None = None,
        options: TableOptions | None = None,
    ) -> TableRow:
        """Make the table known (PENDING), or note its new name; where it was copied to, there it stays.

        `configured` is what the config calls it, if that is not its name now.
        """
        self._write(
            "INSERT INTO headwater.tables (group_name, source_oid, namespace, name, lake_schema, lake_table,"
            " configured_schema, configured_table, options)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (group_name, source_oid) DO UPDATE SET"
            " namespace = excluded.namespace, name = excluded.name, updated_at = now(),"
            " configured_schema = excluded.configured_schema, configured_table = excluded.configured_table,"
            " options = excluded.options,"
            " lake_schema = CASE WHEN tables.position IS NULL THEN excluded.lake_schema ELSE tables.lake_schema END,"
            " lake_table = CASE WHEN tables.position IS NULL THEN excluded.lake_table ELSE tables.lake_table END",
            (group, oid, *source, *lake, *(configured or source), Jsonb(asdict(options or TableOptions()))),
        )
        return next(row for row in self.tables(group) if row.oid == oid)

    def tables(self, group: str) -> list[TableRow]:
        rows = self.query(f"{_TABLE} WHERE group_name = %s ORDER BY namespace, name, source_oid", (group,))
        return [_table(row) for row in rows]

    def rename_table(
        self, group: str, oid: int, *, source: TableName | None = None, lake: TableName | None = None
    ) -> None:
        """Note how the table is called now, in the source or in the lake."""
        self._write(
            "UPDATE headwater.tables SET namespace = coalesce(%s, namespace), name = coalesce(%s, name),"
            " lake_schema = coalesce(%s, lake_schema), lake_table = coalesce(%s, lake_table), updated_at = now()"
            " WHERE group_name = %s AND source_oid = %s",
            (*(source or (None, None)), *(lake or (None, None)), group, oid),
        )

    def set_state(
        self,
        group: str,
        oid: int,
        state: TableState,
        *,
        position: Lsn | None = None,
        copy_lsn: Lsn | None = None,
        error: str | None = None,
        failures: int = 0,
        retry_at: datetime | None = None,
    ) -> None:
        """Move a table on. Positions left out stay; error, failures and retry_at left out are cleared.

        A copy (`copy_lsn`) settles the requests to copy it again that were made before it; while one is left the
        table is PENDING and not CATCHUP or STREAMING, whoever says so.
        """
        self._write(
            "UPDATE headwater.tables SET state = CASE WHEN resync IS NOT NULL AND %(state)s IN ('CATCHUP', 'STREAMING')"
            " AND NOT coalesce(%(copy)s::pg_lsn >= resync_lsn, false) THEN 'PENDING' ELSE %(state)s END,"
            " resync = CASE WHEN %(copy)s::pg_lsn >= resync_lsn THEN NULL ELSE resync END,"
            " replaces = CASE WHEN %(copy)s::pg_lsn >= resync_lsn THEN '{}' ELSE replaces END,"
            " position = coalesce(%(position)s, position), copy_lsn = coalesce(%(copy)s, copy_lsn),"
            " error = %(error)s, failures = %(failures)s, retry_at = %(retry_at)s, updated_at = now()"
            " WHERE group_name = %(group)s AND source_oid = %(oid)s",
            {
                "state": state,
                "position": position,
                "copy": copy_lsn,
                "error": _storable(error),
                "failures": failures,
                "retry_at": retry_at,
                "group": group,
                "oid": oid,
            },
        )

    def request_resync(self, group: str, oid: int, reason: str, lsn: Lsn | None = None) -> None:
        """Have the table copied again: only a copy of `lsn` or later will do; None: any that is still to come."""
        self._write(
            "UPDATE headwater.tables SET resync = coalesce(resync, %s), resync_lsn = greatest(resync_lsn, %s),"
            " state = CASE WHEN state IN ('CATCHUP', 'STREAMING', 'ERRORED') THEN 'PENDING' ELSE state END,"
            " error = NULL, failures = 0, retry_at = NULL, updated_at = now()"
            " WHERE group_name = %s AND source_oid = %s",
            (reason, lsn or Lsn(0), group, oid),
        )

    def note_counts(self, group: str, counts: Mapping[int, Counts]) -> None:
        """Keep what the lake says became of each table."""
        self._session.run(lambda connection: _count(connection, group, counts))

    def partitions(self, group: str) -> dict[int, Partitions]:
        """What was below each partitioned table, as `note_partitions` has it."""
        rows = self.query(
            "SELECT source_oid, partitions FROM headwater.tables WHERE group_name = %s AND partitions IS NOT NULL",
            (group,),
        )
        return {
            oid: Partitions(
                Lsn.parse(kept["lsn"]),
                kept["horizon"],
                {int(each): Member(*member) for each, member in kept["members"].items()},
            )
            for oid, kept in rows
        }

    def note_published(self, group: str, found: Mapping[int, str]) -> None:
        """Keep what marks each table's place in the publication."""

        def work(connection: Connection) -> None:
            connection.cursor().executemany(
                "UPDATE headwater.tables SET published = %s WHERE group_name = %s AND source_oid = %s",
                [(mark, group, oid) for oid, mark in found.items()],
            )

        self._session.run(work)

    def note_partitions(self, group: str, found: Mapping[int, Partitions]) -> None:
        """Keep what a look at the source's catalog has seen, by table."""

        def work(connection: Connection) -> None:
            connection.cursor().executemany(
                "UPDATE headwater.tables SET partitions = %s WHERE group_name = %s AND source_oid = %s",
                [
                    (Jsonb({"lsn": str(each.lsn), "horizon": each.horizon, "members": dict(each.members)}), group, oid)
                    for oid, each in found.items()
                ],
            )

        self._session.run(work)

    def note_ddl(self, group: str, marks: str | None) -> None:
        """Note what marks the event triggers now; until the next look at all tables they are not trusted."""
        self._write(
            "UPDATE headwater.groups SET ddl_marks = %s, ddl_lsn = NULL,"
            " ddl_doubted = ddl_doubted OR ddl_lsn IS NOT NULL WHERE name = %s",
            (marks, group),
        )

    def trust_ddl(self, group: str, lsn: Lsn) -> None:
        """What they may have missed is dealt with; if they are there, they report every schema change from here on."""
        self._write(
            "UPDATE headwater.groups SET ddl_doubted = false,"
            " ddl_lsn = CASE WHEN ddl_marks IS NOT NULL THEN coalesce(ddl_lsn, %s) END"
            " WHERE name = %s AND (ddl_doubted OR (ddl_marks IS NOT NULL AND ddl_lsn IS NULL))",
            (lsn, group),
        )

    def note_watched(self, group: str, lsn: Lsn) -> None:
        """What the catalog has shown up to there is dealt with. Written only if somebody waits for it."""
        self._write(
            "UPDATE headwater.groups SET watched_lsn = %(lsn)s WHERE name = %(group)s AND EXISTS (SELECT FROM"
            " headwater.fences f WHERE f.group_name = name AND f.expires_at > now() AND f.lsn <= %(lsn)s"
            " AND f.lsn > coalesce(watched_lsn, '0/0'))",
            {"lsn": lsn, "group": group},
        )

    def record_progress(self, group: str, oid: int, copied_rows: int, copy_total: int | None) -> None:
        """Note how far a first copy is."""
        self._write(
            "UPDATE headwater.tables SET copied_rows = %s, copy_total = %s, inserted = 0, updated = 0, deleted = 0,"
            " updated_at = now()"
            " WHERE group_name = %s AND source_oid = %s",
            (copied_rows, copy_total, group, oid),
        )

    def add_progress(self, group: str, oid: int, rows: int) -> None:
        """Count rows a task of a first copy has written."""
        self._write(
            "UPDATE headwater.tables SET copied_rows = copied_rows + %s, updated_at = now()"
            " WHERE group_name = %s AND source_oid = %s",
            (rows, group, oid),
        )

    def record_delivery(
        self, group: str, position: Lsn, snapshot_id: int, positions: Mapping[int, Lsn], counts: Mapping[int, Counts]
    ) -> None:
        """Note where a delivery has brought the lake and its tables. Noting it again changes nothing."""

        def work(connection: Connection) -> None:
            connection.execute(
                "UPDATE headwater.groups SET delivered_lsn = greatest(delivered_lsn, %s), snapshot_id = %s,"
                " delivered_at = now(), updated_at = now() WHERE name = %s",
                (position, snapshot_id, group),
            )
            connection.cursor().executemany(
                "UPDATE headwater.tables SET position = %s, updated_at = now()"
                " WHERE group_name = %s AND source_oid = %s",
                [(to, group, oid) for oid, to in positions.items()],
            )
            _count(connection, group, counts)

        self._session.run(work)

    def add_fence(self, group: str, lsn: Lsn, ttl_seconds: float) -> int:
        """Ask to be told when the lake has reached `lsn`; forgotten after its time."""

        def work(connection: Connection) -> int:
            connection.execute("DELETE FROM headwater.fences WHERE expires_at < now() - interval '1 day'")
            row = connection.execute(
                "INSERT INTO headwater.fences (group_name, lsn, expires_at)"
                " VALUES (%s, %s, now() + make_interval(secs => %s)) RETURNING id",
                (group, lsn, ttl_seconds),
            ).fetchone()
            assert row is not None
            return int(row[0])

        return self._session.run(work)

    def fences(self, group: str) -> list[Fence]:
        """Those neither reached nor expired, the nearest first."""
        return self._rows(
            Fence,
            f"{_FENCE} WHERE group_name = %s AND reached_snapshot IS NULL AND expires_at > now() ORDER BY lsn, id",
            (group,),
        )

    def reach_fences(self, group: str, upto: Lsn, snapshot_id: int, foremost: Lsn) -> None:
        """Tell those who wait for a position at or below `upto`; no table of the snapshot is beyond `foremost`."""
        self._write(
            "UPDATE headwater.fences SET reached_snapshot = %s, reached_lsn = %s"
            " WHERE group_name = %s AND reached_snapshot IS NULL AND lsn <= %s",
            (snapshot_id, foremost, group, upto),
        )

    def fence(self, id: int) -> Fence:
        return self._rows(Fence, f"{_FENCE} WHERE id = %s", (id,))[0]

    @contextmanager
    def lock(self, name: str, patience: float = PATIENCE) -> Iterator[Lock]:
        """Hold the single writer's lock; OperatorMustAct if somebody else still does after `patience` seconds."""
        lock = Lock(self.url, name)
        lock.acquire(patience)
        try:
            yield lock
        finally:
            lock.release()

    def _write(self, sql: str, parameters: tuple[Any, ...] | dict[str, Any]) -> None:
        self._session.run(lambda connection: connection.execute(sql, parameters))

    def _rows(self, kind: type[Row], sql: str, parameters: tuple[Any, ...]) -> list[Row]:
        def work(connection: Connection) -> list[Row]:
            with connection.cursor(row_factory=class_row(kind)) as cursor:
                return cursor.execute(sql, parameters).fetchall()

        return self._session.run(work)


def _storable(error: str | None) -> str | None:
    """PostgreSQL's text has no NUL; a message that quotes a value may."""
    return None if error is None else error.replace("\0", r"\0")


def _count(connection: Connection, group: str, counts: Mapping[int, Counts]) -> None:
    connection.cursor().executemany(
        "UPDATE headwater.tables SET copied_rows = %s, copy_total = %s, inserted = %s, updated = %s, deleted = %s,"
        " quarantined = %s, updated_at = now() WHERE group_name = %s AND source_oid = %s",
        [(each.copied, *astuple(each), group, oid) for oid, each in counts.items()],
    )


def _table(row: tuple[Any, ...]) -> TableRow:
    group, oid, *names = row[:6]
    *life, schema, name, options, quarantined, resync, published, replaces, dropped_lsn, updated_at = row[6:]
    named = TableName(*names[:2]), TableName(*names[2:])
    wanted = TableName(schema, name), TableOptions(**{key: _frozen(value) for key, value in options.items()})
    rest = quarantined, resync, published, tuple(replaces), dropped_lsn, updated_at
    return TableRow(group, oid, *named, *life, *wanted, *rest)  # type: ignore[call-arg]


def _frozen(value: Any) -> Any:
    """A list of JSON as the tuple that it was."""
    return tuple(value) if isinstance(value, list) else value
