"""What the config wants of each table, with what the state knows it by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.config import Config, Group, MatchedTable, Table
from headwater.errors import ConfigError
from headwater.sink.addresses import reserved_columns
from headwater.source.checktable import TableWish
from headwater.state import TableOptions, TableRow

__all__ = ["another_mode", "group_wishes", "options_of", "reserved_names", "wishes"]


def wishes(config: Config, known: Mapping[str, list[TableRow]]) -> dict[str, list[TableWish]]:
    """What the config wants of each group's tables; `known` are the tables that the state has."""
    return {name: group_wishes(config, group, known.get(name, [])) for name, group in config.groups.items()}


def reserved_names(config: Config, group: Group) -> frozenset[str]:
    """Names of columns, in lower case, that the group's lake keeps for itself."""
    return reserved_columns(type(config.lakes[group.lake]))


def group_wishes(config: Config, group: Group, rows: Sequence[TableRow]) -> list[TableWish]:
    """The same, of one group, in the order of its tables."""
    reserved = reserved_names(config, group)
    mine = {entry.table: _known(entry, rows) for entry in group.tables}
    meant = {row.oid for row in mine.values() if row is not None}
    others = [row for row in rows if row.oid not in meant]
    wanted = (_wish(entry, mine[entry.table] or _called(entry, others), rows) for entry in group.tables)
    return [replace(wish, reserved=reserved) for wish in wanted]


def _wish(entry: Table, row: TableRow | None, rows: Sequence[TableRow]) -> TableWish:
    # With a mirror that is not there yet nothing is lost.
    replaced = entry.when_replaced if row and row.position is not None else "copy"
    like = frozenset(each.oid for each in rows if each.options == options_of(entry) and _lands(entry, each))
    asked = entry.columns, entry.exclude, entry.types, entry.mode, entry.append_only
    matched = isinstance(entry, MatchedTable)
    return TableWish(entry.table, row.oid if row else None, *asked, replaced, like, matched=matched)


def _known(entry: Table, rows: Sequence[TableRow]) -> TableRow | None:
    """The row of a table that was mirrored under this name of the config, to where the config wants it now."""
    return next((row for row in rows if row.configured == entry.table and _lands(entry, row)), None)


def _called(entry: Table, rows: Sequence[TableRow]) -> TableRow | None:
    """The row of a table that had this name when it was last seen."""
    return next((row for row in rows if row.source == entry.table and _lands(entry, row)), None)


def _lands(entry: Table, row: TableRow) -> bool:
    return row.options.followed_name if entry.renamed is None else row.lake == entry.target


def another_mode(entry: Table, row: TableRow | None) -> ConfigError | None:
    """Why a table of the config cannot go on with the mirror that it has."""
    if row is None or row.position is None or row.options.mode == entry.mode:
        return None
    return ConfigError(
        f"table {str(entry.table)!r} is mirrored with mode {row.options.mode!r}, the config now says {entry.mode!r}",
        hint=f"set `mode: {row.options.mode}` again, or mirror the table in another group under another name (`as:`)",
    )


def options_of(entry: Table) -> TableOptions:
    """What the state keeps of what the config asks for."""
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
        copied=entry.copied,
        pattern=entry.pattern if isinstance(entry, MatchedTable) else None,
    )
