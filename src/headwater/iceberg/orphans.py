"""Files in a table's folder that no snapshot has: left behind by killed processes, and by snapshots that are gone."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyarrow import fs
from pyiceberg.manifest import read_manifest_list
from pyiceberg.table import Table

from headwater.files import S3, filesystem, inside, is_local
from headwater.iceberg.attempts import attempt_of
from headwater.iceberg.manifests import ManifestCache
from headwater.iceberg.retention import needed_files

__all__ = ["Orphan", "delete_orphans", "orphans", "orphans_at", "remove_folders", "unborn_at"]

READERS = timedelta(hours=1)  # for so long they may read on in a snapshot that was the newest when they began
_FOLDERS = ("data", "metadata")
_KINDS = (".parquet", ".avro", ".metadata.json")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file's path as its filesystem spells it, and its size."""

    path: str
    size: int


def orphans(
    tables: Sequence[Table], under_way: Collection[str], older_than: timedelta, cache: ManifestCache, s3: S3 | None
) -> list[Orphan]:
    """Files in the folder of the first table that are older than this, and that none of the tables needs.

    `under_way` are attempts that may still land. They must have been listed before the tables were loaded: so a file
    that is older than it may be was there before both, and the tables have it if it has landed.
    """
    now = datetime.now(UTC)
    found = list(_files(tables[0].metadata.location, s3))
    old = [each for each in found if each.mtime < now - older_than and attempt_of(each.path) not in under_way]
    if not old:
        return []
    needed = {_name(path) for each in tables for path in _known(each, cache)}
    lately = [each for each in _newest_since(found, now - READERS) if each.base_name not in needed]
    needed |= {_name(path) for path in _still_read(tables[0], lately, cache)}
    return [Orphan(each.path, each.size) for each in old if each.base_name not in needed]


def orphans_at(location: str, older_than: timedelta, s3: S3 | None) -> list[Orphan] | None:
    """Every file in the folder of a table that was dropped; None if some are not as old as this yet."""
    found, then = list(_files(location, s3)), datetime.now(UTC) - older_than
    return [Orphan(each.path, each.size) for each in found] if all(each.mtime < then for each in found) else None


def unborn_at(location: str, s3: S3 | None) -> list[Orphan]:
    """The manifests of a table that was to be created there; none if it was, since then there is metadata of it."""
    found = list(_files(location, s3))
    if any(each.path.endswith(".metadata.json") for each in found):
        return []
    return [Orphan(each.path, each.size) for each in found if each.path.endswith(".avro")]


def delete_orphans(location: str, found: Sequence[Orphan], s3: S3 | None) -> None:
    """Delete files in the folder of the table at this location."""
    files = filesystem(location, s3)
    for each in found:
        with suppress(FileNotFoundError):
            files.delete_file(each.path)


def remove_folders(location: str) -> None:
    """Remove what an object store does not have: folders of a table that was dropped, if they are empty."""
    if is_local(location):
        for path in (*(f"{inside(location)}/{each}" for each in _FOLDERS), inside(location)):
            with suppress(OSError):
                os.rmdir(path)


def _files(location: str, s3: S3 | None) -> Iterator[fs.FileInfo]:
    files = filesystem(location, s3)
    for folder in _FOLDERS:
        where = fs.FileSelector(f"{inside(location)}/{folder}", allow_not_found=True, recursive=True)
        yield from (each for each in files.get_file_info(where) if each.is_file and each.path.endswith(_KINDS))


def _known(table: Table, cache: ManifestCache) -> Iterator[str]:
    metadata = table.metadata
    yield table.metadata_location
    yield from (each.metadata_file for each in metadata.metadata_log)
    yield from (each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics))
    yield from needed_files(table, metadata.snapshots, cache)


def _newest_since(files: Sequence[fs.FileInfo], since: datetime) -> list[fs.FileInfo]:
    """The manifest lists of snapshots that were the newest at some time since then."""
    lists = sorted(filter(_is_list, files), key=lambda each: each.mtime)
    before = sum(each.mtime < since for each in lists)
    return lists[max(before - 1, 0) :]


def _still_read(table: Table, lists: Sequence[fs.FileInfo], cache: ManifestCache) -> Iterator[str]:
    """What readers may still need of snapshots that are gone."""
    for each in lists:
        yield each.path
        try:
            manifests = list(read_manifest_list(table.io.new_input(_spelled(table, each.path))))
            yield from (manifest.manifest_path for manifest in manifests)
            for manifest in manifests:
                yield from (entry.data_file.file_path for entry in cache.entries(manifest, table.io))
        except FileNotFoundError:  # of a commit that did not land, and was cleaned up in part
            continue


def _is_list(file: fs.FileInfo) -> bool:
    return bool(file.base_name.startswith("snap-") and file.base_name.endswith(".avro"))


def _spelled(table: Table, path: str) -> str:
    """The path as the table's metadata would have it."""
    location = table.metadata.location
    return location.removesuffix(inside(location)) + path


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
