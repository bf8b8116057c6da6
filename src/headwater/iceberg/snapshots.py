"""A table's next snapshot: rows added, rows deleted by position, files removed, in one commit.

Java's library calls it a row delta. PyIceberg 0.12 has none, so manifests, manifest list and snapshot are put together
here, of its own parts; its catalog then makes them visible.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestFile,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.typedef import Record

from headwater.iceberg.manifests import ManifestCache, Manifests, merged, with_files, without_files
from headwater.iceberg.model import NewFile

__all__ = ["FileChanges", "NewSnapshot", "next_snapshot"]


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What a snapshot changes in a table's files; `removed` are paths of data files and delete files.

    `same_rows`: the files are others, and the rows are what they were, as after a compaction. `new_spec` is a partition
    spec that the table gets with it. `from_nothing`: files of the snapshot before it are lost, and none of them stays.
    """

    added: Sequence[NewFile] = ()
    removed: Collection[str] = ()
    same_rows: bool = False
    new_spec: PartitionSpec | None = None
    from_nothing: bool = False


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A snapshot that is written and that the catalog does not know yet; `written` are its files."""

    id: int
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    written: list[str] = field(default_factory=list)


def next_snapshot(
    table: Table, schema: Schema, changes: FileChanges, properties: Mapping[str, str], cache: ManifestCache
) -> NewSnapshot:
    """Write the manifests of a snapshot that follows the table's newest one; `properties` go into its summary.

    `schema` is the one the table has after the commit.
    """
    metadata = table.metadata
    parent, branch = metadata.current_snapshot(), metadata.refs.get(MAIN_BRANCH)
    prefix = str(uuid.uuid4())
    to = Manifests(table, schema, cache, metadata.new_snapshot_id(), prefix, changes.new_spec)
    order = metadata.default_sort_order_id
    rows = [_data_file(each, order) for each in changes.added if each.content == "rows"]
    deletes = [_data_file(each, order) for each in changes.added if each.content == "deletes"]
    manifests, lost = _manifests(to, rows, deletes, changes)
    sequence = metadata.next_sequence_number()
    path = f"{metadata.location}/metadata/snap-{to.snapshot_id}-0-{prefix}.avro"
    to.written.append(path)
    with write_manifest_list(
        format_version=2,
        output_file=table.io.new_output(path),
        snapshot_id=to.snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=sequence,
        avro_compression="deflate",
    ) as writer:
        writer.add_manifests(manifests)
    snapshot = Snapshot(
        snapshot_id=to.snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=sequence,
        manifest_list=path,
        summary=_summary(to, rows, deletes, lost, changes, properties),
        schema_id=schema.schema_id,
    )
    updates = (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(
            ref_name=MAIN_BRANCH,
            type=SnapshotRefType.BRANCH,
            snapshot_id=to.snapshot_id,
            max_ref_age_ms=branch.max_ref_age_ms if branch else None,
            max_snapshot_age_ms=branch.max_snapshot_age_ms if branch else None,
            min_snapshots_to_keep=branch.min_snapshots_to_keep if branch else None,
        ),
    )
    unchanged = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=parent.snapshot_id if parent else None)
    return NewSnapshot(to.snapshot_id, updates, (unchanged,), to.written)


def _manifests(
    to: Manifests, rows: Sequence[DataFile], deletes: Sequence[DataFile], changes: FileChanges
) -> tuple[list[ManifestFile], list[DataFile]]:
    """The manifests of the snapshot, and the files that it has no longer."""
    untouched: list[ManifestFile] = []
    rewritten: list[ManifestFile] = []
    lost: list[DataFile] = []
    before = [] if changes.from_nothing else to.current()
    for manifest, gone in without_files(to, before, frozenset(changes.removed)):
        lost += gone
        if manifest is not None:
            (rewritten if gone else untouched).append(manifest)
    # An entry that an earlier snapshot deleted is of no use to this one.
    live = [each for each in untouched if each.has_added_files() or each.has_existing_files()]
    return [
        *with_files(to, ManifestContent.DATA, rows),
        *with_files(to, ManifestContent.DELETES, deletes),
        *rewritten,
        *merged(to, live),
    ], lost


def _data_file(new: NewFile, order: int | None = None) -> DataFile:
    content = DataFileContent.DATA if new.content == "rows" else DataFileContent.POSITION_DELETES
    metrics = new.metrics
    file = DataFile.from_args(
        content=content,
        file_path=new.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*new.partition),
        record_count=new.rows,
        file_size_in_bytes=new.size,
        value_counts=metrics.values,
        null_value_counts=metrics.nulls,
        nan_value_counts=metrics.nans,
        lower_bounds=metrics.lower,
        upper_bounds=metrics.upper,
        sort_order_id=order if new.sorted else None,
    )
    file.spec_id = new.spec_id
    return file


def _summary(
    to: Manifests,
    rows: Sequence[DataFile],
    deletes: Sequence[DataFile],
    lost: Sequence[DataFile],
    changes: FileChanges,
    properties: Mapping[str, str],
) -> Summary:
    collector, specs = SnapshotSummaryCollector(), to.specs
    for file in (*rows, *deletes):
        collector.add_file(file, to.schema, specs[file.spec_id])
    for file in lost:
        collector.remove_file(file, to.schema, specs[file.spec_id])
    operation = _operation(rows, deletes, bool(lost) or changes.from_nothing)
    parent = None if changes.from_nothing else to.table.metadata.current_snapshot()
    counted: dict[str, Any] = {**collector.build(), **properties}
    summary = update_snapshot_summaries(Summary(operation, **counted), parent.summary if parent else None)
    if changes.same_rows:  # PyIceberg adds up the totals of no such operation
        return Summary(Operation.REPLACE, **summary.additional_properties)
    return summary


def _operation(rows: Sequence[DataFile], deletes: Sequence[DataFile], files_go: bool) -> Operation:
    if not deletes and not files_go:
        return Operation.APPEND
    return Operation.OVERWRITE if rows else Operation.DELETE
