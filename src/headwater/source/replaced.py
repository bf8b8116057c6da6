"""Which table each name in the config means now: tables are renamed, dropped, and replaced under their names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import psycopg

from headwater.change import TableName
from headwater.errors import ConfigError, OperatorMustAct, TableError
from headwater.postgres.connect import Connection
from headwater.source.alterations import PublicationMember, alterations
from headwater.source.checktable import TableWish, table_problems
from headwater.source.naming import object_name
from headwater.source.publications import places
from headwater.source.publishing import exchange, forbidden
from headwater.source.relations import described
from headwater.source.server import advance_wal, identify, wal_end
from headwater.state import State, TableRow
from headwater.state.succession import add_successor, dropped_error, leave, note_dropped, reassign, take_over
from headwater.state.transitions import Resumed, Stopped

__all__ = [
    "Resolved",
    "drop",
    "look_at_names",
    "meant",
    "refusal",
    "resolved",
    "sent_columns",
    "stop",
    "table_names",
]

_logger = logging.getLogger("headwater.capture")
_PATIENCE = 30.0  # seconds: how long the lake is hurried along to where a table was dropped


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a table of the config is in the source now.

    found: `oid`, which may have another name now. replaced: `oid` has the name, and the mirror is that of `before`.
    dropped: it was mirrored and is gone. taken: its table has another name now, which the config names too.
    missing: there never was such a table.
    """

    wish: TableWish
    fate: Literal["found", "replaced", "dropped", "taken", "missing"]
    name: TableName  # now
    oid: int = 0  # 0: there is none
    before: int | None = None  # the mirrored table that it is, or was
    left: TableName | None = None  # replaced: what the mirrored table is called now; None: it was dropped


def resolved(connection: Connection, wishes: Sequence[TableWish]) -> list[Resolved]:
    """What these tables of one group are in the source now, in their order."""
    oids = [wish.oid for wish in wishes if wish.oid is not None]
    return meant(wishes, table_names(connection, oids, [wish.table for wish in wishes]))


def table_names(connection: Connection, oids: Iterable[int], names: Iterable[TableName]) -> dict[int, TableName]:
    """What these tables, and those that have these names, are called now, by OID."""
    schemas, tables = zip(*names, strict=True) if (names := list(names)) else ((), ())
    rows = connection.execute(
        "SELECT c.oid::bigint, n.nspname::text, c.relname::text FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND (c.oid = ANY(%s::oid[])"
        " OR (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::name[], %s::name[])))",
        (list(oids), list(schemas), list(tables)),
    ).fetchall()
    return {oid: TableName(schema, name) for oid, schema, name in rows}


def meant(wishes: Sequence[TableWish], tables: Mapping[int, TableName]) -> list[Resolved]:
    """The same, of a source that has these tables, by OID.

    A mirrored table is followed by its OID. When mirrored tables took each other's names, each belongs to the entry
    whose name it has now, if that one treats it as before: so the names in the config stay right.
    """
    named = {name: oid for oid, name in tables.items()}
    mirrored = {wish.oid: wish for wish in wishes if wish.oid is not None}
    swapped = {
        here: wish
        for wish in wishes
        if (here := named.get(wish.table, 0)) != wish.oid and here in mirrored and here in wish.like
        if wish.oid in tables or (wish.oid is not None and _filled(wish, named, mirrored))
    }
    found = [_meant(wish, _before(wish, swapped), named.get(wish.table), tables, mirrored) for wish in wishes]
    return [_agreed(each, found, tables) for each in found]


def _filled(wish: TableWish, named: Mapping[TableName, int], mirrored: Mapping[int, TableWish]) -> bool:
    """A mirrored table has the name of one that was dropped: does a new table make up for it at the end of the line?"""
    here = named.get(wish.table)
    while here is not None and here in mirrored:
        here = named.get(mirrored[here].table)
    return here is not None


def _before(wish: TableWish, swapped: Mapping[int, TableWish]) -> int | None:
    """The mirrored table that is left for an entry: if another has its own, what that one gave up for it."""
    for here, each in swapped.items():
        if each is wish:
            return here
    before = wish.oid
    while before is not None and before in swapped:
        before = swapped[before].oid
    return before


def _meant(
    wish: TableWish, before: int | None, here: int | None, tables: Mapping[int, TableName], mirrored: Container[int]
) -> Resolved:
    """What an entry means, whose mirror is that of `before`, while its name is that of `here`."""
    if here is not None and before in (None, here):
        return Resolved(wish, "found", wish.table, here, here)
    if before is None:
        return Resolved(wish, "missing", wish.table)
    if before in tables and (here is None or here in mirrored):
        return Resolved(wish, "found", tables[before], before, before)
    if here is None:
        return Resolved(wish, "dropped", wish.table, 0, before)
    return Resolved(wish, "replaced", wish.table, here, before, tables.get(before))


def _agreed(one: Resolved, found: Sequence[Resolved], tables: Mapping[int, TableName]) -> Resolved:
    """Two entries never get one table: it belongs to the one that has its name."""
    others = {each.oid for each in found if each is not one}
    if one.fate == "found" and one.oid in others and tables[one.oid] != one.wish.table:
        return replace(one, fate="taken")
    if one.fate == "replaced" and one.before in others:
        return replace(one, fate="found", before=one.oid)  # the mirrored one goes on under its new name
    return one


