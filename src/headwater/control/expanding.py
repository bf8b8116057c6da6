"""A config with real tables: its patterns, held against the source's catalog."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing

from headwater.change import TableName
from headwater.config import Config, Group, MatchedTable, expanded
from headwater.config.contradictions import Parts, crowded_out
from headwater.control.wishes import reserved_names, wishes
from headwater.postgres.connect import Connection, connect, translated
from headwater.source.checktable import TableWish
from headwater.source.naming import object_name
from headwater.source.patterns import CatalogTable, Skipped, catalog_tables, obstacles

__all__ = ["Skipped", "expanded_config", "has_patterns", "with_patterns", "with_patterns_of"]


def has_patterns(config: Config) -> bool:
    return any(group.patterns for group in config.groups.values())


def expanded_config(config: Config, names: Collection[TableName]) -> Config:
    """The config with every table that its patterns match in a source with these tables, whether it can be mirrored
    or not.
    """
    return _with_groups(config, {name: expanded(group, names) for name, group in config.groups.items()})


def with_patterns(config: Config) -> tuple[Config, list[Skipped]]:
    """The config with real tables in place of patterns, and those that match and cannot be mirrored.

    It reads the source's catalog and changes nothing. A config without patterns is returned as it is; one that this
    function has returned may be given again.
    """
    if not has_patterns(config):
        return config, []
    url = config.source
    with closing(connect(url, application_name="headwater patterns")) as connection, translated(url):
        return with_patterns_of(connection, config)


def with_patterns_of(connection: Connection, config: Config) -> tuple[Config, list[Skipped]]:
    """The same, with a connection to the source."""
    if not has_patterns(config):
        return config, []
    reserved = {name for group in config.groups.values() for name in reserved_names(config, group)}
    tables = catalog_tables(connection, reserved)
    whole = expanded_config(config, [table.name for table in tables])
    skipped = [each for name, wanted in wishes(whole, {}).items() for each in _unfit(connection, name, tables, wanted)]
    return _settled(_without(whole, skipped), skipped)


def _settled(config: Config, skipped: list[Skipped]) -> tuple[Config, list[Skipped]]:
    """Without tables that would land where another one does: the older of two that match stays."""
    crowded = [
        Skipped(
            group,
            table.table,
            f"it would land in {str(table.target)!r} of lake {config.groups[group].lake!r}, as {first} does",
            "list it on its own, with another name in the lake (`as:`), or `exclude` it",
        )
        for group, table, first in crowded_out(Parts(config.lakes, config.groups, config.routes))
    ]
    return _without(config, crowded), [*skipped, *crowded]


def _unfit(
    connection: Connection, group: str, tables: Iterable[CatalogTable], wanted: Iterable[TableWish]
) -> Iterator[Skipped]:
    matched = {wish.table: wish for wish in wanted if wish.matched}
    asked = {table: matched[table.name] for table in tables if table.name in matched}
    for table, problems in obstacles(connection, object_name(group), asked).items():
        for each in problems:
            yield Skipped(group, table.name, each.message.removeprefix(f"table {str(table.name)!r} "), each.hint)


def _without(config: Config, skipped: Iterable[Skipped]) -> Config:
    gone = {(each.group, each.table) for each in skipped}
    return _with_groups(config, {name: _left(name, group, gone) for name, group in config.groups.items()})


def _left(name: str, group: Group, gone: Collection[tuple[str, TableName]]) -> Group:
    kept = tuple(each for each in group.entries if not isinstance(each, MatchedTable) or (name, each.table) not in gone)
    return group.model_copy(update={"entries": kept})


def _with_groups(config: Config, groups: dict[str, Group]) -> Config:
    return config.model_copy(update={"groups": groups})
