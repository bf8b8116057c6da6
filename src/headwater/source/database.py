"""The source: who it is, its tables' shapes, our publication and our slot in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import psycopg
from psycopg import sql

from headwater.change import Lsn, TableName
from headwater.errors import ConfigError, OperatorMustAct, SlotLost
from headwater.postgres.connect import Connection, connect, server_name, translated
from headwater.source import triggers as ddl
from headwater.source.relations import GENERATED_SINCE, LISTS_SINCE
from headwater.state import GroupRow, State

__all__ = [
    "GENERATED_SINCE",
    "Identity",
    "Published",
    "Slot",
    "Source",
    "anew",
    "check_slot",
    "current_end",
    "exchange",
    "move_on",
    "named_oid",
    "object_name",
    "oid_of",
    "publication_tables",
    "sends_all",
    "slot_gone",
    "slot_of",
    "strange_slot",
    "strange_source",
]


def anew(group: str) -> str:
    """What is left to do when changes are gone for good."""
    return f"`headwater group drop {group}`, then `headwater run` copies the tables anew, in place of their old mirrors"


@dataclass(frozen=True, slots=True)
class Identity:
    """Which cluster and database this is."""

    system_identifier: str
    database: str
    version: int  # major

    @property
    def source_id(self) -> str:
        return f"{self.system_identifier}/{self.database}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A row of pg_replication_slots."""

    name: str
    plugin: str
    database: str
    confirmed_lsn: Lsn
    lost: str  # why it can never be read again; empty if it can


def object_name(group: str) -> str:
    """The name of a group's slot and of its publication."""
    return f"headwater_{group}"


