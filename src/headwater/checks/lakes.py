"""The lakes' part: can they be opened or created, are they the groups' own, are the names free?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from headwater.checks.known import Known
from headwater.config import Config, Table
from headwater.ducklake.lake import Lake
from headwater.errors import ConfigError, HeadwaterError, TableError
from headwater.postgres.connect import connect, translated
from headwater.source.server import identify
from headwater.supervise.lakes import could_open_group_lake, find_group_lake, source_name, strange_lake

__all__ = ["lake_problems"]


def lake_problems(
    config: Config, env: Mapping[str, str], known: Known, *, recopy: bool = False
) -> Iterator[HeadwaterError]:
    """What keeps the config's groups from landing in their lakes. With `recopy` a lake may be a new one."""
    for group in config.groups:
        if config.groups[group].lake in config.ducklakes:
            try:
                yield from _problems(config, env, known, group, recopy)
            except HeadwaterError as error:
                yield error


def _problems(
    config: Config, env: Mapping[str, str], known: Known, group: str, recopy: bool
) -> Iterator[HeadwaterError]:
    could_open_group_lake(config, group, env)
    row, lake = known.groups.get(group), find_group_lake(config, group, env)
    id_ = None
    if lake is not None:
        with closing(lake):
            id_ = lake.id()
            yield from _taken(config, known, group, lake)
    if row is not None and not recopy and (problem := strange_lake(config, row, id_)):
        yield problem


def _taken(config: Config, known: Known, group: str, lake: Lake) -> Iterator[HeadwaterError]:
    """Names of tables that are new in the config, and that the lake has already."""
    new = list(_new_tables(config, known, group))
    if not new:
        return
    names = lake.names(_old_mirrors(config, known, group, lake))
    for table in new:
        try:
            names.take(table.target)
        except TableError as error:
            yield ConfigError(error.message, hint=error.hint)


def _new_tables(config: Config, known: Known, group: str) -> Iterator[Table]:
    followed = {row.configured for row in known.tables.get(group, [])}
    return (table for table in config.groups[group].tables if table.table not in followed)


def _old_mirrors(config: Config, known: Known, group: str, lake: Lake) -> set[int]:
    """Mirrors of this very group that the state does not know any more: their tables are copied in their place."""
    with closing(connect(config.source, application_name="headwater check")) as connection, translated(config.source):
        source_id = identify(connection).source_id
    positions = lake.positions(source_name(source_id, group)) if lake.prepared() else {}
    followed = {row.oid for row in known.tables.get(group, [])}
    return {each.table_id for oid, each in positions.items() if oid not in followed}
