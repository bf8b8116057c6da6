"""Everything that would keep a group from being captured, found at once, each with what to do about it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from difflib import get_close_matches

import psycopg

from headwater.change import TableName
from headwater.errors import ConfigError, HeadwaterError, OperatorMustAct, TableError
from headwater.postgres.connect import Connection, connect, translated
from headwater.source.alterations import PublicationMember, alterations
from headwater.source.checkserver import server_problems
from headwater.source.checktable import TableWish, identity_problems, table_problems, unreadable_columns
from headwater.source.generated import not_sent
from headwater.source.naming import object_name
from headwater.source.publishing import forbidden, owner_of
from headwater.source.relations import described
from headwater.source.replaced import Resolved, refusal, resolved, sent_columns
from headwater.source.server import SourceIdentity, identify
from headwater.source.slots import Slot, check_slot, foreign_slot, other_source, slot_gone, slot_of
from headwater.state import GroupRow

__all__ = ["problems"]

logger = logging.getLogger(__name__)

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a composite type"}


def problems(
    url: str, groups: Mapping[str, Iterable[TableWish]], known: Callable[[], Mapping[str, GroupRow]] = dict
) -> list[HeadwaterError]:
    """All problems of a source with these groups' tables. `known` reads what the state has of the groups."""
    try:
        with closing(connect(url, application_name="headwater check")) as connection, translated(url):
            # Slots before what is known of them: a capture that runs meanwhile notes a position, then moves its slot.
            slots = {group: slot_of(connection, object_name(group)) for group in groups}
            rows = known()
            return [
                *server_problems(connection, url, groups),
                *_tables(connection, groups),
                *_slots(connection, slots, rows),
            ]
    except HeadwaterError as exc:
        return [exc]


def _tables(connection: Connection, groups: Mapping[str, Iterable[TableWish]]) -> Iterator[HeadwaterError]:
    for group, tables in groups.items():
        publication, members = object_name(group), dict[int, PublicationMember]()
        found = list[HeadwaterError]()
        for each in resolved(connection, list(tables)):
            if each.fate == "missing":
                found.append(_other_kind(connection, each.wish.table) or _missing(connection, each.wish.table))
            elif each.fate == "found":
                found += _table(connection, each)
            else:
                logger.warning("%s", _own_matter(connection, publication, each))
            members |= _published(connection, publication, each)
        yield from found
        if not any(isinstance(each, ConfigError) for each in found):  # else it is not clear what is wanted
            yield from _publication(connection, publication, members)


def _table(connection: Connection, one: Resolved) -> Iterator[HeadwaterError]:
    if names := unreadable_columns(connection, one.wish.table, one.oid):
        yield from names
        return
    yield from table_problems(connection, one.wish, one.oid)
    if one.wish.columns is None:
        _warn_of_generated(
            one, [name for name in not_sent(connection, [one.oid]).get(one.oid, ()) if name not in one.wish.exclude]
        )


def _warn_of_generated(one: Resolved, names: Collection[str]) -> None:
    if names:
        logger.warning(
            "table %s: its generated columns are not mirrored, because PostgreSQL does not send them: %s",
            one.wish.table,
            ", ".join(names),
        )


def _own_matter(connection: Connection, publication: str, one: Resolved) -> HeadwaterError:
    """What became of a mirrored table, which keeps no other from running."""
    name = str(one.wish.table)
    if one.fate == "dropped":
        return TableError(f"table {name!r} was dropped in the source", hint="take it out of the config")
    if one.fate == "taken":
        return TableError(f"table {name!r} is called {str(one.name)!r} now", hint="the config has both: remove one")
    replacing = TableError(
        f"table {name!r} is another table now", hint="`run` copies it in place of the old mirror (`replaced: copy`)"
    )
    return refusal(connection, publication, one) or replacing


def _published(connection: Connection, publication: str, one: Resolved) -> dict[int, PublicationMember]:
    """The table that the publication should list for an entry of the config, by OID, if there is one."""
    oid, name = one.oid, one.name
    if one.fate == "replaced" and refusal(connection, publication, one) is not None:
        oid, name = (one.before or 0, one.left) if one.left else (0, name)  # the mirrored one stays, if it is there
    if not oid or unreadable_columns(connection, name, oid):
        return {}
    if any(identity_problems(connection, one.wish, described(connection, oid, None))):
        return {}  # published without a replica identity, its rows could not be updated any more
    with suppress(ConfigError):  # reported with the table
        return {oid: PublicationMember(name, sent_columns(connection, one.wish, oid))}
    return {}


def _other_kind(connection: Connection, table: TableName) -> HeadwaterError | None:
    row = connection.execute(
        "SELECT c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s",
        table,
    ).fetchone()
    if row is None:
        return None
    return ConfigError(f"{str(table)!r} is {_KINDS.get(row[0], 'no table')}", hint="name the table behind it instead")


def _slots(
    connection: Connection, slots: Mapping[str, Slot | None], known: Mapping[str, GroupRow]
) -> Iterator[HeadwaterError]:
    identity = identify(connection)
    for group, slot in slots.items():
        yield from _slot(identity, group, slot, known.get(group))


def _slot(identity: SourceIdentity, group: str, slot: Slot | None, row: GroupRow | None) -> Iterator[HeadwaterError]:
    if row is not None and row.source_id != identity.source_id:
        yield other_source(row, identity)
        return
    if slot is None:
        if row is not None and row.captured_lsn is not None:
            yield slot_gone(row, identity)
        return
    if row is None or not row.slot_requested:
        yield foreign_slot(slot.name, group)
        return
    try:
        check_slot(slot, identity, row)
    except OperatorMustAct as exc:
        yield exc


def _publication(
    connection: Connection, name: str, wanted: Mapping[int, PublicationMember]
) -> Iterator[HeadwaterError]:
    """What another role must alter. What ours may alter, `run` does."""
    try:
        found = alterations(connection, name, wanted)
    except OperatorMustAct as exc:
        yield exc
        return
    yield from forbidden(connection, name, found)
    for each in found:
        if not each.needed and owner_of(connection, name)[1] is False:
            logger.warning(
                "publication %s %s, which is read for nothing; its owner may run: %s", name, each.problem, each.script
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