def refusal(connection: Connection, publication: str, one: Resolved) -> TableError | None:
    """Why a table does not take the place of the one whose name it has; None: it does."""
    left = f"is called {str(one.left)!r} now" if one.left else "was dropped"
    what = f"table {str(one.wish.table)!r} is another table now: the one that is mirrored {left}"
    if one.wish.replaced == "stop":
        back = f"rename {one.left} back, or " if one.left else ""
        return TableError(
            f"{what}, and `replaced` is `stop`",
            hint=f"{back}let the new one take the mirror's place with `replaced: copy`",
        )
    # Published, a table without a replica identity could not be updated any more.
    problem = next(table_problems(connection, one.wish, one.oid), None) or _unpublished(connection, publication, one)
    return TableError(f"{what}; {problem.message}", hint=problem.hint) if problem else None


def _unpublished(connection: Connection, publication: str, one: Resolved) -> OperatorMustAct | None:
    """Why the publication does not send a table, and our role cannot have it do so."""
    member = PublicationMember(one.name, sent_columns(connection, one.wish, one.oid))
    found = alterations(connection, publication, {one.oid: member})
    return next(iter(forbidden(connection, publication, found)), None)


def stop(state: State, row: TableRow, error: TableError) -> None:
    """Leave a table ERRORED until its name is what it was, or the config says otherwise."""
    if not row.stopped or row.error != str(error):
        _logger.error("table %s: %s", row.configured, error)
        state.record(row.group, row.oid, Stopped(str(error)))


def sent_columns(connection: Connection, wish: TableWish, oid: int) -> tuple[str, ...] | None:
    """The publication's list of columns; None: all are sent."""
    if not wish.listed:
        return None
    names = [column.name for column in described(connection, oid, None).columns]
    kept = tuple(name for name in wish.columns or names if name not in wish.exclude)
    for name in kept:
        if name not in names:
            raise ConfigError(f"table {str(wish.table)!r} has no column {name!r}", hint="run `headwater check`")
    return kept


def look_at_names(connection: Connection, state: State, group: str, first_look: Callable[[], None]) -> None:
    """See to tables that were dropped, or replaced under their names; `first_look` notes how a new table looks."""
    rows = [row for row in state.tables(group) if row.state != "REMOVED"]
    found = resolved(connection, [_wish(row, rows) for row in rows])
    if any(one.fate in ("dropped", "replaced") for one in found) and not _same_source(connection, state, group):
        return  # the capture that reads it will say so
    entries = {one.before: one.wish.table for one in found if one.before is not None and one.fate != "taken"}
    named = {row.oid: replace(row, configured=entries.get(row.oid, row.configured)) for row in rows}
    reassign(state, group, {row.oid: named[row.oid].configured for row in rows if named[row.oid] != row})
    for one in found:
        if one.fate in ("replaced", "dropped", "found") and one.before in named:
            _see_to(connection, state, named[one.before], one, first_look)


def _wish(row: TableRow, rows: Sequence[TableRow]) -> TableWish:
    """What the config wanted of a table when `run` began."""
    o = row.options
    like = frozenset(each.oid for each in rows if each.options == o and o.followed_name)
    replaced = o.replaced if row.position is not None else "copy"  # nothing is lost with a mirror that is not there
    return TableWish(row.configured, row.oid, o.columns, o.exclude, o.types, o.mode, o.append_only, replaced, like)


def _see_to(connection: Connection, state: State, row: TableRow, one: Resolved, first_look: Callable[[], None]) -> None:
    if one.fate == "replaced":
        _replace(connection, state, row, one, first_look)
    elif one.fate == "dropped":
        drop(connection, state, row)
    elif row.stopped:
        _logger.info("table %s has its name again, and goes on", row.configured)
        state.record(row.group, row.oid, Resumed())


def _same_source(connection: Connection, state: State, group: str) -> bool:
    """OIDs mean nothing in another database."""
    known = state.group(group)
    return known is not None and identify(connection).source_id == known.source_id


def drop(connection: Connection, state: State, row: TableRow) -> None:
    """See to a table that the source no longer has; it is logged the first time."""
    lsn = row.dropped_lsn or wal_end(connection)
    if row.options.pattern is not None and row.state not in ("CATCHUP", "STREAMING", "PAUSED"):
        leave(state, row, lsn)
        return
    if row.dropped_lsn is None and row.options.pattern is None:
        _logger.error("table %s: %s", row.configured, dropped_error(row, lsn))
    if row.dropped_lsn is None or row.state in ("PENDING", "SNAPSHOT") or row.retry_at is not None:
        note_dropped(state, row, lsn)
    if row.state in ("CATCHUP", "STREAMING") and not state.fences(row.group):
        # What is staged of it is delivered first, and soon.
        state.add_fence(row.group, lsn, _PATIENCE)
        advance_wal(connection)


def _replace(
    connection: Connection, state: State, row: TableRow, one: Resolved, first_look: Callable[[], None]
) -> None:
    """Publish the new table instead of the old one, then have it copied."""
    publication = object_name(row.group)
    error = refusal(connection, publication, one)
    if error is not None:
        stop(state, row, error)
        return
    try:
        columns = sent_columns(connection, one.wish, one.oid)
        exchange(connection, publication, row.oid, one.oid, columns)
    except psycopg.errors.LockNotAvailable as problem:
        _logger.warning("table %s is another table now, which cannot be published yet: %s", row.configured, problem)
        return
    except (psycopg.errors.ProgrammingError, ConfigError) as problem:
        stop(state, row, TableError(f"table {str(row.configured)!r} is another table now: {problem}"))
        return
    add_successor(state, row, one.oid, one.name)
    first_look()
    _logger.warning("table %s is another table now: it is copied in place of the old mirror", row.configured)
    take_over(state, row, one.oid, wal_end(connection), places(connection, publication).get(one.oid))
