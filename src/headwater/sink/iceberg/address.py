"""Where an Iceberg lake is: the properties of its catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from headwater.change import TableName
from headwater.files import check_could_write
from headwater.iceberg.catalog import IcebergCatalog, open_catalog, shown, sqlite_file
from headwater.iceberg.credentials import s3_of
from headwater.iceberg.partitions import SUPPORT
from headwater.lake.partitioning import PartitionSupport
from headwater.lake.stream import P, Stream
from headwater.sink.iceberg.querying import QueriedIceberg
from headwater.sink.iceberg.reader import ReadTable, scan
from headwater.sink.iceberg.sink import IcebergSink

__all__ = ["IcebergAddress"]


@dataclass(frozen=True, slots=True)
class IcebergAddress:
    """Implements `headwater.lake.address.LakeAddress`."""

    properties: Mapping[str, str] = field(repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    wait: int | None = None  # seconds, for a catalog in PostgreSQL; one in a SQLite file is waited for 5 seconds anyway

    def __str__(self) -> str:
        return shown(self.properties)

    def within(self, seconds: int) -> IcebergAddress:
        return replace(self, wait=seconds)

    def partitions(self) -> PartitionSupport:
        return SUPPORT

    def check_could_open(self) -> None:
        s3 = s3_of(self.properties)
        for what, folder in self.folders().items():
            check_could_write(folder, s3, what="the folder of the catalog" if what == "catalog of" else "warehouse")
        file = sqlite_file(self.properties)
        if file is None or file.exists():
            open_catalog(self.properties, self.secrets, create=False).close()

    def folders(self) -> dict[str, str]:
        file, warehouse = sqlite_file(self.properties), self.properties.get("warehouse", "")
        catalog = {"catalog of": str(file.parent)} if file else {}
        return {**({"lake": warehouse} if warehouse.startswith(("/", "s3://")) else {}), **catalog}

    def queried(self) -> QueriedIceberg:
        return QueriedIceberg(self.properties, self.secrets)

    def find(self, source: str, stream: Stream[P]) -> IcebergSink[P] | None:
        if (file := sqlite_file(self.properties)) is not None and not file.exists():
            return None
        with _closed_on_error(self._opened(create=False)) as catalog:
            if catalog.is_new():
                catalog.close()
                return None
        return IcebergSink(catalog, source, stream)

    def lines(self, alias: str, table: TableName) -> list[str]:  # noqa: ARG002
        with _closed_on_error(self._opened(create=False)) as catalog:
            found = catalog.load(table)
            catalog.close()
        if found is None:
            return []
        read = f"SELECT * FROM {scan(ReadTable(found.metadata_location, None))} LIMIT 10;"
        return ["INSTALL avro; LOAD avro; INSTALL iceberg; LOAD iceberg;", read]

    def reopen(self, source: str, stream: Stream[P]) -> IcebergSink[P]:
        return IcebergSink(self._opened(create=False), source, stream)

    def open(self, source: str, stream: Stream[P]) -> IcebergSink[P]:
        with _closed_on_error(self._opened(create=True)) as catalog:
            sink = IcebergSink(catalog, source, stream)
            sink.prepare()
        return sink

    def _opened(self, *, create: bool) -> IcebergCatalog:
        return open_catalog(self.properties, self.secrets, create=create, wait=self.wait)


@contextmanager
def _closed_on_error(catalog: IcebergCatalog) -> Iterator[IcebergCatalog]:
    with ExitStack() as held:
        held.callback(catalog.close)
        yield catalog
        held.pop_all()
