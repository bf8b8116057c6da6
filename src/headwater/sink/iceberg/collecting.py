"""Files of attempts that did not land: found by the attempts' markers, and deleted."""

from __future__ import annotations

from headwater.files import filesystem
from headwater.iceberg.attempts import Attempts, files_of
from headwater.sink.iceberg.lake import IcebergLake

__all__ = ["collected"]


def collected(lake: IcebergLake, attempts: Attempts) -> int:
    """Delete what attempts with a marker have written and no snapshot has; how many files. None may be under way."""
    open_, count = attempts.open(), 0
    if open_:
        lake.forget()  # another process may have landed them
    for location in {location for locations in open_.values() for location in locations}:
        files = filesystem(location, lake.s3)
        known = _known(lake, location)
        for path in files_of(location, open_.keys(), lake.s3):
            if path.rsplit("/", 1)[-1] not in known:
                files.delete_file(path)
                count += 1
    for attempt in open_:
        attempts.end(attempt)
    return count


def _known(lake: IcebergLake, location: str) -> set[str]:
    """The names of all files that a snapshot of the table at this location has."""
    tables = [*(each.table for each in lake.standings().values()), lake.quarantine()]
    return {
        entry.data_file.file_path.rsplit("/", 1)[-1]
        for table in tables
        if table.metadata.location == location
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in lake.manifests.entries(manifest, table.io)
    }