class Source:
    """The source database, on a connection of its own; a context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = connect(url, application_name="headwater source")

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def identify(self) -> Identity:
        with translated(self._url):
            row = self._connection.execute(
                "SELECT system_identifier::text, current_database(), current_setting('server_version_num')::int / 10000"
                " FROM pg_control_system()"
            ).fetchone()
        assert row is not None
        return Identity(*row)

    def current_lsn(self) -> Lsn:
        """A position after everything committed so far, which the stream will reach even if nothing more is written."""
        with translated(self._url), self._connection.transaction():
            self._connection.execute("SET LOCAL synchronous_commit = on")
            row = self._connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
            # A record beyond that position: else an idle server may stop a page header short of it for ever.
            self._connection.execute("SELECT pg_logical_emit_message(true, 'headwater', 'fence')")
        assert row is not None
        lsn: Lsn = row[0]
        return lsn

    def ensure_triggers(self) -> str | None:
        """Have event triggers report schema changes, if we may; their marks, or None."""
        with translated(self._url):
            return ddl.install(self._connection)

    def ensure_publication(
        self, name: str, tables: Iterable[TableName] | Mapping[TableName, Collection[str] | None]
    ) -> None:
        """Make the publication send all of exactly these tables, of some only these columns; its row filters stay.

        To be done before the slot is made.
        """
        wanted = dict(tables) if isinstance(tables, Mapping) else dict.fromkeys(tables)
        try:
            with translated(self._url), self._connection.transaction():
                members = {named_oid(self._connection, table): (table, wanted[table]) for table in wanted}
                self._publish(name, members)
        except OperatorMustAct as exc:
            raise OperatorMustAct(
                f"publication {name!r} cannot be kept: {exc.message}",
                hint="connect as the owner of the tables and of the publication, with CREATE on the database",
            ) from exc

    def _publish(self, name: str, wanted: Mapping[int, tuple[TableName, Collection[str] | None]]) -> None:
        have = publication_tables(self._connection, name)
        if have is None:
            self._create_publication(name, [_member(*each, None) for each in wanted.values()])
            return
        self._send_all(name)
        # By OID: a table keeps its place when it is renamed.
        lists = {oid: frozenset(columns) if columns else None for oid, (_, columns) in wanted.items()}
        if lists == {oid: each.columns for oid, each in have.items()}:
            return
        filters = {oid: each.row_filter for oid, each in have.items()}
        members = [_member(*each, filters.get(oid)) for oid, each in wanted.items()]
        if members:  # all at once: what stays is never left out
            statement = sql.SQL("ALTER PUBLICATION {} SET TABLE {}")
        else:
            members = [_member(each.table, None, None) for each in have.values()]
            statement = sql.SQL("ALTER PUBLICATION {} DROP TABLE {}")
        self._alter(statement.format(sql.Identifier(name), sql.SQL(", ").join(members)))

    def _create_publication(self, name: str, members: list[sql.Composed]) -> None:
        tables = sql.SQL(" FOR TABLE {}").format(sql.SQL(", ").join(members)) if members else sql.SQL("")
        statement = sql.SQL("CREATE PUBLICATION {}{} WITH ({})")
        self._alter(statement.format(sql.Identifier(name), tables, self._options()))

    def _send_all(self, name: str) -> None:
        right = f"SELECT {sends_all(self._connection)} FROM pg_publication p WHERE pubname = %s"
        if self._connection.execute(right, (name,)).fetchone() != (True,):
            self._alter(sql.SQL("ALTER PUBLICATION {} SET ({})").format(sql.Identifier(name), self._options()))

    def _options(self) -> sql.SQL:
        options = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
        if self._connection.info.server_version >= GENERATED_SINCE:
            options += ", publish_generated_columns = stored"
        return sql.SQL(options)

    def _alter(self, statement: sql.Composed) -> None:
        try:
            self._connection.execute(statement)
        except (psycopg.errors.UndefinedColumn, psycopg.errors.InvalidColumnReference) as exc:
            text = str(exc).strip().split("\n")[0]
            raise ConfigError(f"the source refuses the list of columns: {text}", hint="run `headwater check`") from exc
        except psycopg.errors.ObjectNotInPrerequisiteState as exc:
            text = str(exc).strip().split("\n")[0]
            raise ConfigError(f"a publication of ours was made anew: {text}", hint="drop it, and start again") from exc

    def ensure_slot(self, group: str, state: State) -> Lsn:
        """Create the group's slot, or adopt it if it is ours; return the position it stands at.

        The group must be in the state. A slot that somebody else made is refused, one that is gone is SlotLost.
        """
        with translated(self._url):
            # The slot first: a capture that runs still notes a position, then moves the slot there.
            slot = slot_of(self._connection, object_name(group))
            row = state.group(group)
            assert row is not None, "ensure_group first"
            if slot is None and row.captured_lsn is not None:
                raise slot_gone(row)
            if slot is not None and not row.slot_requested:
                raise strange_slot(row.slot, group)
            if slot is None:
                state.request_slot(group)
                slot = self._create_slot(row.slot)
        check_slot(slot, self.identify().database, row.captured_lsn)
        state.begin_capture(group, slot.confirmed_lsn)
        return slot.confirmed_lsn

    def _create_slot(self, name: str) -> Slot:
        try:
            self._connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        except psycopg.errors.ConfigurationLimitExceeded as exc:
            raise OperatorMustAct(
                f"no free replication slot for {name!r} on {server_name(self._url)}",
                hint="raise max_replication_slots and restart the server, or drop a slot nobody uses",
            ) from exc
        slot = slot_of(self._connection, name)
        assert slot is not None
        return slot


def slot_gone(row: GroupRow) -> SlotLost:
    return SlotLost(
        f"slot {row.slot!r} of group {row.name!r} is gone; its log ends at {row.captured_lsn}",
        hint=f"the changes since then cannot be had: {anew(row.name)}",
    )


def strange_slot(slot: str, group: str) -> OperatorMustAct:
    return OperatorMustAct(
        f"there is a slot {slot!r} already, and it was not made for group {group!r}",
        hint=f"drop it with SELECT pg_drop_replication_slot('{slot}'), or give the group another name",
    )


def strange_source(row: GroupRow, identity: Identity) -> OperatorMustAct:
    return OperatorMustAct(
        f"group {row.name!r} was captured from source {row.source_id!r}, this one is {identity.source_id!r}",
        hint=f"point `source` at the server it was; or start over: {anew(row.name)}",
    )


def check_slot(slot: Slot, database: str, captured: Lsn | None) -> None:
    """Refuse a slot that is not ours to read, or that cannot give what comes after `captured`."""
    if slot.plugin != "pgoutput" or slot.database != database:
        raise OperatorMustAct(
            f"slot {slot.name!r} is one of {slot.plugin!r} in database {slot.database!r}, not of ours",
            hint=f"drop it with SELECT pg_drop_replication_slot('{slot.name}'), or give the group another name",
        )
    if slot.lost:
        raise SlotLost(
            f"slot {slot.name!r} has lost its WAL: {slot.lost}",
            hint=f"{anew(_group_of(slot))}; a larger max_slot_wal_keep_size gives more time",
        )
    if captured is not None and slot.confirmed_lsn > captured:
        raise OperatorMustAct(
            f"slot {slot.name!r} was moved to {slot.confirmed_lsn} by another client; our log ends at {captured}",
            hint=f"the changes between cannot be had: {anew(_group_of(slot))}",
        )


def _group_of(slot: Slot) -> str:
    return slot.name.removeprefix(object_name(""))


def slot_of(connection: Connection, name: str) -> Slot | None:
    version = connection.info.server_version // 10000
    lost = "CASE WHEN wal_status = 'lost' THEN 'wal_status is lost' ELSE '' END"
    if version >= 17:
        lost = f"coalesce(invalidation_reason, {lost})"
    elif version == 16:
        lost = f"CASE WHEN conflicting THEN 'it conflicts with recovery' ELSE {lost} END"
    row = connection.execute(
        f"SELECT slot_name::text, coalesce(plugin::text, 'physical'), coalesce(database::text, ''),"
        f" coalesce(confirmed_flush_lsn, '0/0'), {lost} FROM pg_replication_slots WHERE slot_name = %s",
        (name,),
    ).fetchone()
    return None if row is None else Slot(*row)


@dataclass(frozen=True, slots=True)
class Published:
    """A table of a publication. `columns` is None when all are sent; `row_filter` is a condition in SQL."""

    table: TableName
    columns: frozenset[str] | None
    row_filter: str | None


def sends_all(connection: Connection) -> str:
    """The condition, in SQL, that publication `p` sends all that is done to its tables, under the roots' names."""
    condition = "p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AND p.pubviaroot"
    return condition + (" AND p.pubgencols = 's'" if connection.info.server_version >= GENERATED_SINCE else "")


