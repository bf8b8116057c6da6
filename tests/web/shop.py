"""A shop that is mirrored, as its state shows it: a real source and a real log, without Spark and without a lake."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headwater.change import Lsn, TableName
from headwater.lake.counts import Counts
from headwater.state import State
from headwater.state.deliveries import Phases, Work
from headwater.state.processes import announced
from headwater.state.routes import Found, RouteId, destination_id
from headwater.state.transitions import CaughtUp, Copied, CopyBegun, Failed, Paused
from headwater.supervise.instances import owner_of
from tests.captured_group import Group, execute

__all__ = ["DESTINATIONS", "FAULT", "FEW", "PAYMENTS", "SCRIPT", "Shop", "written_config"]

SCRIPT = "<script>alert(1)</script>"
FAULT = "column 'amount' became text, which the lake cannot follow"
DESTINATIONS, FEW = 1000, 10

_STREAMING = {  # rows that were copied
    TableName("public", "orders"): 1_204_518,
    TableName("public", "order_items"): 3_561_902,
    TableName("public", "customers"): 84_310,
    TableName("public", "products"): 5_412,
    TableName("public", "shipments"): 1_130_044,
    TableName("public", "inventory"): 21_648,
    TableName("public", "prices"): 64_210,
    TableName("public", "audit"): 7_714_265,
    TableName("public", "carts"): 322_871,
}
_SCRIPT = TableName("public", SCRIPT)
PAYMENTS, _SESSIONS, _REVIEWS = (TableName("public", name) for name in ("payments", "sessions", "reviews"))
_PHASES = (
    Phases(0.9, 0.08, 0.05, 0.21, 0.04),
    Phases(1.2, 0.11, 0.16, 0.34, 0.05),
    Phases(0.6, 0.07, 0.02, 0.12, 0.03),
    Phases(1.4, 0.12, 0.21, 0.48, 0.06),
)

_CONFIG = """\
source: {source!r}
log: {{path: ./log, max_bytes: 2GB}}
lakes:
  main: {lake}
  acme: {{ducklake: "sqlite:///acme.sqlite", data_path: ./acme}}
  few: {{ducklake: "sqlite:///few.sqlite", data_path: ./few}}
groups:
  shop: {{lake: main, tables: [public.orders]}}
