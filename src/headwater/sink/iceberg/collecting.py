"""Files of attempts that did not land: found by the attempts' markers, and deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pyiceberg.table import Table

from headwater.change import TableName
from headwater.files import filesystem
from headwater.iceberg.attempts import Attempts, files_of
from headwater.sink.iceberg.lake import IcebergLake

__all__ = ["collected"]


def collected(lake: IcebergLake, attempts: Attempts) -> int:
    """Delete what attempts with a marker have written and no snapshot has; how many files. None may be under way."""
    open_, count = attempts.open(), 0
    if open_:
        lake.forget()  # another process may have landed them
    written = {
        location: found
        for location in {location for locations in open_.values() for location in locations}
        if (found := files_of(location, open_.keys(), lake.s3))
    }
    known = _known(lake, written.keys())
    for location, paths in written.items():
        files = filesystem(location, lake.s3)
        for path in paths:
            if path.rsplit("/", 1)[-1] not in known:
                files.delete_file(path)
                count += 1
    for attempt in open_:
        attempts.end(attempt)
    return count


def _known(lake: IcebergLake, locations: Collection[str]) -> set[str]:
    """The names of all files that snapshots of the tables at these locations have."""
    return {
        entry.data_file.file_path.rsplit("/", 1)[-1]
        for table in _tables_at(lake, locations)
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in lake.manifests.entries(manifest, table.io)
    }


def _tables_at(lake: IcebergLake, locations: Collection[str]) -> Iterator[Table]:
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
