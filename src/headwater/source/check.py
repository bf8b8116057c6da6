"""Everything that would keep a group from being captured, found at once, each with what to do about it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from difflib import get_close_matches
from typing import Any

import psycopg

from headwater.change import TableName
from headwater.errors import ConfigError, HeadwaterError, OperatorMustAct, TableError
from headwater.postgres.connect import Connection, connect, server_name, translated
from headwater.source.checktable import TableWish, table_problems, uncarried
from headwater.source.database import (
    Identity,
    Slot,
    Source,
    check_slot,
    object_name,
    publication_tables,
    slot_gone,
    slot_of,
    strange_slot,
    strange_source,
)
from headwater.source.publications import places
from headwater.source.replaced import Resolved, refusal, resolved
from headwater.state import GroupRow

__all__ = ["problems"]

logger = logging.getLogger(__name__)

_OLDEST = 14
_NO_ENCODING = "SQL_ASCII"
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a composite type"}


def problems(
    url: str, groups: Mapping[str, Iterable[TableWish]], known: Callable[[], Mapping[str, GroupRow]] = dict
) -> list[HeadwaterError]:
    """All problems of a source with these groups' tables. `known` tells what the state has of the groups."""
    try:
        with closing(connect(url, application_name="headwater check")) as connection, translated(url):
            # Slots before what is known of them: a capture that runs meanwhile notes a position, then moves its slot.
            slots = {group: slot_of(connection, object_name(group)) for group in groups}
            rows = known()
            return [*_server(connection, url, groups), *_tables(connection, groups), *_slots(url, slots, rows)]
    except HeadwaterError as exc:
        return [exc]


def _server(connection: Connection, url: str, groups: Iterable[str]) -> Iterator[HeadwaterError]:
    where = server_name(url)
    _tell_encoding(connection, where)
    version = connection.info.server_version // 10000
    if version < _OLDEST:
        yield OperatorMustAct(f"{where} is PostgreSQL {version}", hint=f"upgrade it to {_OLDEST} or newer")
    level, slots, senders, recovery = _row(
        connection,
        "SELECT current_setting('wal_level'), current_setting('max_replication_slots')::int,"
        " current_setting('max_wal_senders')::int, pg_is_in_recovery()",
    )
    if recovery:
        yield OperatorMustAct(
            f"{where} is a standby, which cannot hold our state", hint="point `source` at the primary"
        )
    if level != "logical":
        yield OperatorMustAct(
            f"{where} has wal_level {level!r}, not 'logical'",
            hint="ALTER SYSTEM SET wal_level = 'logical'; then restart the server",
        )
    names = [object_name(group) for group in groups]
    user, replication, create = _row(
        connection,
        "SELECT rolname::text, rolreplication OR rolsuper, has_database_privilege(current_database(), 'CREATE')"
        " OR (SELECT count(*) FROM pg_publication WHERE pubname = ANY(%s)) = %s"
        " FROM pg_roles WHERE rolname = current_user",
        (names, len(names)),
    )
    if not replication:
        yield OperatorMustAct(f"role {user!r} may not replicate", hint=f'ALTER ROLE "{user}" REPLICATION')
    if not create:
        yield OperatorMustAct(
            f"role {user!r} may not create a publication in {where}",
            hint=f'GRANT CREATE ON DATABASE "{connection.info.dbname}" TO "{user}"',
        )
    used, ours, sending = _row(
        connection,
        "SELECT count(*), count(*) FILTER (WHERE slot_name = ANY(%s)),"
        " (SELECT count(*) FROM pg_stat_replication WHERE application_name NOT LIKE 'headwater capture %%')"
        " FROM pg_replication_slots",
        (names,),
    )
    missing = len(names) - ours + 1  # and for a while one more: that of a first copy, or of `verify`
    if used + missing > slots:
        yield OperatorMustAct(
            f"{where} has {slots - used} free replication slots, {missing} are needed (max_replication_slots {slots})",
            hint="raise max_replication_slots and restart the server, or drop a slot nobody uses",
        )
    if sending + len(names) + 1 > senders:
        yield OperatorMustAct(
            f"{where} has {senders - sending} free WAL senders, {len(names) + 1} are needed"
            f" (max_wal_senders {senders})",
            hint="raise max_wal_senders and restart the server",
        )


def _tell_encoding(connection: Connection, where: str) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding == _NO_ENCODING:
        logger.warning(
            "%s has the encoding SQL_ASCII, which is none: its text is read as UTF-8, and a value that is not becomes"
            " NULL in the lake and is kept in quarantine",
            where,
        )
    elif encoding != "UTF8":
        logger.info(
            "%s has the encoding %s: the server converts its text to UTF-8; a character that it cannot convert would"
            " stop capture",
            *(where, encoding),
        )


def _tables(connection: Connection, groups: Mapping[str, Iterable[TableWish]]) -> Iterator[HeadwaterError]:
    for group, tables in groups.items():
        found = resolved(connection, list(tables))
        for each in found:
            if each.fate == "missing":
                yield _other_kind(connection, each.wish.table) or _missing(connection, each.wish.table)
            elif each.fate == "found":
                yield from _table(connection, each)
            else:
                logger.warning("%s", _own_matter(connection, each))
        yield from _publication(connection, object_name(group), {each.oid: each.name for each in found if each.oid})


