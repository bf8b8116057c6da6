"""The config's `partition_by`: are the columns there, and can the lake partition by them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from headwater.change import Relation
from headwater.config import Config, Table
from headwater.errors import ConfigError, HeadwaterError
from headwater.lake import history
from headwater.lake.partitioning import PartitionBy, PartitionSupport
from headwater.postgres.connect import Connection, connect, translated
from headwater.sink.addresses import group_lake
from headwater.source.checktable import TableWish
from headwater.source.relations import described
from headwater.source.replaced import resolved
from headwater.values.types import LakeType, lake_type

__all__ = ["partition_problems"]


def partition_problems(
    config: Config, env: Mapping[str, str], wishes: Mapping[str, list[TableWish]]
) -> Iterator[HeadwaterError]:
    """Why tables cannot be partitioned as the config wants. A source that does not answer is reported elsewhere."""
    divided = {name for name, group in config.groups.items() if any(table.partition_by for table in group.tables)}
    if not divided:
        return
    try:
        with (
            closing(connect(config.source, application_name="headwater check")) as connection,
            translated(config.source),
        ):
            for group in sorted(divided):
                support = group_lake(config, env, group).partitions()
                entries = {entry.table: entry for entry in config.groups[group].tables if entry.partition_by}
                wanted = [wish for wish in wishes[group] if wish.table in entries]
                for one in resolved(connection, wanted):
                    if one.fate == "found":
                        yield from _problems(connection, support, entries[one.wish.table], one.oid)
    except HeadwaterError:  # already reported
        return


def _problems(connection: Connection, support: PartitionSupport, entry: Table, oid: int) -> Iterator[HeadwaterError]:
    relation = described(connection, oid, None)
    kinds = _kinds(relation, entry)
    for message, hint in support.problems(tuple(map(PartitionBy.parse, entry.partition_by)), kinds):
        yield ConfigError(f"table {str(relation.table)!r}: {message}", hint=hint)


def _kinds(relation: Relation, entry: Table) -> dict[str, LakeType]:
    """The types of the columns that the lake's table gets; what cannot be a type is reported elsewhere."""
    found = dict(history.COLUMNS) if entry.mode == "history" else {}
    for column in relation.columns:
        if column.name not in entry.exclude and (entry.columns is None or column.name in entry.columns):
            try:
                found[column.name] = lake_type(column, entry.types.get(column.name))
            except ConfigError:
                found[column.name] = lake_type(column)
    return found
