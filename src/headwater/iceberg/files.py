"""The live files of a table, with the deletes that apply to each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table

from headwater.errors import TableError
from headwater.iceberg.manifests import ManifestCache, partition_of
from headwater.iceberg.model import DELETED_PATH, DeleteFile, LiveFile, Partition

__all__ = ["check_deletes", "live_files", "live_paths"]


def live_files(table: Table, cache: ManifestCache) -> list[LiveFile]:
    """The data files of the newest snapshot. TableError if another client wrote deletes that we do not read."""
    manifests = _manifests(table)
    deletes = [each for each in manifests if each.content == ManifestContent.DELETES]
    applying = _Deletes(table, [entry for each in deletes for entry in cache.entries(each, table.io)])
    data = (each for each in manifests if each.content == ManifestContent.DATA)
    return [applying.on(file) for each in data for file in cache.files(each, table.io)]


def live_paths(table: Table, cache: ManifestCache) -> list[str]:
    """The paths of all files of the newest snapshot, of data and of deletes, whoever wrote them."""
    return [entry.data_file.file_path for each in _manifests(table) for entry in cache.entries(each, table.io)]


def check_deletes(table: Table, cache: ManifestCache) -> None:
    """TableError if another client wrote deletes that we do not read."""
    for manifest in _manifests(table):
        if manifest.content == ManifestContent.DELETES:
            for entry in cache.entries(manifest, table.io):
                _check_readable(table, entry.data_file)


def _manifests(table: Table) -> Sequence[ManifestFile]:
    snapshot = table.metadata.current_snapshot()
    return snapshot.manifests(table.io) if snapshot else ()


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

    def on(self, file: LiveFile) -> LiveFile:
        """The file with the deletes that apply to it."""
        found = (*self._by_path.get(file.path, ()), *self._by_partition.get((file.spec_id, file.partition), ()))
        deletes = tuple(each for written, each in found if written >= file.sequence)
        return replace(file, deletes=deletes) if deletes else file


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
