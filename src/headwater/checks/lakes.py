"""The lakes' part: can they be opened or created, are they the groups' own, are the names free?"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing

from headwater.change import TableName
from headwater.checks.known import Known
from headwater.config import Config, MatchedTable, Table
from headwater.errors import ConfigError, HeadwaterError, TableError
from headwater.lake.address import LakeAddress
from headwater.lake.stream import WAL
from headwater.postgres.connect import connect, translated
from headwater.sink.addresses import group_lake, lake_addresses
from headwater.source.server import identify
from headwater.supervise.lakes import lost_files, source_name, strange_lake

__all__ = ["lake_problems"]

logger = logging.getLogger(__name__)


def lake_problems(
    config: Config, env: Mapping[str, str], known: Known, *, recopy: bool = False
) -> Iterator[HeadwaterError]:
    """What keeps the config's groups from landing in their lakes. With `recopy` a lake may be a new one."""
    lakes = lake_addresses(config, env)
    for group in config.groups:
        if config.groups[group].lake in lakes:
            try:
                yield from _problems(config, env, known, group, recopy)
            except HeadwaterError as error:
                yield error


def _problems(
    config: Config, env: Mapping[str, str], known: Known, group: str, recopy: bool
) -> Iterator[HeadwaterError]:
    address = group_lake(config, env, group)
    address.check_could_open()
    row = known.groups.get(group)
    lake = address.find(source_name(row.source_id, group) if row else group, WAL)
    id_, lost = None, dict[TableName, str]()
    if lake is not None:
        with closing(lake):
            id_, lost = lake.lake_id(), dict(lake.lost())
        yield from _taken(config, known, group, address)
    if row is None or recopy:
        return
    if problem := strange_lake(config, row, id_) or lost_files(config, row, known.tables[group], lost):
        yield problem


def _taken(config: Config, known: Known, group: str, address: LakeAddress) -> Iterator[HeadwaterError]:
    """Names of tables that are new in the config, and that the lake has already."""
    new = list(_new_tables(config, known, group))
    if not new:
        return
    with closing(connect(config.source, application_name="headwater check")) as connection, translated(config.source):
        lake = address.find(source_name(identify(connection).source_id, group), WAL)
    if lake is None:
        return
    followed = {row.oid for row in known.tables.get(group, [])}
    with closing(lake):
        # Mirrors of this very group that the state does not know any more: their tables are copied in their place.
        names = lake.names(lake.standings().keys() - followed)
    for table in new:
        try:
            names.take(table.target)
        except TableError as error:
            if isinstance(table, MatchedTable):
                logger.warning("table %s will not be copied: %s", table.table, error)
            else:
                yield ConfigError(error.message, hint=error.hint)


def _new_tables(config: Config, known: Known, group: str) -> Iterator[Table]:
    rows = known.tables.get(group, [])
    # A pattern's table is named as the source names it now, which its row learns at the next start.
    followed = {row.configured for row in rows} | {row.source for row in rows if row.options.pattern is not None}
    return (table for table in config.groups[group].tables if table.table not in followed)
