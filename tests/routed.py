"""A table in a lake that DuckDB writes, a route from it, and what the state knows about the route."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from headwater.change import TableName
from headwater.commands.cli import cli
from headwater.config import Config
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.flow.routing import OpenRoute, Turn, follow, routing_type
from headwater.lake.counts import Counts
from headwater.state.routes import Arrival, Found, RouteId, destination_id
from headwater.status import DestinationStatus, RouteStatus, statuses_of_routes
from headwater.supervise.destinations import Finder
from headwater.supervise.instances import instance_name, owner_of
from headwater.supervise.opening import open_state
from headwater.supervise.sources import opened_source, route_rules

__all__ = ["RoutedShop"]

CONFIG = """
source: {source}
log: ./log
lakes:
  shop: {{ducklake: "sqlite:///shop.sqlite", data_path: ./shop}}
  acme: {{ducklake: "sqlite:///acme.sqlite", data_path: ./acme}}
  globex: {{ducklake: "sqlite:///globex.sqlite", data_path: ./globex}}
  rest: {{ducklake: "sqlite:///rest.sqlite", data_path: ./rest}}
routes:
  by_company:
    from: {{lake: shop, table: main.orders}}
    by: company
    keys: [id]
    to: [{{value: acme, lake: acme}}, {{value: globex, lake: globex}}]
    default: {{lake: rest}}
{more}
"""
VALUES = ("acme", "globex", None)


class RoutedShop:
    """`sql` changes the source lake, which is called `shop` there; the state is the database's."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.duck = connect(threads=1)
        self.configure()
        self.attach("shop", create=True)
        self.sql("CREATE TABLE shop.main.orders (id INTEGER, company VARCHAR, total DOUBLE)")
        self.state = open_state(self.config)

    def configure(self, more: str = "") -> None:
        self.file = self.folder / "headwater.yaml"
        self.file.write_text(CONFIG.format(source=self.url, more=more))
        self.config = Config.load(self.file, {})

    def rewrite(self, *changes: tuple[str, str]) -> None:
        """Put other texts into the config."""
        text = self.file.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.file.write_text(text)
        self.config = Config.load(self.file, {})

    def attach(self, lake: str, *, create: bool = False) -> str:
        """Make a lake visible to DuckDB under its own name, as it is now."""
        place = {"data_path": str(self.folder / lake)} if create else {}
        attach(self.duck, parse_lake_url(f"sqlite:///{self.folder}/{lake}.sqlite"), lake, **place)  # type: ignore[arg-type]
        return lake

    def sql(self, *queries: str) -> list[tuple[Any, ...]]:
        for each in queries:
            found = self.duck.execute(each)
        return found.fetchall()

    @property
    def newest(self) -> int:
        """The source's newest snapshot."""
        ((id_,),) = self.sql("SELECT max(snapshot_id) FROM shop.snapshots()")
        return int(id_)

    def close(self) -> None:
        self.state.close()
        self.duck.close()

    def cli(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, ["-c", str(self.file), *arguments])

    # -- as the process that delivers it writes the state

    @property
    def id(self) -> RouteId:
        return RouteId("by_company", instance_name(self.config))

    @property
    def owner(self) -> str:
        return owner_of(self.id)

    def found(self, values: Iterable[str | None] = VALUES) -> list[str]:
        """Have destinations been found, and claimed by this instance; return their ids."""
        found = [Found(destination_id(each), f"sqlite:///{each}", TableName("main", "orders")) for each in values]
        self.state.ensure_destinations("by_company", found)
        ids = [each.id for each in found]
        self.state.ensure_route(self.id, "the lake", 1)
        self.state.claim(self.id, ids, self.owner)
        return ids

    def seeded(self, rows: int = 100, values: Iterable[str | None] = VALUES) -> None:
        """Have destinations been seeded at the newest snapshot."""
        self.state.note_seeded(self.id, self.newest, dict.fromkeys(self.found(values), rows))

    def polled(self, **counts: Counts) -> None:
        """Has a poll brought the route to the newest snapshot."""
        arrivals = [Arrival(f"={value}", self.newest, each) for value, each in counts.items()]
        self.state.end_poll(self.id, uuid.uuid4().hex, self.newest, arrivals, {})

    # -- as that process does it

    def turn(self, spark: SparkSession) -> Turn:
        """One turn of the route."""
        name = "by_company"
        with opened_source(self.config, {}, name) as source:
            rules, seed = route_rules(self.config.routes[name]), self.config.routes[name].seed
            route = OpenRoute(self.id, source, rules, seed, self.state, spark)
            finder = Finder(self.config, {}, name, self.state, source.id(), self.owner)
            return follow(route, finder.find(routing_type(route)))

    def turns(self, spark: SparkSession) -> None:
        """Until the destinations have everything, or fail."""
        while (turn := self.turn(spark)).seeded or turn.landed or not turn.caught_up:
            pass

    # -- as people see it

    def status(self) -> RouteStatus:
        (route,) = statuses_of_routes(self.config, {})
        return route

    def destinations(self) -> dict[str, DestinationStatus]:
        return {str(each): each for each in self.status().destinations}
