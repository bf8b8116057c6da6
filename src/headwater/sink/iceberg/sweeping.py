"""Files of an Iceberg lake that nothing needs: orphans of its tables, and what is left of tables that we dropped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.table import Table

from headwater.change import TableName
from headwater.iceberg.attempts import under_way
from headwater.iceberg.credentials import s3_of_table
from headwater.iceberg.dropped import DroppedFolder
from headwater.iceberg.orphans import Orphan, delete_orphans, orphans, orphans_at, remove_folders
from headwater.sink.iceberg.lake import IcebergLake

__all__ = ["dropped_names", "sweep", "unneeded"]

_OWN_FOLDER = re.compile(r"-[0-9a-f]{8}$")  # as the tables that we create have it


def dropped_names(lake: IcebergLake[Any]) -> set[TableName]:
    """The names that tables had which we dropped, and whose files may still be there."""
    return {each.name for each in lake.dropped.all()}


def unneeded(lake: IcebergLake[Any], name: TableName, age: timedelta) -> list[Orphan]:
    """Files of the table, and of dropped ones that had its name, that are older than this and that nothing needs."""
    _, found = _of_table(lake, name, age)
    return [*found, *(file for _, files in _of_dropped(lake, name, age) for file in files)]


def sweep(lake: IcebergLake[Any], name: TableName, age: timedelta) -> list[Orphan]:
    """Delete them."""
    table, found = _of_table(lake, name, age)
    if table is not None:
        delete_orphans(table.metadata.location, found, s3_of_table(table))
    for folder, files in _of_dropped(lake, name, age):
        delete_orphans(folder.location, files, lake.s3)
        remove_folders(folder.location)
        lake.dropped.remove(folder)
        found += files
    return found


def _of_table(lake: IcebergLake[Any], name: TableName, age: timedelta) -> tuple[Table | None, list[Orphan]]:
    open_ = under_way(lake.quarantine().metadata.location, lake.s3)
    table = lake.own(name)
    if table is None:
        return None, []
    return table, orphans([table, *_sharing(lake, table)], open_, age, lake.manifests, s3_of_table(table))


def _sharing(lake: IcebergLake[Any], table: Table) -> Iterator[Table]:
    """Other tables whose files may be in the table's folder, if the catalog chose the folder by the name."""
    location = table.metadata.location.rstrip("/")
    if _OWN_FOLDER.search(location):
        return
    for other in _all_tables(lake):
        if other.metadata.location.rstrip("/").startswith(location):
            yield other


def _of_dropped(
    lake: IcebergLake[Any], name: TableName, age: timedelta
) -> Iterator[tuple[DroppedFolder, list[Orphan]]]:
    """Folders of tables that had this name and were dropped longer ago than this, with the files to delete.

    None of a folder that a table has now: one that another client has brought back, or that the catalog has put there.
    """
    then = datetime.now(UTC) - age
    due = [each for each in lake.dropped.all() if each.name == name and each.since < then]
    taken = [each.metadata.location for each in _all_tables(lake)] if due else []
    for each in due:
        files = [] if each.is_shared(taken) else orphans_at(each.location, age, lake.s3)
        if files is not None:
            yield each, files


def _all_tables(lake: IcebergLake[Any]) -> Iterator[Table]:
    for name in lake.catalog.names()[1]:
        if (table := lake.catalog.load(name)) is not None:
            yield table
