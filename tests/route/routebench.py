"""A source lake that DuckDB writes, a route on it, and the lakes of its destinations, read back by DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.change import TableName
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.finding import find_lake
from headwater.ducklake.url import PostgresUrl, parse_lake_url
from headwater.feed.source import Bound, SourceTable
from headwater.flow.lakesource import LakeSource
from headwater.flow.probing import Probes
from headwater.flow.routesource import RouteRules
from headwater.flow.routing import Destinations, OpenRoute, SeedMode, Turn, collect, follow
from headwater.lake.address import LakeAddress
from headwater.route.destinations import Routing
from headwater.route.lakes import PATIENCE, DestinationLake
from headwater.sink.ducklake.address import DuckLakeAddress
from headwater.state import State
from headwater.state.routes import DestinationRow, Found, RouteId, destination_id

__all__ = ["ALL", "INLINE_ROWS", "ORDERS", "RouteBench", "Row"]

Row = tuple[Any, ...]
ORDERS = TableName("main", "orders")
BY_TENANT = RouteId("by_tenant")
ALL = Bound(10**9, 10**12)
INLINE_ROWS = 10_000


@dataclass
class RouteBench:
    """`sql` writes the source through DuckDB; `turn` is one turn of the route; `shown` is what a tenant's lake has."""

    folder: Path
    spark: SparkSession
    state: State
    rules: RouteRules
    tenants: Sequence[str] = ("a", "b", "c")
    seed: SeedMode = "scan"
    most: Bound = ALL
    default: bool = False
    addresses: Mapping[str, LakeAddress] = field(default_factory=dict)
    table: TableName = ORDERS
    id: RouteId = BY_TENANT
    owner: str = "test"
    duck: duckdb.DuckDBPyConnection = field(init=False)
    probes: Probes = field(default_factory=Probes)
    patience: int = PATIENCE

    def __post_init__(self) -> None:
        self.url = f"sqlite:///{self.folder}/source.sqlite"
        self.data_path = str(self.folder / "source")
        self.attach()
        lake = find_lake(self.url, self.data_path)
        assert lake is not None
        self.lake = lake

    def attach(self) -> None:
        """Begin anew with DuckDB: an error may have ended its transaction, or all of it."""
        if hasattr(self, "duck"):
            self.duck.close()
        self.duck = connect(threads=1)
        attach(self.duck, parse_lake_url(self.url), "source", data_path=self.data_path)
        self.duck.execute("USE source")

    def close(self) -> None:
        self.lake.close()
        self.duck.close()

    # -- the source

    def sql(self, *queries: str) -> int:
        """Run statements on the source; return its newest snapshot."""
        for each in queries:
            self.duck.execute(each)
        return self.lake.snapshot().id

    def together(self, *queries: str) -> int:
        return self.sql("BEGIN", *queries, "COMMIT")

    def wanted(self, tenant: str | None, at: int | None = None, columns: str = "*") -> Counter[Row]:
        """The rows that a tenant should have; of the default, those of no tenant."""
        when = "" if at is None else f" AT (VERSION => {at})"
        known = ", ".join(f"'{each}'" for each in self.tenants)
        mine = f"tenant = '{tenant}'" if tenant is not None else f"tenant IS NULL OR tenant NOT IN ({known})"
        return Counter(self.duck.execute(f"SELECT {columns} FROM orders{when} WHERE {mine}").fetchall())

    # -- the route

    @property
    def route(self) -> OpenRoute:
        source = LakeSource(SourceTable(self.lake, self.table), self.rules, self.most)
        return OpenRoute(self.id, source, self.rules, self.seed, self.state, self.spark, self.probes)

    def address(self, tenant: str | None) -> LakeAddress:
        name = "rest" if tenant is None else f"tenant_{tenant}"
        found = self.addresses.get(name)
        return found or DuckLakeAddress(f"sqlite:///{self.folder}/{name}.sqlite", str(self.folder / name))

    @property
    def destinations(self) -> Destinations:
        values: list[str | None] = [*self.tenants, *([None] if self.default else [])]
        ids = [destination_id(each) for each in values]
        lakes = [self._lake(each) for each in values]
        found = [Found(id_, str(lake.address), lake.table) for id_, lake in zip(ids, lakes, strict=True)]
        self.state.ensure_destinations(self.id.name, found)
        mine = self.state.claim(self.id, ids, self.owner)
        routing = Routing.of(self.tenants, pa.string(), has_default=self.default)
        return Destinations(ids, lakes, routing, frozenset(mine))

    def _lake(self, tenant: str | None) -> DestinationLake:
        return DestinationLake(self.address(tenant), self.table, f"source/{self.id.name}/{tenant}", self.patience)

    def turn(self) -> Turn:
        return follow(self.route, self.destinations)

    def turns(self) -> None:
        """Until nothing is left to do."""
        for _ in range(20):
            turn = self.turn()
            if turn.caught_up and not (turn.landed or turn.seeded or turn.failed):
                return
        raise AssertionError("the route does not come to rest")

    def collect(self) -> int:
        return collect(self.route, self.destinations)

    def destination_rows(self) -> list[DestinationRow]:
        return self.state.destinations(self.id.name)

    def row(self, tenant: str | None) -> DestinationRow:
        return next(each for each in self.destination_rows() if each.value == tenant)

    def retry(self) -> None:
        """Waiting times are over."""
        now = datetime.now(UTC)
        with self.state.transaction() as connection:
            connection.execute("UPDATE headwater.destinations SET retry_at = %s WHERE retry_at IS NOT NULL", (now,))

    # -- the destinations

    def ask(self, tenant: str | None, query: str) -> list[Row]:
        """Ask a tenant's lake, which is called `lake` then."""
        address = self.address(tenant)
        with connect(threads=1) as con:
            if isinstance(address, DuckLakeAddress):
                attach(con, parse_lake_url(address.catalog), "lake", read_only=True)
            else:
                lake = address.queried()
                lake.prepare(con)
                lake.attach(con, "lake")
            con.execute("USE lake")
            return con.execute(query).fetchall()

    def files(self, tenant: str | None) -> int:
        """How many files with rows its lake has now."""
        ((count,),) = self.ask(tenant, f"SELECT count(*) FROM {self._metadata(tenant)}.ducklake_data_file")
        return int(count)

    def inlined(self, tenant: str | None) -> int:
        """How many rows its catalog holds, those that have ended included."""
        there = self._metadata(tenant)
        names = self.ask(tenant, f"SELECT table_name FROM {there}.ducklake_inlined_data_tables")
        return sum(int(self.ask(tenant, f"SELECT count(*) FROM {there}.{name}")[0][0]) for (name,) in names)

    def shown(self, tenant: str | None, columns: str = "*") -> Counter[Row]:
        return Counter(self.ask(tenant, f"SELECT {columns} FROM {self.table.schema}.{self.table.name}"))

    def snapshots(self, tenant: str | None) -> list[int]:
        """The snapshots in which the tenant's lake has the table."""
        found = self.ask(tenant, "SELECT snapshot_id FROM lake.snapshots() ORDER BY 1")
        tables = f"{self._metadata(tenant)}.ducklake_table"
        born = self.ask(tenant, f"SELECT min(begin_snapshot) FROM {tables} WHERE end_snapshot IS NULL")
        return [id_ for (id_,) in found if id_ >= born[0][0]]

    def _metadata(self, tenant: str | None) -> str:
        """The catalog of a tenant's lake, as DuckDB names it."""
        url = parse_lake_url(self.address(tenant).catalog)  # type: ignore[attr-defined]
        return f"__ducklake_metadata_lake.{url.schema if isinstance(url, PostgresUrl) else 'main'}"

    def check(self) -> None:
        """Every destination holds exactly its rows."""
        for tenant in (*self.tenants, *([None] if self.default else [])):
            assert self.shown(tenant) == self.wanted(tenant), f"tenant {tenant}"

    def check_no_leak(self) -> None:
        """No snapshot of a destination's lake has ever shown a row of another tenant."""
        for tenant in self.tenants:
            for snapshot in self.snapshots(tenant):
                found = self.ask(
                    tenant,
                    f"SELECT DISTINCT tenant FROM {self.table.schema}.{self.table.name} AT (VERSION => {snapshot})",
                )
                assert {each for (each,) in found} <= {tenant}, f"snapshot {snapshot} of {tenant}"


def opened(folder: Path, spark: SparkSession, state: State, **options: Any) -> RouteBench:
    """With `inline_rows`, a destination may have so many in its catalog; None: its rows go into files only."""
    rules = options.pop("rules", RouteRules("tenant", ("id",)))
    rules = replace(rules, inline_rows=options.pop("inline_rows", INLINE_ROWS))
    return RouteBench(folder, spark, state, rules, **options)
