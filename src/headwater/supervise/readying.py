"""Before a run: groups, publications, slots and the list of tables become what the config says."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from headwater.capture import ALTERED, TableWish, current, described, first_look, object_name, places, prepare
from headwater.change import TableName
from headwater.config import Config, Table
from headwater.errors import ConfigError
from headwater.state import State, TableOptions, TableRow, connect
from headwater.state.connect import Connection, translated
from headwater.supervise.opening import open_log

__all__ = ["make_ready", "wishes"]

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


def make_ready(config: Config, state: State) -> None:
    """Make groups, publications, slots and the list of tables what the config says."""
    for name, group in config.groups.items():
        rows = state.tables(name)
        with closing(connect(config.source)) as connection, translated(config.source):
            marks = places(connection, object_name(name))
            found = [_find(connection, entry, rows, marks) for entry in group.tables]
            reasons = {each.oid: tuple(_reasons(connection, object_name(name), each)) for each in found}
        for each in found:
            _refuse_another_mode(each)
            # Before the publication sends more: after a crash between, nobody would know that it was asked for.
            for reason in reasons[each.oid]:
                logger.warning("table %s will be copied again: %s", each.name, reason)
                state.request_resync(name, each.oid, reason)
        prepare(config.source, state, name, {each.name: each.columns for each in found})
        _leave_out(state, name, rows, {each.oid for each in found})
        for each in found:
            state.ensure_table(name, each.oid, each.name, each.entry.target, each.entry.table, _options(each.entry))
            if each.row is not None and each.row.state == "PAUSED":
                state.set_state(name, each.oid, "PENDING")
        with closing(connect(config.source)) as connection, translated(config.source):
            state.note_published(name, places(connection, object_name(name)))
        first_look(config.source, state, open_log(config, state, name), name)


def wishes(config: Config, known: Mapping[str, list[TableRow]]) -> dict[str, list[TableWish]]:
    """What the config wants of each group's tables; `known` are the tables that the state has."""
    return {
        name: [_wish(entry, known.get(name, [])) for entry in group.tables] for name, group in config.groups.items()
    }


def _wish(entry: Table, rows: list[TableRow]) -> TableWish:
    row = _known(entry, rows)
    oid = row.oid if row else None
    return TableWish(entry.table, oid, entry.columns, entry.exclude, entry.types, entry.mode, entry.append_only)


def _known(entry: Table, rows: list[TableRow]) -> TableRow | None:
    """The row of a table that was mirrored under this name of the config, to where the config wants it now."""
    followed = entry.renamed is None
    for row in rows:
        there = row.options.followed_name if followed else row.lake == entry.target
        if row.configured == entry.table and there and row.position is not None:
            return row
    return None


def _find(connection: Connection, entry: Table, rows: list[TableRow], marks: Mapping[int, str]) -> _Found:
    known = _known(entry, rows)
    oid, name = current(connection, entry.table, known.oid if known else None)
    if name != entry.table:
        logger.warning("table %s is called %s in the source now: write that in the config", entry.table, name)
    row = next((row for row in rows if row.oid == oid), None)
    return _Found(entry, oid, name, _listed(connection, entry, oid), row, marks.get(oid))


def _listed(connection: Connection, entry: Table, oid: int) -> tuple[str, ...] | None:
    if entry.columns is None and not entry.exclude:
        return None
    names = [column.name for column in described(connection, oid, None).columns]
    kept = tuple(name for name in entry.columns or names if name not in entry.exclude)
    for name in kept:
        if name not in names:
            raise ConfigError(f"table {str(entry.table)!r} has no column {name!r}", hint="run `headwater check`")
    return kept


def _reasons(connection: Connection, publication: str, found: _Found) -> Iterator[str]:
    """Why a table that was mirrored before must be copied again."""
    row = found.row
    if row is None:
        return
    # Copied or not, as far as the state knows: the lake may have a copy that was not noted before a crash.
    if row.state == "PAUSED":
        yield "it was left out of the config for a while"
    elif row.published not in (None, found.place):
        yield ALTERED
    if row.position is None:
        return
    if row.options.types != found.entry.types:
        yield "the config asks for other types"
    sent = {column.name for column in described(connection, found.oid, publication).columns}
    whole = {column.name for column in described(connection, found.oid, None).columns}
    if more := sorted(set(found.columns or whole) - sent):
        yield f"the config asks for more of its columns: {', '.join(more)}"


def _refuse_another_mode(found: _Found) -> None:
    row = found.row
    if row is not None and row.position is not None and row.options.mode != found.entry.mode:
        raise ConfigError(
            f"table {str(found.entry.table)!r} is mirrored with mode {row.options.mode!r}, the config now says"
            f" {found.entry.mode!r}",
            hint="take that back, or mirror it in another group with `as:` another name",
        )


def _leave_out(state: State, group: str, rows: list[TableRow], wanted: set[int]) -> None:
    for row in rows:
        if row.oid not in wanted and row.state != "PAUSED":
            logger.warning("table %s is not in group %s any more: its mirror stays as it is", row.source, group)
            state.set_state(group, row.oid, "PAUSED", error="it was taken out of the config")


def _options(entry: Table) -> TableOptions:
    return TableOptions(entry.mode, dict(entry.types), entry.schema_changes, entry.renamed is None)
