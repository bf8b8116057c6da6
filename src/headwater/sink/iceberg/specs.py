"""Partition specs of a table's past that it can no longer have: they go, with the snapshots that need them."""

from __future__ import annotations

import logging

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, RemovePartitionSpecsUpdate, RemoveSnapshotsUpdate

from headwater.errors import HeadwaterError
from headwater.iceberg.catalog import IcebergCatalog
from headwater.iceberg.partitions import fits

__all__ = ["drop_unfit_specs"]

logger = logging.getLogger(__name__)


def drop_unfit_specs(catalog: IcebergCatalog, table: Table) -> None:
    """After a copy into the table: without this, no client that uses Iceberg's library for Java opens it any more.

    Snapshots of other branches and tags stay, and then so do the specs. A catalog may not know the request.
    """
    metadata = table.metadata
    unfit = [spec.spec_id for spec in metadata.partition_specs if not fits(spec, metadata.schema())]
    if not unfit or set(metadata.refs) != {MAIN_BRANCH}:
        return
    newest = metadata.current_snapshot_id
    older = [each.snapshot_id for each in metadata.snapshots if each.snapshot_id != newest]
    updates = (RemoveSnapshotsUpdate(snapshot_ids=older), RemovePartitionSpecsUpdate(spec_ids=unfit))
    try:
        catalog.commit(table, (AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=newest),), updates)
    except HeadwaterError as error:
        name = ".".join(table.name())
        logger.warning("%s keeps partition specs by columns that it no longer has: %s", name, error)
