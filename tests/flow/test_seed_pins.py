"""What a seed reads does not expire meanwhile, though nothing would be next to go but that."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.routed import RoutedShop

from headwater.flow.lakesource import LakeSource
from headwater.flow.routesource import SourceAt
from headwater.flow.routing import OpenRoute, follow, routing_type
from headwater.route.units import EventUnit
from headwater.state import State
from headwater.supervise.destinations import Finder
from headwater.supervise.sources import opened_source, route_rules


@dataclass(frozen=True)
class Watched(LakeSource):
    """Notes what is pinned when all rows are asked for."""

    state: State
    pinned: list[set[int]]

    def scan(self, at: SourceAt) -> Sequence[EventUnit]:
        self.pinned.append(self.state.pins(self.id()))
        return LakeSource.scan(self, at)


@pytest.mark.parametrize("seed", ["scan", "earliest"])
def test_a_seed_pins_the_snapshot_that_it_reads(seed: str, database: str, spark: SparkSession, tmp_path: Path) -> None:
    with closing(RoutedShop(database, tmp_path)) as shop:
        shop.sql("INSERT INTO shop.main.orders VALUES (1, 'acme', 1)")
        shop.sql("UPDATE shop.main.orders SET total = 2")
        with opened_source(shop.config, {}, "by_company") as found:
            assert isinstance(found, LakeSource)
            source = Watched(found.table, found.rules, found.most, shop.state, [])
            rules = route_rules(shop.config.routes["by_company"])
            route = OpenRoute(shop.id, source, rules, seed, shop.state, spark)  # type: ignore[arg-type]
            finder = Finder(shop.config, {}, "by_company", shop.state, source.id(), shop.owner)
            expected = source.oldest() if seed == "earliest" else source.newest()
            follow(route, finder.find(routing_type(route)))
            assert source.pinned == [{expected.position.value}]
            assert shop.state.pins(source.id()) == set()
