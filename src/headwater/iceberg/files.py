"""The live files of a table, with the deletes that apply to each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry
from pyiceberg.table import Table

from headwater.errors import TableError
from headwater.iceberg.manifests import ManifestCache
from headwater.iceberg.model import DELETED_PATH, DeleteFile, LiveFile, Partition

__all__ = ["check_deletes", "live_files", "live_paths", "partition_of"]


def live_files(table: Table, cache: ManifestCache) -> list[LiveFile]:
    """The data files of the newest snapshot. TableError if another client wrote deletes that we do not read."""
    data, deletes = _entries(table, cache)
    applying = _Deletes(table, deletes)
    return [_live(entry, tuple(applying.to(entry))) for entry in data]


def live_paths(table: Table, cache: ManifestCache) -> list[str]:
    """The paths of all files of the newest snapshot, of data and of deletes, whoever wrote them."""
    return [entry.data_file.file_path for entries in _entries(table, cache) for entry in entries]


def check_deletes(table: Table, cache: ManifestCache) -> None:
    """TableError if another client wrote deletes that we do not read."""
    snapshot = table.metadata.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.content == ManifestContent.DELETES:
            for entry in cache.entries(manifest, table.io):
                _check_readable(table, entry.data_file)


def _entries(table: Table, cache: ManifestCache) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
    snapshot = table.metadata.current_snapshot()
    data: list[ManifestEntry] = []
    deletes: list[ManifestEntry] = []
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        to = data if manifest.content == ManifestContent.DATA else deletes
        to += cache.entries(manifest, table.io)
    return data, deletes


class _Deletes:
    """Position deletes by the data file that they are for, or by partition if they may be for several."""

    def __init__(self, table: Table, entries: list[ManifestEntry]) -> None:
        self._by_path: defaultdict[str, list[tuple[int, DeleteFile]]] = defaultdict(list)
        self._by_partition: defaultdict[tuple[int, Partition], list[tuple[int, DeleteFile]]] = defaultdict(list)
        for entry in entries:
            file = entry.data_file
            _check_readable(table, file)
            low, high = ((each or {}).get(DELETED_PATH) for each in (file.lower_bounds, file.upper_bounds))
            of = low.decode() if low is not None and low == high else None
            found = (entry.sequence_number or 0, DeleteFile(file.file_path, file.record_count, of))
            if of is not None:
                self._by_path[of].append(found)
            else:
                self._by_partition[file.spec_id, partition_of(file)].append(found)

    def to(self, entry: ManifestEntry) -> Iterator[DeleteFile]:
        file, sequence = entry.data_file, entry.sequence_number or 0
        for found in (self._by_path.get(file.file_path), self._by_partition.get((file.spec_id, partition_of(file)))):
            yield from (each for written, each in found or () if written >= sequence)


def _check_readable(table: Table, file: DataFile) -> None:
    if file.content == DataFileContent.EQUALITY_DELETES:
        what = "equality deletes"
    elif file.file_format != FileFormat.PARQUET:
        what = f"deletes in {file.file_format} files"
    else:
        return
    raise TableError(
        f"another client has written {what} to {'.'.join(table.name())}, which Headwater does not read",
        hint="have that client stop, and rewrite the table's data files with it; or drop the table in the lake: "
        "`headwater run --recopy` copies it again",
    )


def _live(entry: ManifestEntry, deletes: tuple[DeleteFile, ...]) -> LiveFile:
    file = entry.data_file
    return LiveFile(
        file.file_path,
        file.record_count,
        file.file_size_in_bytes,
        file.spec_id,
        partition_of(file),
        file.lower_bounds or {},
        file.upper_bounds or {},
        deletes,
    )


def partition_of(file: DataFile) -> Partition:
    return tuple(file.partition[index] for index in range(len(file.partition)))
