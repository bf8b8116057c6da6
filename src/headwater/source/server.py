"""The source's server: which one it is, where its WAL ends, and what its tables are called."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from headwater.change import Lsn, TableName
from headwater.errors import ConfigError, Unreachable
from headwater.postgres.connect import Connection, connect, server_name, translated

__all__ = [
    "SourceIdentity",
    "advance_wal",
    "identify",
    "named_oid",
    "oid_of",
    "pass_wal",
    "table_name",
    "wal_end",
    "wal_target",
]

_FILLING, _MOST_FILLING = 1 << 20, 256 << 20  # bytes that are written to have the WAL pass an LSN: at once, in all


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """Which cluster and database this is."""

    system_identifier: str
    database: str
    timeline: int | None  # None: it is a standby

    @property
    def source_id(self) -> str:
        return f"{self.system_identifier}/{self.database}"


def identify(connection: Connection) -> SourceIdentity:
    row = connection.execute(
        "SELECT system_identifier::text, current_database()::text,"
        # Not the control file's: it has the new timeline of a promoted server only after a checkpoint.
        " CASE WHEN NOT pg_is_in_recovery()"
        " THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END FROM pg_control_system()"
    )
    found = row.fetchone()
    assert found is not None
    return SourceIdentity(*found)


def wal_target(url: str) -> Lsn:
    """A position after everything committed so far, which the stream will reach even if nothing more is written."""
    with closing(connect(url, application_name="headwater source")) as connection, translated(url):
        lsn = wal_end(connection)
        advance_wal(connection)
        return lsn


def wal_end(connection: Connection) -> Lsn:
    """The end of the WAL: everything committed so far is before it."""
    row = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
    assert row is not None
    lsn: Lsn = row[0]
    return lsn


def advance_wal(connection: Connection) -> None:
    """Write a record: else an idle server may stop a page header short of a position for ever."""
    connection.execute("SELECT pg_logical_emit_message(true, 'headwater', 'advance')")


def pass_wal(url: str, lsn: Lsn) -> None:
    """Have the WAL go past `lsn`, by writing what is missing; Unreachable while that is too much to write.

    As a rule it is past it. After a promotion, or a restore to an earlier time, an LSN may come a second time.
    """
    with closing(connect(url, application_name="headwater source")) as connection, translated(url):
        while (missing := lsn.value - wal_end(connection).value) >= 0:
            if missing > _MOST_FILLING:
                raise Unreachable(
                    f"{server_name(url)} is {missing >> 20} MiB of WAL behind {lsn}, where it was before it was"
                    " promoted or restored",
                    hint="wait until it has written as much again; SELECT pg_switch_wal() skips 16 MB each time",
                )
            size = min(missing, _FILLING) + 1
            # Not in a transaction: such a message is passed over by every decoder of ours.
            connection.execute("SELECT pg_logical_emit_message(false, 'headwater', repeat('.', %s))", (size,))


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


def table_name(connection: Connection, oid: int) -> TableName | None:
    """What a table is called now; None if it was dropped."""
    row = connection.execute(
        "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = %s",
        (oid,),
    ).fetchone()
    return TableName(*row) if row else None
