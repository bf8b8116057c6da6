"""Before a run: groups, publications, slots and the list of tables become what the config says."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from headwater.capture.run import prepare
from headwater.capture.watch import first_look
from headwater.change import TableName
from headwater.config import Config, Group, Table
from headwater.errors import ConfigError, TableError
from headwater.postgres.connect import Connection, connect, translated
from headwater.sink.addresses import reserved_columns
from headwater.source.checktable import TableWish
from headwater.source.naming import object_name
from headwater.source.publications import ALTERED, places
from headwater.source.relations import described
from headwater.source.replaced import Resolved, drop, refusal, resolved, sent_columns, stop
from headwater.source.server import identify, wal_end
from headwater.state import Configured, State, TableOptions, TableRow
from headwater.state.succession import add_successor, reclaim, take_over
from headwater.state.transitions import Removed, Resumed
from headwater.supervise.opening import open_log

__all__ = ["another_mode", "make_ready", "wishes"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Found:
    """A table of the config, found in the source. `columns` is the publication's list, None: all are sent."""

    entry: Table
    oid: int
    name: TableName
    columns: tuple[str, ...] | None
    row: TableRow | None  # what the state has of it
    place: str | None  # what marks its place in the publication
    there: bool = True  # it was not dropped since
    error: TableError | None = None  # why it cannot go on


def make_ready(config: Config, state: State) -> None:
    """Make groups, publications, slots and the list of tables what the config says."""
    for name, group in config.groups.items():
        with closing(connect(config.source)) as connection, translated(config.source):
            # First: OIDs mean nothing in another database.
            state.ensure_group(name, identify(connection).source_id, object_name(name), object_name(name))
            found = list(_find(connection, state, name, config))
            there = [each for each in found if each.there]
            reasons = {each.oid: tuple(_reasons(connection, object_name(name), each)) for each in there}
        for each in found:
            if problem := another_mode(each.entry, each.row):
                raise problem
            # Before the publication sends more: after a crash in between, this could not be seen any more.
            for reason in reasons.get(each.oid, ()):
                logger.warning("table %s will be copied again: %s", each.name, reason)
                state.request_resync(name, each.oid, reason)
        prepare(config.source, state, name, {each.name: each.columns for each in there})
        _leave_out(state, group, name, {each.oid for each in found})
        for each in found:
            _enter(state, name, each)
        with closing(connect(config.source)) as connection, translated(config.source):
            state.note_published(name, places(connection, object_name(name)))
        first_look(config.source, state, open_log(config, state, name), name)


def _enter(state: State, group: str, found: _Found) -> None:
    entry = found.entry
    row = state.ensure_table(group, found.oid, found.name, entry.target, Configured(entry.table, _options(entry)))
    if found.there:
        reclaim(state, group, found.oid)
    if found.error is not None:
        stop(state, row, found.error)
    elif found.there and (row.state == "REMOVED" or row.stopped):
        state.record(group, found.oid, Resumed())


def wishes(config: Config, known: Mapping[str, list[TableRow]]) -> dict[str, list[TableWish]]:
    """What the config wants of each group's tables; `known` are the tables that the state has."""
    return {name: _wishes(config, group, known.get(name, [])) for name, group in config.groups.items()}


def _wishes(config: Config, group: Group, rows: Sequence[TableRow]) -> list[TableWish]:
    reserved = reserved_columns(type(config.lakes[group.lake]))
    mine = {entry.table: _known(entry, rows) for entry in group.tables}
    meant = {row.oid for row in mine.values() if row is not None}
    others = [row for row in rows if row.oid not in meant]
    wishes = (_wish(entry, mine[entry.table] or _called(entry, others), rows) for entry in group.tables)
    return [replace(wish, reserved=reserved) for wish in wishes]


def _wish(entry: Table, row: TableRow | None, rows: Sequence[TableRow]) -> TableWish:
    # With a mirror that is not there yet nothing is lost.
    replaced = entry.when_replaced if row and row.position is not None else "copy"
    like = frozenset(each.oid for each in rows if each.options == _options(entry) and _lands(entry, each))
    asked = entry.columns, entry.exclude, entry.types, entry.mode, entry.append_only
    return TableWish(entry.table, row.oid if row else None, *asked, replaced, like)


def _known(entry: Table, rows: Sequence[TableRow]) -> TableRow | None:
    """The row of a table that was mirrored under this name of the config, to where the config wants it now."""
    return next((row for row in rows if row.configured == entry.table and _lands(entry, row)), None)


