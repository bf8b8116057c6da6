"""Files that nothing in a table names."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate

from headwater.iceberg.orphans import orphans
from tests.iceberg.icebench import IceBench


def test_statistics_that_another_client_has_made_are_no_orphans(ice: IceBench) -> None:
    snapshot = ice.change([(1, "a")])
    folder = Path(ice.table.location().removeprefix("file://"), "metadata")
    mine, other = folder / "partition-stats-1.parquet", folder / "partition-stats-0.parquet"
    for each in (mine, other):
        each.write_bytes(b"statistics")
    said = PartitionStatisticsFile(snapshot_id=snapshot, statistics_path=str(mine), file_size_in_bytes=10)
    ice.table = ice.catalog.commit(ice.table, (), (SetPartitionStatisticsUpdate(partition_statistics=said),))
    for each in folder.parent.rglob("*.*"):
        os.utime(each, (0, 0))
    found = orphans([ice.table], (), timedelta(days=1), ice.cache, None)
    assert [each.path for each in found] == [str(other)]
