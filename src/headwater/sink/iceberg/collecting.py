"""Files of attempts that did not land: found by the attempts' markers, and deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pyiceberg.table import Table

from headwater.change import TableName
from headwater.files import S3, filesystem
from headwater.iceberg.attempts import Attempts, files_of
from headwater.iceberg.credentials import s3_of_table
from headwater.iceberg.orphans import delete_orphans, remove_folders, unborn_at
from headwater.sink.iceberg.lake import IcebergLake

__all__ = ["collected"]


def collected(lake: IcebergLake[Any], attempts: Attempts, spared: Collection[str] = ()) -> int:
    """Delete what attempts with a marker have written and no snapshot has; how many files. None may be under way.

    What `spared` ones have written stays.
    """
    noted, count = attempts.open(), 0
    open_ = {attempt: locations for attempt, locations in noted.items() if attempt not in spared}
    kept = {location for attempt in spared for location in noted.get(attempt, ())}
    if open_:
        lake.forget()  # another process may have landed them
    locations = {location for each in open_.values() for location in each}
    tables = {each.metadata.location: each for each in _tables_at(lake, locations)}
    s3 = {each: s3_of_table(tables[each]) if each in tables else lake.s3 for each in locations}
    written = {each: found for each in locations if (found := files_of(each, open_.keys(), s3[each]))}
    known = _known(lake, [tables[each] for each in written if each in tables])
    for location, paths in written.items():
        files = filesystem(location, s3[location])
        for path in paths:
            if path.rsplit("/", 1)[-1] not in known:
                files.delete_file(path)
                count += 1
    for location in locations - tables.keys() - kept:
        count += _delete_unborn(location, s3[location])
    for attempt in open_:
        attempts.end(attempt)
    return count


def _delete_unborn(location: str, s3: S3 | None) -> int:
    """Delete what is left of a table that a copy was to create, and did not."""
    found = unborn_at(location, s3)
    delete_orphans(location, found, s3)
    remove_folders(location)
    return len(found)


def _known(lake: IcebergLake[Any], tables: Collection[Table]) -> set[str]:
    """The names of all files that snapshots of these tables have."""
    return {
        entry.data_file.file_path.rsplit("/", 1)[-1]
        for table in tables
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in lake.manifests.entries(manifest, table.io)
    }


def _tables_at(lake: IcebergLake[Any], locations: Collection[str]) -> Iterator[Table]:
    if not locations:
        return
    ours = [*(each.table for each in lake.standings().values()), lake.quarantine()]
    yield from (each for each in ours if each.metadata.location in locations)
    if set(locations) <= {each.metadata.location for each in ours}:
        return
    # A table that was never made, or one that another client has renamed: then its files are not ours to delete.
    for name in set(lake.catalog.names()[1]) - {TableName(*each.name()) for each in ours}:
        table = lake.catalog.load(name)
        if table is not None and table.metadata.location in locations:
            yield table
