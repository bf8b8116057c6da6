"""Everything in the server's settings, and in our role's rights there, that would keep a group from being captured."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from headwater.errors import OperatorMustAct
from headwater.postgres.connect import Connection, server_name
from headwater.source.naming import object_name, quoted
from headwater.source.slots import FAILOVER_SINCE
from headwater.words import counted

__all__ = ["NO_ENCODING", "REPLICATES", "server_problems"]

logger = logging.getLogger("headwater.source.check")

NO_ENCODING = "SQL_ASCII"
_OLDEST = 14
# Amazon RDS and Aurora have no REPLICATION attribute to give, but a role whose members may replicate.
_REPLICATING_ROLE = "rds_replication"
REPLICATES = (
    "(r.rolreplication OR r.rolsuper OR EXISTS (SELECT FROM pg_roles m"
    f" WHERE m.rolname = '{_REPLICATING_ROLE}' AND pg_has_role(r.oid, m.oid, 'MEMBER')))"
)


def server_problems(connection: Connection, url: str, groups: Iterable[str]) -> Iterator[OperatorMustAct]:
    """What must be set or granted before these groups can be captured."""
    where, names = server_name(url), [object_name(group) for group in groups]
    _report_encoding(connection, where)
    _report_standbys(connection, where)
    yield from _settings(connection, where)
    yield from _role(connection)
    yield from _room(connection, where, names)


def _settings(connection: Connection, where: str) -> Iterator[OperatorMustAct]:
    version = connection.info.server_version // 10000
    if version < _OLDEST:
        yield OperatorMustAct(f"{where} is PostgreSQL {version}", hint=f"upgrade it to {_OLDEST} or newer")
    level, recovery = _row(connection, "SELECT current_setting('wal_level'), pg_is_in_recovery()")
    if recovery:
        yield OperatorMustAct(
            f"{where} is a standby, which cannot hold our state", hint="point `source` at the primary"
        )
    if level != "logical":
        yield OperatorMustAct(
            f"{where} has wal_level {level!r}, not 'logical'",
            hint="ALTER SYSTEM SET wal_level = 'logical'; then restart the server",
        )


def _role(connection: Connection) -> Iterator[OperatorMustAct]:
    user, replicates, managed = _row(
        connection,
        f"SELECT r.rolname::text, {REPLICATES},"
        f" EXISTS (SELECT FROM pg_roles WHERE rolname = '{_REPLICATING_ROLE}')"
        " FROM pg_roles r WHERE r.rolname = current_user",
    )
    if not replicates:
        role = quoted(user)
        grant = f"GRANT {_REPLICATING_ROLE} TO {role}" if managed else f"ALTER ROLE {role} REPLICATION"
        yield OperatorMustAct(f"role {user!r} may not replicate", hint=grant)


def _room(connection: Connection, where: str, names: list[str]) -> Iterator[OperatorMustAct]:
    slots, senders, used, ours, sending = _row(
        connection,
        "SELECT current_setting('max_replication_slots')::int, current_setting('max_wal_senders')::int,"
        " count(*), count(*) FILTER (WHERE slot_name = ANY(%s)),"
        " (SELECT count(*) FROM pg_stat_replication WHERE application_name NOT LIKE 'headwater capture %%')"
        " FROM pg_replication_slots",
        (names,),
    )
    missing = len(names) - ours + 1  # and for a while one more: that of a first copy, or of `verify`
    if used + missing > slots:
        yield OperatorMustAct(
            f"{where} has {counted(slots - used, 'free replication slot')}, {missing} are needed"
            f" (max_replication_slots {slots})",
            hint="raise max_replication_slots and restart the server, or drop a slot that is not used",
        )
    if sending + len(names) + 1 > senders:
        yield OperatorMustAct(
            f"{where} has {counted(senders - sending, 'free WAL sender')}, {len(names) + 1} are needed"
            f" (max_wal_senders {senders})",
            hint="raise max_wal_senders and restart the server",
        )


def _report_standbys(connection: Connection, where: str) -> None:
    if connection.info.server_version // 10000 < FAILOVER_SINCE:
        return
    (waits,) = _row(
        connection,
        "SELECT current_setting('synchronized_standby_slots') = '' AND NOT pg_is_in_recovery()"
        " AND EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical' AND active)",
    )
    if waits:
        logger.warning(
            "%s has a standby, and synchronized_standby_slots is empty: after a failover that loses changes, the tables"
            " that were mirrored with them are copied again; name the standby's slot there to lose none",
            where,
        )


def _report_encoding(connection: Connection, where: str) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding == NO_ENCODING:
        logger.warning(
            "%s has the encoding SQL_ASCII, which means none: its text is read as UTF-8, and a value that is not valid"
            " UTF-8 becomes NULL in the lake and is kept in quarantine",
            where,
        )
    elif encoding != "UTF8":
        logger.info(
            "%s has the encoding %s: the server converts its text to UTF-8; a changed value that it cannot convert"
            " becomes NULL in the lake and is kept in quarantine, and a table that has such a value cannot be copied",
            *(where, encoding),
        )


def _row(connection: Connection, sql: str, parameters: tuple[object, ...] = ()) -> tuple[Any, ...]:
    row = connection.execute(sql, parameters).fetchone()
    assert row is not None
    return tuple(row)