def _table(connection: Connection, one: Resolved) -> Iterator[HeadwaterError]:
    if names := _unreadable(connection, one.wish.table, one.oid):
        yield from names
        return
    yield from table_problems(connection, one.wish, one.oid)
    _warn_of_uncarried(one.wish, uncarried(connection, one.wish, one.oid))


def _warn_of_uncarried(wish: TableWish, names: Collection[str]) -> None:
    if names and wish.columns is None:
        logger.warning(
            "table %s: its generated columns are not carried, as PostgreSQL does not send them: %s",
            wish.table,
            ", ".join(names),
        )


def _own_matter(connection: Connection, one: Resolved) -> HeadwaterError:
    """What became of a mirrored table, which keeps no other from running."""
    name = str(one.wish.table)
    if one.fate == "dropped":
        return TableError(f"table {name!r} was dropped in the source", hint="take it out of the config")
    if one.fate == "taken":
        return TableError(f"table {name!r} is called {str(one.name)!r} now", hint="the config has both: remove one")
    replacing = TableError(
        f"table {name!r} is another table now", hint="`run` copies it in place of the old mirror (`replaced: copy`)"
    )
    return refusal(connection, one) or replacing


def _other_kind(connection: Connection, table: TableName) -> HeadwaterError | None:
    row = connection.execute(
        "SELECT c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s",
        table,
    ).fetchone()
    if row is None:
        return None
    return ConfigError(f"{str(table)!r} is {_KINDS.get(row[0], 'no table')}", hint="name the table behind it instead")


def _unreadable(connection: Connection, table: TableName, oid: int) -> list[HeadwaterError]:
    """Names of columns that are not UTF-8, which a SQL_ASCII database may have, and a lake may not."""
    if connection.info.parameter_status("server_encoding") != _NO_ENCODING:
        return []
    names = connection.execute(
        "SELECT convert_to(attname::text, 'SQL_ASCII') FROM pg_attribute"
        " WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped",
        (oid,),
    ).fetchall()
    return [
        OperatorMustAct(
            f"the name of column {text!r} of table {str(table)!r} is not UTF-8",
            hint="rename it: ALTER TABLE ... RENAME COLUMN ...",
        )
        for text in (name.decode(errors="backslashreplace") for (name,) in names)
        if text.encode() not in {name for (name,) in names}
    ]


def _slots(url: str, slots: Mapping[str, Slot | None], known: Mapping[str, GroupRow]) -> Iterator[HeadwaterError]:
    with Source(url) as source:
        identity = source.identify()
    for group, slot in slots.items():
        yield from _slot(identity, group, slot, known.get(group))


def _slot(identity: Identity, group: str, slot: Slot | None, row: GroupRow | None) -> Iterator[HeadwaterError]:
    if row is not None and row.source_id != identity.source_id:
        yield strange_source(row, identity)
        return
    if slot is None:
        if row is not None and row.captured_lsn is not None:
            yield slot_gone(row)
        return
    if row is None or not row.slot_requested:
        yield strange_slot(slot.name, group)
        return
    try:
        check_slot(slot, identity.database, row.captured_lsn)
    except OperatorMustAct as exc:
        yield exc


def _publication(connection: Connection, name: str, wanted: Mapping[int, TableName]) -> Iterator[HeadwaterError]:
    published, sent = publication_tables(connection, name), places(connection, name)
    if published is None or sent.keys() == wanted.keys():
        return
    (mine,) = _row(connection, "SELECT pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = %s", (name,))
    if not mine:
        names = dict(wanted) | {oid: each.table for oid, each in published.items()}
        lacking = ", ".join(sorted(str(names[oid]) for oid in sent.keys() ^ wanted.keys()))
        yield OperatorMustAct(
            f"publication {name!r} belongs to another role and differs from the config in: {lacking}",
            hint=f"ALTER PUBLICATION {name} OWNER TO the role of the source URL",
        )


def _missing(connection: Connection, table: TableName) -> HeadwaterError:
    rows: list[tuple[str, str]] = []
    with suppress(psycopg.errors.CharacterNotInRepertoire):  # one of them is not UTF-8
        rows = connection.execute(
            "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'headwater')"
        ).fetchall()
    names = [TableName(*row) for row in rows]
    similar = get_close_matches(table.name, {each.name for each in names}, n=2, cutoff=0.75)
    close = sorted(str(each) for each in names if each.name in similar)
    hint = f"did you mean {' or '.join(close)}?" if close else "create it, or correct its name in the config"
    return ConfigError(f"there is no table {str(table)!r} in the source", hint=hint)


def _row(connection: Connection, sql: str, parameters: tuple[object, ...] = ()) -> tuple[Any, ...]:
    row = connection.execute(sql, parameters).fetchone()
    assert row is not None
    return tuple(row)
