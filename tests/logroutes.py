"""A route from a mirrored table under a test's own hands: the mirror's source to write to, turns to take, tenants."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from headwater.config import Config
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.flow.logsource import LogSource
from headwater.flow.routing import OpenRoute, Turn, follow, routing_type
from headwater.state.routes import DestinationRow, RouteId
from headwater.supervise.destinations import Finder
from headwater.supervise.sources import route_rules
from tests.mirror import Mirror

__all__ = ["LogRoute"]

TENANTS = ("a", "b", "c")


class LogRoute:
    """A route `r` of the mirror's group, by the column `tenant`, with a DuckLake for each of the tenants a, b and c."""

    def __init__(self, mirror: Mirror, table: str, **options: Any) -> None:
        self.mirror, self.table = mirror, table
        self._route = {
            "from": {"group": "g", "table": f"public.{table}"},
            "by": "tenant",
            "to": [{"value": each, "lake": each} for each in TENANTS],
            **options,
        }
        self.config = self._configured()
        self.open()

    def _configured(self) -> Config:
        """The mirror's own config, with the route."""
        lakes = {each: {"ducklake": f"sqlite:///{each}.sqlite", "data_path": f"./{each}"} for each in TENANTS}
        more = "".join(f"  {name}: {json.dumps(lake)}\n" for name, lake in lakes.items())
        text = self.mirror.file.read_text().replace("groups:\n", f"{more}groups:\n")
        file = self.mirror.folder / "routed.yaml"
        file.write_text(f"{text}routes: {json.dumps({'r': self._route})}\n")
        return Config.load(file, {})

    def open(self) -> None:
        """As a new process begins."""
        m, route = self.mirror.m, self.config.routes["r"]
        rules = route_rules(route)
        self.source = LogSource(m, route.source.table, rules, route.batch.rows)
        self.open_route = OpenRoute(RouteId("r"), self.source, rules, route.seed, m.state, m.spark)
        self._finder = Finder(self.config, {}, "r", m.state, self.source.id(), "test")

    def turn(self) -> Turn:
        """One turn of the route, wherever the mirror is."""
        return follow(self.open_route, self._finder.find(routing_type(self.open_route)))

    def sync(self) -> Turn:
        """Deliver everything committed so far to the mirror, then to the tenants."""
        self.mirror.sync()
        return self.settle()

    def settle(self) -> Turn:
        """Turns until there is nothing more to do."""
        turn = self.turn()
        while not turn.caught_up or any(
            row.reseed or row.behind for row in self.rows() if row.state not in ("ERRORED", "PAUSED")
        ):
            turn = self.turn()
        return turn

    def rows(self) -> list[DestinationRow]:
        return self.mirror.m.state.destinations("r")

    def ask(self, tenant: str, sql: str) -> list[tuple[Any, ...]]:
        """Ask a tenant's lake; the table is `t`."""
        with connect() as con:
            attach(con, parse_lake_url(self.config.ducklakes[tenant].catalog), "lake")
            return con.execute(sql.replace(" t", f" lake.public.{self.table}", 1)).fetchall()

    def assert_equal(self, columns: str = "*") -> None:
        """Each tenant has the rows of its value, and no other tenant's."""
        for tenant in TENANTS:
            ours = Counter(map(repr, self.ask(tenant, f"SELECT {columns} FROM t")))
            query = f"SELECT {columns} FROM public.{self.table} WHERE tenant = '{tenant}'"
            theirs = Counter(map(repr, self.mirror.rows_of(query)))
            assert ours == theirs, f"{tenant} has {list(ours - theirs)[:3]} too many, {list(theirs - ours)[:3]} too few"
