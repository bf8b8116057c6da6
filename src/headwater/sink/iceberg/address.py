"""Where an Iceberg lake is: the properties of its catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.errors import Unreachable
from headwater.files import check_could_write
from headwater.iceberg.catalog import open_catalog, shown, sqlite_file
from headwater.iceberg.partitions import SUPPORT
from headwater.lake.partitioning import PartitionSupport
from headwater.sink.iceberg.querying import QueriedIceberg
from headwater.sink.iceberg.sink import IcebergSink

__all__ = ["IcebergAddress"]


@dataclass(frozen=True, slots=True)
class IcebergAddress:
    """Implements `headwater.lake.address.LakeAddress`."""

    properties: Mapping[str, str] = field(repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    def __str__(self) -> str:
        return shown(self.properties)

    def partitions(self) -> PartitionSupport:
        return SUPPORT

    def check_could_open(self) -> None:
        for folder in self.folders().values():
            check_could_write(folder)
        file = sqlite_file(self.properties)
        if file is None or file.exists():
            open_catalog(self.properties, self.secrets, create=False).close()

    def folders(self) -> dict[str, str]:
        file, warehouse = sqlite_file(self.properties), self.properties.get("warehouse", "")
        catalog = {"catalog of": str(file.parent)} if file else {}
        return {**({"lake": warehouse} if warehouse.startswith(("/", "s3://")) else {}), **catalog}

    def queried(self) -> QueriedIceberg:
        return QueriedIceberg(self.properties, self.secrets)

    def find(self, source: str) -> IcebergSink | None:
        if (file := sqlite_file(self.properties)) is not None and not file.exists():
            return None
        catalog = open_catalog(self.properties, self.secrets, create=False)
        try:
            catalog.namespace_properties("main")
        except Unreachable:
            if file is None:
                raise
            return None  # a file without a catalog's tables
        return IcebergSink(catalog, source)

    def open(self, source: str) -> IcebergSink:
        sink = IcebergSink(open_catalog(self.properties, self.secrets, create=True), source)
        sink.prepare()
        return sink
