"""The promises about routes: how many destinations a second, and that each costs the same however many there are."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from bench.report import Row
from bench.rig import DUCKLAKE, Rig
from bench.scale import Scale
from bench.work import Database
from headwater.config import Config
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.flow.routing import OpenRoute
from headwater.lake.template import filled
from headwater.sink.ducklake.querying import QueriedDuckLake
from headwater.state import State
from headwater.state.routes import RouteId
from headwater.supervise.instances import instance_name, owner_of
from headwater.supervise.opening import open_state
from headwater.supervise.sources import opened_source, route_rules
from headwater.supervise.turns import RouteTurns

__all__ = ["ROUTES"]

SEEDED, INSERTED, UPDATED, DELETED = 100, 70, 20, 10  # rows of each destination; the last three are one round
RATE, FLAT = 150, 1.1
CHECKED = 100  # destinations of a route: to attach a lake in PostgreSQL takes DuckDB a tenth of a second

_TABLE = "(id BIGINT, company VARCHAR, n INTEGER, amount INTEGER, note VARCHAR, score DOUBLE, placed TIMESTAMP)"
_ROWS = """
    SELECT c * 1000000 + n, 'c' || c, n, n % 50, 'order number ' || n || ' of company ' || c, n / 7,
           TIMESTAMP '2026-01-01' + to_seconds(c * 1000 + n)
    FROM range({companies}) AS _(c), range({first}, {last}) AS _(n)
"""
_SUMS = "SELECT company, count(*), sum(hash({columns})) FROM {table} GROUP BY company"
_COLUMNS = "id, company, n, amount, note, score, placed"


@dataclass
class _Fanned:
    """A lake that DuckDB writes, and a route from there to so many lakes: each turn is one that `run` would take."""

    rig: Rig
    database: Database
    catalog: str  # of a destination: with {folder}, {name} and {value}
    name: str
    count: int
    round: int = 0
    seconds: list[float] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._held = ExitStack()
        self._folder = self.rig.folder / self.name
        self._folder.mkdir()
        self._config = self._configured()
        self._source = self._held.enter_context(connect())
        url = parse_lake_url(f"sqlite:///{self._folder}/lake.sqlite")
        attach(self._source, url, "lake", data_path=f"{self._folder}/lake")
        self._source.execute(f"USE lake; CREATE TABLE orders {_TABLE}")
        self._insert(0, SEEDED)
        self._turns = self._opened(self._held.enter_context(closing(open_state(self._config))))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()
        shutil.rmtree(self._folder)

    def seed(self) -> float:
        """Seconds that it takes to make the destinations with their first rows."""
        return self._timed()

    def poll(self) -> None:
        """A round of changes in one commit of the source, and how long it took from there into all destinations."""
        gone = UPDATED + self.round * DELETED
        self._source.execute("BEGIN")
        self._source.execute(f"UPDATE orders SET amount = amount + 1 WHERE n < {UPDATED}")
        self._source.execute(f"DELETE FROM orders WHERE n >= {gone} AND n < {gone + DELETED}")
        self._insert(SEEDED + self.round * INSERTED, INSERTED)
        self._source.execute("COMMIT")
        self.round += 1
        self.seconds.append(self._timed())

    def check(self) -> None:
        """AssertionError if a destination does not hold exactly its rows of the source; of many, some are looked at."""
        wanted = {company: sums for company, *sums in sorted(self._source.execute(_sums("orders")).fetchall())}
        assert len(wanted) == self.count
        with connect() as con:
            for company, sums in list(wanted.items())[:: -(-self.count // CHECKED)]:
                lake = QueriedDuckLake(parse_lake_url(filled(self._template, company)), None)
                lake.prepare(con)
                lake.attach(con, "tenant")
                found = con.execute(_sums("tenant.main.orders")).fetchall()
                assert found == [(company, *sums)], f"{company}: the source has {sums}, its lake {found}"
                con.execute("DETACH tenant")

    @property
    def _template(self) -> str:
        return self.catalog.format(folder=self._folder, name=self.name, value="{value}")

    def _configured(self) -> Config:
        file = self._folder / "headwater.yaml"
        file.write_text(
            f"source: {self.database.url}\nlog: ./log\n"
            f"lakes: {{main: {DUCKLAKE}}}\n"
            f"routes:\n  {self.name}:\n"
            "    {from: {lake: main, table: main.orders}, by: company, keys: [id], to: {lake_template:"
            f' {{ducklake: "{self._template}", data_path: "./{{value}}"}}, allow: ["c*"], limit: {self.count}}}}}\n'
        )
        return Config.load(file, {})

    def _opened(self, state: State) -> RouteTurns:
        route, id_ = self._config.routes[self.name], RouteId(self.name, instance_name(self._config))
        source = self._held.enter_context(opened_source(self._config, {}, self.name))
        lock = self._held.enter_context(state.lock(owner_of(id_)))
        opened = OpenRoute(id_, source, route_rules(route), route.seed, state, self.rig.spark)
        return RouteTurns(self._config, {}, opened, lock.name)

    def _insert(self, first: int, count: int) -> None:
        rows = _ROWS.format(companies=self.count, first=first, last=first + count)
        self._source.execute(f"INSERT INTO orders {rows}")

    def _timed(self) -> float:
        begun = time.perf_counter()
        assert self._turns.take(), "a turn has left something to do"
        return time.perf_counter() - begun


def _sums(table: str) -> str:
    return _SUMS.format(columns=_COLUMNS, table=table)


def _routes(rig: Rig, scale: Scale, *, kind: str, where: str, catalog: Callable[[Database], str]) -> Iterator[Row]:
    """Rounds of changes to many destinations, and to a tenth of them, in turn."""
    most, fewest = scale.destinations, scale.destinations // 10
    with rig.database(f"routes_{kind}") as database:
        fanned = partial(_Fanned, rig, database, catalog(database))
        with fanned(f"few_{kind}", fewest) as few, fanned(f"many_{kind}", most) as many:
            few.seed()
            seeding = many.seed()
            for _ in range(1 + scale.repeats):
                few.poll()
                many.poll()
            many.check()
            few.check()
    del many.seconds[0], few.seconds[0]  # steady state: the first one is warm-up
    rates = tuple(most / seconds for seconds in many.seconds)
    changes = INSERTED + UPDATED + DELETED
    what = f"{most:,} destinations x {changes} changes, {where}"
    note = (
        f"{statistics.median(many.seconds):.2f} s from the source's commit; seeded {most / seeding:.0f} destinations/s"
    )
    yield Row(f"routes-{kind}", what, rates, RATE, unit="destinations/s", at_least=True, note=note)
    ours, theirs = (tuple(1000 * each / size for each in run.seconds) for run, size in ((many, most), (few, fewest)))
    against = f"{fewest:,} destinations, per destination"
    yield Row(f"routes-{kind}-flat", f"{what}, per destination", ours, FLAT, against, theirs, unit="ms")


def _in_files(_: Database) -> str:
    return "sqlite:///{folder}/{value}.sqlite"


def _in_schemas(database: Database) -> str:
    return f"{database.url}&schema={{name}}_{{value}}"


ROUTES: dict[tuple[str, ...], Callable[[Rig, Scale], Iterator[Row]]] = {
    ("routes-sqlite", "routes-sqlite-flat"): partial(
        _routes, kind="sqlite", where="a SQLite catalog each", catalog=_in_files
    ),
    ("routes-postgres", "routes-postgres-flat"): partial(
        _routes, kind="postgres", where="a schema each of one PostgreSQL", catalog=_in_schemas
    ),
}