routes:
  by_company: {route}
{more}server: {server}
"""
_ROUTE = "{{from: {{group: shop, table: public.orders}}, by: company, keys: [id], to: [{{value: acme, lake: {}}}]}}"


_DUCKLAKE = '{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}'


def written_config(folder: Path, database: str, server: str, lake: str = _DUCKLAKE, *, few: bool = False) -> Path:
    """With `few`, a second route is in it: it has FEW destinations."""
    file = folder / "headwater.yaml"
    more = f"  by_few: {_ROUTE.format('few')}\n" if few else ""
    parts = {"lake": lake, "route": _ROUTE.format("acme"), "more": more}
    file.write_text(_CONFIG.format(source=database, server=server, **parts))
    return file


class Shop:
    """What `headwater run` would have made of it, step by step."""

    def __init__(self, database: str, folder: Path, *, troubled: bool = True) -> None:
        self.database, self.folder, self._troubled = database, folder, troubled
        self.group = Group.opened(database, folder / "log")
        self.state = self.group.state
        self.oids: dict[TableName, int] = {}
        self._delivered = 0
        self._counts: dict[int, Counts] = {}  # in total, by table

    @classmethod
    @contextmanager
    def opened(cls, database: str, folder: Path, *, troubled: bool = True) -> Iterator[Shop]:
        """With its tables and destinations, while its processes run; `troubled`: some of them are not well."""
        shop = cls(database, folder, troubled=troubled)
        with closing(shop.state), ExitStack() as running:
            shop._make_tables()
            shop._make_route()
            shop._make_small_route()
            running.enter_context(shop.group.capturing())
            running.enter_context(shop._announced())
            yield shop

    @contextmanager
    def _announced(self) -> Iterator[None]:
        """Hold the locks by which others know that the processes run."""
        with closing(State.connect(self.database)) as state, ExitStack() as held:
            held.enter_context(state.lock("run:shop"))
            held.enter_context(state.lock(owner_of(RouteId("by_company", "all"))))
            for part, name in (("capture", "capture:shop"), ("delivery", "deliver:shop")):
                lock = held.enter_context(state.lock(name))
                held.enter_context(announced(state, "shop", part, lock))  # type: ignore[arg-type]
            yield

    def _make_tables(self) -> None:
        names = [*_STREAMING, *([_SCRIPT] if self._troubled else []), PAYMENTS, _SESSIONS, _REVIEWS]
        columns = "id bigint PRIMARY KEY, company text NOT NULL, placed timestamptz DEFAULT now(), amount numeric(12,2)"
        execute(self.database, *(f'CREATE TABLE public."{each.name}" ({columns})' for each in names))
        at = self.group.prepare(*map(str, names))
        for name, oid in self.state.query("SELECT relname::text, oid::bigint FROM pg_class WHERE relkind = 'r'"):
            self.oids[TableName("public", name)] = oid
        for each in names:
            self.state.ensure_table("shop", self.oids[each], each, each)
            self.state.record("shop", self.oids[each], CopyBegun(at))
        for each, rows in _STREAMING.items():
            self._copied(each, at, rows)
        for each in (PAYMENTS, _SESSIONS):
            self._copied(each, at, 402_117)
        if self._troubled:
            self._copied(_SCRIPT, at, 7)
            self.fail(PAYMENTS)
            self.state.record("shop", self.oids[_SESSIONS], Paused("paused by hand"))
            self.state.record_progress("shop", self.oids[_REVIEWS], 410_000, 980_000)
            self._note(TableName("public", "products"), Counts(5_412, quarantined=3))
        else:
            self._copied(_REVIEWS, at, 980_412)

    def _copied(self, table: TableName, at: Lsn, rows: int) -> None:
        self.state.record("shop", self.oids[table], Copied(at))
        self._note(table, Counts(rows))
        self.state.record("shop", self.oids[table], CaughtUp())

    def _note(self, table: TableName, counts: Counts) -> None:
        self._counts[self.oids[table]] = counts
        self.state.note_counts("shop", {self.oids[table]: counts})

    def fail(self, table: TableName) -> None:
        hint = "copy it again: `headwater table resync public.payments`"
        failed = Failed(f"{FAULT}\nhint: {hint}", datetime.now(UTC) + timedelta(hours=1))
        self.state.record("shop", self.oids[table], failed)

    def _make_route(self) -> None:
        """A route with many destinations, some of which are not well."""
        route = RouteId("by_company", "all")
        table = TableName("main", "orders")
        ids = [destination_id(f"company-{n:04}") for n in range(DESTINATIONS - 1)] + [destination_id("initech")]
        self.state.ensure_destinations("by_company", [Found(each, "sqlite:///tenant.sqlite", table) for each in ids])
        self.state.ensure_route(route, "the log", self.oids[TableName("public", "orders")])
        self.state.claim(route, ids, owner_of(route))
        end = self.group.log.end().value
        self.state.note_seeded(route, end, {each: 40 + 7 * n for n, each in enumerate(ids)})
        if self._troubled:
            later = datetime.now(UTC) + timedelta(minutes=20)
            self.state.note_failed("by_company", destination_id("initech"), "the catalog does not answer", end, later)
        self.state.pause_destinations("by_company", ids[20:24])

    def _make_small_route(self) -> None:
        """Another one, which only some configs have."""
        route = RouteId("by_few", "all")
        ids = [destination_id(f"company-{n:04}") for n in range(FEW)]
        self.state.ensure_destinations(route.name, [Found(each, "few", TableName("main", "orders")) for each in ids])
        self.state.ensure_route(route, "the log", self.oids[TableName("public", "orders")])
        self.state.note_seeded(route, self.group.log.end().value, dict.fromkeys(ids, 40))

    def change(self, rows: int = 20) -> None:
        """Some work of the shop, in the log when this ends."""
        names = [each.name for each in _STREAMING][: 1 + self._delivered % 5]
        insert = (
            'INSERT INTO public."{0}" SELECT (SELECT coalesce(max(id), 0) FROM public."{0}") + i, \'acme\', now(), i'
            " FROM generate_series(1, {1}) i"
        )
        execute(self.database, *(insert.format(name, rows) for name in names))
        self.group.settle()

    def deliver(self, rows: int = 20) -> None:
        """Have everything that is in the log been delivered, as a commit would note it."""
        end, n = self.group.log.end(), self._delivered
        others = [_SCRIPT] if self._troubled else [PAYMENTS, _SESSIONS, _REVIEWS]
        followed = [self.oids[each] for each in [*_STREAMING, *others]]
        changed = followed[: 1 + n % 5]
        noted = Work(
            changes=rows * len(changed),
            bytes=rows * len(changed) * 61,
            oldest=datetime.now(UTC) - timedelta(seconds=1.2),
            phases=_PHASES[n % len(_PHASES)],
            counts=Counts(0, rows * len(changed), 0, 0),
            oids=tuple(changed),
        )
        self._counts |= {oid: self._counts[oid] + Counts(inserted=rows) for oid in changed}
        counts = {oid: self._counts[oid] for oid in changed}
        self.state.record_delivery("shop", end, 4000 + n, dict.fromkeys(followed, end), counts, work=noted)
        self.state.end_poll(RouteId("by_company", "all"), f"poll {n}", end.value, (), {})
        self._delivered += 1

    @contextmanager
    def working(self, rows: int, age: float) -> Iterator[None]:
        """Changes and deliveries go on, in a thread; each change waits for some seconds in the log."""
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                self.change(rows)
                stop.wait(age)
                self.deliver(rows)

        thread = threading.Thread(target=work, name="shop")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)