def _called(entry: Table, rows: Sequence[TableRow]) -> TableRow | None:
    """The row of a table that had this name when it was last seen."""
    return next((row for row in rows if row.source == entry.table and _lands(entry, row)), None)


def _lands(entry: Table, row: TableRow) -> bool:
    return row.options.followed_name if entry.renamed is None else row.lake == entry.target


def _find(connection: Connection, state: State, name: str, config: Config) -> Iterator[_Found]:
    """The tables of the config; those that were dropped, or replaced under their names, are seen to."""
    rows = {row.oid: row for row in state.tables(name)}
    marks, group = places(connection, object_name(name)), config.groups[name]
    wanted = _wishes(config, group, list(rows.values()))
    for entry, one in zip(group.tables, resolved(connection, wanted), strict=True):
        before = rows.get(one.before or 0)
        if one.fate == "missing":
            raise ConfigError(f"there is no table {str(entry.table)!r} in the source", hint="run `headwater check`")
        if one.fate == "taken":
            logger.warning("table %s is called %s in the source now: the config has both names", entry.table, one.name)
        elif one.fate == "dropped" and before is not None:
            drop(connection, state, before)
            yield _Found(entry, before.oid, before.source, None, before, None, there=False)
        elif one.fate == "replaced" and before is not None and (error := _refusal(connection, name, one)) is not None:
            columns = sent_columns(connection, one.wish, before.oid) if one.left else None
            mark = marks.get(before.oid)
            yield _Found(entry, before.oid, one.left or before.source, columns, before, mark, bool(one.left), error)
        else:
            if one.fate == "replaced" and before is not None:
                _succeed(connection, state, before, one)
            elif one.name != entry.table:
                logger.warning(
                    "table %s is called %s in the source now: write that in the config", entry.table, one.name
                )
            row = next((row for row in state.tables(name) if row.oid == one.oid), None)
            columns = sent_columns(connection, one.wish, one.oid)
            yield _Found(entry, one.oid, one.name, columns, row, marks.get(one.oid))


def _refusal(connection: Connection, group: str, one: Resolved) -> TableError | None:
    return refusal(connection, object_name(group), one)


def _succeed(connection: Connection, state: State, before: TableRow, one: Resolved) -> None:
    logger.warning("table %s is another table now: it is copied in place of the old mirror", one.wish.table)
    add_successor(state, before, one.oid, one.name)
    take_over(state, before, one.oid, wal_end(connection), None)


def _reasons(connection: Connection, publication: str, found: _Found) -> Iterator[str]:
    """Why a table that was mirrored before must be copied again."""
    row = found.row
    if row is None:
        return
    # Copied or not, as far as the state knows: the lake may have a copy that was not noted before a crash.
    if row.state == "REMOVED":
        yield "it was left out of the config for a while"
    elif row.published not in (None, found.place):
        yield ALTERED
    if row.position is None:
        return
    if row.options.types != found.entry.types:
        yield "the config asks for other types"
    if row.options.partition_by != found.entry.partition_by:
        yield "the config asks for other partitions"
    sent = {column.name for column in described(connection, found.oid, publication).columns}
    whole = {column.name for column in described(connection, found.oid, None).columns}
    if more := sorted(set(found.columns or whole) - sent):
        yield f"the config asks for more of its columns: {', '.join(more)}"


def another_mode(entry: Table, row: TableRow | None) -> ConfigError | None:
    """Why a table of the config cannot go on with the mirror that it has."""
    if row is None or row.position is None or row.options.mode == entry.mode:
        return None
    return ConfigError(
        f"table {str(entry.table)!r} is mirrored with mode {row.options.mode!r}, the config now says {entry.mode!r}",
        hint=f"set `mode: {row.options.mode}` again, or mirror the table in another group under another name (`as:`)",
    )


def _leave_out(state: State, group: Group, name: str, wanted: set[int]) -> None:
    named = {entry.table for entry in group.tables}
    for row in state.tables(name):
        dropped = row.stopped and row.dropped_lsn is not None and row.configured in named
        if row.oid not in wanted and row.state != "REMOVED" and not dropped:
            logger.warning("table %s is not in group %s any more: its mirror stays as it is", row.source, name)
            state.record(name, row.oid, Removed("it was taken out of the config"))


def _options(entry: Table) -> TableOptions:
    return TableOptions(
        mode=entry.mode,
        types=dict(entry.types),
        schema_changes=entry.schema_changes,
        followed_name=entry.renamed is None,
        columns=entry.columns,
        exclude=entry.exclude,
        append_only=entry.append_only,
        replaced=entry.when_replaced,
        partition_by=entry.partition_by,
    )
