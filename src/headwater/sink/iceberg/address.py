"""Where an Iceberg lake is: the properties of its catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.errors import Unreachable
from headwater.files import check_could_write
from headwater.iceberg.catalog import open_catalog, shown, sqlite_file
from headwater.sink.iceberg.sink import IcebergSink

__all__ = ["IcebergAddress"]


@dataclass(frozen=True, slots=True)
class IcebergAddress:
    """Implements `headwater.lake.address.LakeAddress`."""

    properties: Mapping[str, str] = field(repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    def __str__(self) -> str:
        return shown(self.properties)

    def check_could_open(self) -> None:
        file = sqlite_file(self.properties)
        if file is not None:
            check_could_write(str(file.parent))
        if (warehouse := self.properties.get("warehouse")) and (warehouse.startswith(("/", "s3://"))):
            check_could_write(warehouse)
        if file is None or file.exists():
            open_catalog(self.properties, self.secrets, create=False).close()

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
