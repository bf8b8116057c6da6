"""Manifests: the lists of a table's files that a snapshot is made of. They never change, so they are read once."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from headwater.iceberg.model import LiveFile, Partition
from headwater.iceberg.partitions import fits

__all__ = ["ManifestCache", "Manifests", "merged", "partition_of", "with_files", "without_files"]

_KEPT = 200_000  # entries
_TIER = 32  # so many manifests of about one size become one


class ManifestCache:
    """The live entries of manifests that were read or written not long ago, by path."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, _Read] = OrderedDict()
        self._size = 0

    def entries(self, manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
        return self._read(manifest, io).entries

    def files(self, manifest: ManifestFile, io: FileIO) -> list[LiveFile]:
        """The data files of a manifest, without the deletes that apply to them."""
        return self._read(manifest, io).files

    def _read(self, manifest: ManifestFile, io: FileIO) -> _Read:
        if (found := self._held.get(manifest.manifest_path)) is not None:
            self._held.move_to_end(manifest.manifest_path)
            return found
        found = _Read(manifest.fetch_manifest_entry(io, discard_deleted=True))
        self._held[manifest.manifest_path] = found
        self._size += len(found.entries)
        while self._size > _KEPT and len(self._held) > 1:
            self._size -= len(self._held.popitem(last=False)[1].entries)
        return found


@dataclass(frozen=True)
class _Read:
    entries: list[ManifestEntry]

    @cached_property
    def files(self) -> list[LiveFile]:
        return [_live(entry) for entry in self.entries]


def _live(entry: ManifestEntry) -> LiveFile:
    file = entry.data_file
    return LiveFile(
        file.file_path,
        file.record_count,
        file.file_size_in_bytes,
        file.spec_id,
        partition_of(file),
        file.lower_bounds or {},
        file.upper_bounds or {},
        entry.sequence_number or 0,
    )


def partition_of(file: DataFile) -> Partition:
    return tuple(file.partition[index] for index in range(len(file.partition)))


class _DataManifestWriter(ManifestWriterV2):
    """PyIceberg leaves out the id of the schema, which format 2 requires."""

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "schema-id": str(self._schema.schema_id)}


class _DeleteManifestWriter(_DataManifestWriter):
    """PyIceberg writes manifests of data files only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


@dataclass(frozen=True)
class Manifests:
    """Where a commit writes its manifests; `written` are the paths so far, to be deleted if it does not land."""

    table: Table
    schema: Schema
    cache: ManifestCache
    snapshot_id: int
    prefix: str  # unique to the attempt to commit
    new_spec: PartitionSpec | None = None  # that the table gets with the commit
    written: list[str] = field(default_factory=list)

    @property
    def specs(self) -> Mapping[int, PartitionSpec]:
        new = self.new_spec
        return self.table.metadata.specs() | ({new.spec_id: new} if new else {})

    def current(self) -> list[ManifestFile]:
        snapshot = self.table.metadata.current_snapshot()
        return list(snapshot.manifests(self.table.io)) if snapshot else []

    def entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        return self.cache.entries(manifest, self.table.io)

    def write(self, content: ManifestContent, spec_id: int, entries: Iterable[ManifestEntry]) -> ManifestFile:
        kind = _DataManifestWriter if content == ManifestContent.DATA else _DeleteManifestWriter
        path = f"{self.table.metadata.location}/metadata/{self.prefix}-m{len(self.written)}.avro"
        self.written.append(path)
        writer: ManifestWriter
        with kind(
            self.specs[spec_id], self.schema, self.table.io.new_output(path), self.snapshot_id, "deflate"
        ) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()


def with_files(to: Manifests, content: ManifestContent, added: Sequence[DataFile]) -> Iterator[ManifestFile]:
    """Manifests of files that the snapshot adds, one for each partition spec."""
    by_spec: defaultdict[int, list[DataFile]] = defaultdict(list)
    for each in added:
        by_spec[each.spec_id].append(each)
    for spec_id, files in by_spec.items():
        entries = (
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=to.snapshot_id, data_file=each)
            for each in files
        )
        yield to.write(content, spec_id, entries)


def without_files(
    to: Manifests, manifests: Iterable[ManifestFile], gone: Collection[str]
) -> Iterator[tuple[ManifestFile | None, list[DataFile]]]:
    """The manifests without the files at these paths, each with the files that it has lost.

    None for one of which nothing is left but a note of partitions that the table cannot have any more.
    """
    for manifest in manifests:
        entries = to.entries(manifest) if gone else []
        lost = [entry.data_file for entry in entries if entry.data_file.file_path in gone]
        if not lost:
            yield manifest, lost
            continue
        if len(lost) == len(entries) and not fits(to.specs[manifest.partition_spec_id], to.schema):
            yield None, lost
            continue
        marked = (
            _deleted(entry, to.snapshot_id) if entry.data_file.file_path in gone else _existing(entry)
            for entry in entries
        )
        yield to.write(manifest.content, manifest.partition_spec_id, marked), lost


def merged(to: Manifests, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
    """Manifests of earlier snapshots, small ones put together: so their number hardly grows with the commits."""
    groups: defaultdict[tuple[ManifestContent, int, int], list[ManifestFile]] = defaultdict(list)
    for each in manifests:
        groups[each.content, each.partition_spec_id, _tier(each)].append(each)
    kept = []
    for (content, spec_id, _), group in groups.items():
        if len(group) < _TIER:
            kept += group
        else:
            entries = [_existing(entry) for each in group for entry in to.entries(each)]
            kept += [to.write(content, spec_id, entries)] if entries else []
    return kept


def _tier(manifest: ManifestFile) -> int:
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    tier = 0
    while files > _TIER:
        files, tier = files // _TIER, tier + 1
    return tier


def _existing(entry: ManifestEntry) -> ManifestEntry:
    return _copied(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)


def _deleted(entry: ManifestEntry, snapshot_id: int) -> ManifestEntry:
    return _copied(entry, ManifestEntryStatus.DELETED, snapshot_id)


def _copied(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