def publication_tables(connection: Connection, name: str) -> dict[int, Published] | None:
    """The tables of a publication, by OID; None if there is no such publication."""
    if connection.execute("SELECT FROM pg_publication WHERE pubname = %s", (name,)).fetchone() is None:
        return None
    details = (
        "CASE WHEN r.prattrs IS NOT NULL THEN ARRAY(SELECT a.attname::text FROM pg_attribute a"
        " WHERE a.attrelid = c.oid AND a.attnum = ANY(r.prattrs::int2[])) END, pg_get_expr(r.prqual, r.prrelid)"
        if connection.info.server_version >= LISTS_SINCE
        else "NULL::text[], NULL"
    )
    rows = connection.execute(
        f"SELECT c.oid::bigint, n.nspname::text, c.relname::text, {details} FROM pg_publication p"
        " JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s",
        (name,),
    )
    return {
        oid: Published(TableName(schema, table), None if columns is None else frozenset(columns), condition)
        for oid, schema, table, columns, condition in rows
    }


def oid_of(connection: Connection, table: TableName) -> int | None:
    """The OID of the table that has this name now."""
    row = connection.execute(
        "SELECT c.oid::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')",
        table,
    ).fetchone()
    return None if row is None else int(row[0])


def named_oid(connection: Connection, table: TableName) -> int:
    """The OID of the table that has this name now; ConfigError if there is none."""
    oid = oid_of(connection, table)
    if oid is None:
        raise ConfigError(f"there is no table {str(table)!r} in the source", hint="correct its name in the config")
    return oid


def exchange(connection: Connection, publication: str, old: int, new: int, columns: Collection[str] | None) -> None:
    """Have the publication send one table (only these columns, if told) instead of another; again changes nothing."""
    have = publication_tables(connection, publication) or {}
    name = _name_of(connection, new)
    if name is None:
        return  # dropped this very moment
    steps = []
    if new not in have:
        steps.append(
            sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(
                sql.Identifier(publication), _member(name, columns, None)
            )
        )
    if old in have:
        gone = _member(have[old].table, None, None)
        steps.append(sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(sql.Identifier(publication), gone))
    with connection.transaction():
        # It waits for VACUUM and the like, which takes its time: rather try again later.
        connection.execute("SET LOCAL lock_timeout = '1s'")
        for step in steps:
            connection.execute(step)


def current_end(connection: Connection) -> Lsn:
    """The end of the WAL: everything committed so far is before it."""
    row = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
    assert row is not None
    lsn: Lsn = row[0]
    return lsn


def move_on(connection: Connection) -> None:
    """Write a record: else an idle server may stop a page header short of a position for ever."""
    connection.execute("SELECT pg_logical_emit_message(true, 'headwater', 'look')")


def _name_of(connection: Connection, oid: int) -> TableName | None:
    row = connection.execute(
        "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = %s",
        (oid,),
    ).fetchone()
    return TableName(*row) if row else None


def _member(table: TableName, columns: Iterable[str] | None, row_filter: str | None) -> sql.Composed:
    listed = (
        sql.SQL(" ({})").format(sql.SQL(", ").join(map(sql.Identifier, sorted(columns)))) if columns else sql.SQL("")
    )
    # As PostgreSQL spells it: text from its own catalog, in brackets already.
    condition = sql.SQL(f" WHERE {row_filter}") if row_filter else sql.SQL("")
    return sql.SQL("{}{}{}").format(sql.Identifier(*table), listed, condition)
