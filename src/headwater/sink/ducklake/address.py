"""Where a DuckLake is: its catalog and its data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from headwater.change import TableName
from headwater.ducklake.finding import check_could_open, find_lake, known_lake
from headwater.ducklake.opening import open_lake
from headwater.ducklake.partitions import SUPPORT
from headwater.ducklake.url import SqliteUrl, parse_lake_url
from headwater.files import S3
from headwater.lake.partitioning import PartitionSupport
from headwater.lake.stream import P, Stream
from headwater.sink.ducklake.lines import lines
from headwater.sink.ducklake.querying import QueriedDuckLake
from headwater.sink.ducklake.sink import DuckLakeSink

__all__ = ["DuckLakeAddress"]


@dataclass(frozen=True, slots=True)
class DuckLakeAddress:
    """Implements `headwater.lake.address.LakeAddress`."""

    catalog: str
    data_path: str
    s3: S3 | None = None
    wait: int | None = None  # as in a `LakeUrl`

    def __str__(self) -> str:
        return str(parse_lake_url(self.catalog))

    def within(self, seconds: int) -> DuckLakeAddress:
        return replace(self, wait=seconds)

    def partitions(self) -> PartitionSupport:
        return SUPPORT

    def check_could_open(self) -> None:
        check_could_open(self.catalog, self.data_path, s3=self.s3)

    def find(self, source: str, stream: Stream[P]) -> DuckLakeSink[P] | None:
        lake = find_lake(self.catalog, self.data_path, s3=self.s3, wait=self.wait)
        return None if lake is None else DuckLakeSink(lake, source, stream, prepared=lake.prepared())

    def folders(self) -> dict[str, str]:
        url = parse_lake_url(self.catalog)
        catalog = {"catalog of": str(Path(url.path).parent)} if isinstance(url, SqliteUrl) else {}
        return {"lake": self.data_path, **catalog}

    def queried(self) -> QueriedDuckLake:
        return QueriedDuckLake(parse_lake_url(self.catalog), self.s3)

    def lines(self, alias: str, table: TableName) -> list[str]:
        return lines(parse_lake_url(self.catalog), alias, table)

    def reopen(self, source: str, stream: Stream[P]) -> DuckLakeSink[P]:
        lake = known_lake(self.catalog, self.data_path, s3=self.s3, wait=self.wait)
        return DuckLakeSink(lake, source, stream)

    def open(self, source: str, stream: Stream[P]) -> DuckLakeSink[P]:
        lake = open_lake(self.catalog, self.data_path, s3=self.s3, wait=self.wait)
        return DuckLakeSink(lake, source, stream)
