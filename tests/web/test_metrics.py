"""`/metrics` says what the status says, in numbers that Prometheus may rely on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import headwater
from headwater.change import Lsn, TableName
from headwater.errors import Unreachable
from headwater.lake.counts import Counts
from headwater.lake.maintenance import Chores
from headwater.state import State
from headwater.state.deliveries import DeliveryRow, Phases, Work
from headwater.state.transitions import Copied, CopyBegun, Failed, RecopyRequested
from headwater.status import GroupStatus, RouteStatus, Status
from headwater.web.exposition.metric import Kind
from headwater.web.exposition.overall import failures
from headwater.web.exposition.routes import SHOWN_DESTINATIONS
from headwater.web.metrics import METRICS, Metrics
from tests.captured_group import until
from tests.routed import RoutedShop
from tests.web.looks import Group, Looks, everything
from tests.web.served import Served

ODD = r'public."we""ird\ {x=""1""}"'


class Scraped:
    """What Prometheus has after a scrape."""

    def __init__(self, metrics: Metrics) -> None:
        body, self.content_type = metrics.exposition("text/plain")
        self.text = body.decode()
        self.families = {each.name: each for each in text_string_to_metric_families(self.text)}
        self._samples = [each for family in self.families.values() for each in family.samples]

    def all(self, name: str, **labels: str) -> list[float]:
        found = (each for each in self._samples if each.name == name and labels.items() <= each.labels.items())
        return [each.value for each in found]

    def one(self, name: str, **labels: str) -> float:
        (value,) = self.all(name, **labels)
        return value

    def labels(self, name: str) -> list[dict[str, str]]:
        return [each.labels for each in self._samples if each.name == name]


@pytest.fixture
def group(database: str, tmp_path: Path) -> Iterator[Group]:
    with closing(Group(database, tmp_path, "public.orders", "public.quiet")) as made:
        yield made


@pytest.fixture
def looks(group: Group) -> Looks:
    return Looks(group.config)


def delivery(id: int = 1, **changes: object) -> DeliveryRow:
    phases = Phases(wait=1.0, fold=0.2, locate=0.1, write=0.3, commit=0.05)
    at = datetime.now(UTC)
    row = DeliveryRow(id, "g", at, Lsn(100), 7, 120, 2, 60, 30, 10, 4096, 1.7, phases, (1, 2))
    return replace(row, **changes)  # type: ignore[arg-type]


def copied(group: Group, table: str, rows: int) -> None:
    """As a copy of a table ends."""
    oid = group.oid(table)
    group.state.record("g", oid, CopyBegun(group.end()))
    group.state.record_progress("g", oid, 0, rows)
    group.state.note_counts("g", {oid: Counts(copied=rows)})
    group.state.record("g", oid, Copied(group.end()))


def the(status: Status) -> GroupStatus:
    (group,) = status.groups
    return group


def test_before_the_state_has_answered_it_is_said_so_and_the_rest_is_absent(looks: Looks) -> None:
    scraped = Scraped(Metrics(looks))
    assert scraped.one("headwater_state_up") == scraped.one("headwater_ready") == 0
    assert scraped.one("headwater_build_info", version=headwater.__version__) == 1
    assert scraped.all("headwater_source_up") == []
    assert scraped.one("process_resident_memory_bytes") > 0


def test_a_group_says_what_its_status_says(group: Group, looks: Looks) -> None:
    copied(group, "public.orders", 100)
    with group.running():
        until(lambda: the(looks.see()).state == "RUNNING")
        status = looks.see()
        scraped = Scraped(Metrics(looks))
    now = the(status)
    assert scraped.one("headwater_state_up") == scraped.one("headwater_source_up") == 1
    assert scraped.one("headwater_group_lag_seconds", group="g") == now.lag_seconds
    assert scraped.one("headwater_slot_exists", group="g") == 1
    assert scraped.one("headwater_slot_wal_bytes", group="g") == now.wal_bytes
    assert scraped.one("headwater_log_max_bytes", group="g") == 1_000_000_000
    assert scraped.one("headwater_group_tables", state="CATCHUP") == scraped.one(
        "headwater_group_tables", state="PENDING"
    )
    assert scraped.one("headwater_stage_running", group="g", stage="capture") == 1
    assert scraped.one("headwater_source_lsn_bytes") == Lsn.parse(status.source_lsn or "").value
    assert scraped.all("headwater_slot_wal_limit_bytes") == []  # there is none
    assert (scraped.one("headwater_healthy"), scraped.one("headwater_group_enabled", group="g")) == (1, 1)
    looks.show(status, "g")
    assert Scraped(Metrics(looks)).one("headwater_group_enabled", group="g") == 0


def test_a_table_says_what_its_status_says(group: Group, looks: Looks) -> None:
    group.state.record("g", group.oid("public.orders"), CopyBegun(group.end()))
    group.state.record_progress("g", group.oid("public.orders"), 40, 100)
    looks.see()
    scraped = Scraped(Metrics(looks))
    orders = {"group": "g", "table": "public.orders"}
    assert scraped.one("headwater_table_copy_rows", **orders) == 40
    assert scraped.one("headwater_table_copy_expected_rows", **orders) == 100
    copied(group, "public.orders", 100)
    looks.see()
    scraped = Scraped(Metrics(looks))
    assert scraped.one("headwater_table_rows", **orders) == 100
    assert scraped.one("headwater_table_state", **orders, state="CATCHUP") == 1
    assert scraped.labels("headwater_table_state")[0]["state"] == "CATCHUP"
    assert scraped.all("headwater_table_copy_rows", **orders) == []
    info = {"lake": "main", "lake_table": "public.orders", "mode": "mirror"}
    assert scraped.one("headwater_table_info", **orders, **info) == 1


def test_a_counter_counts_on_when_the_state_counts_anew(group: Group, looks: Looks) -> None:
    copied(group, "public.orders", 100)
    oid, metrics = group.oid("public.orders"), Metrics(looks)
    labels = {"group": "g", "table": "public.orders"}
    seen = []

    def counted(counts: Counts) -> tuple[float, float]:
        group.state.note_counts("g", {oid: counts})
        looks.see()
        scraped = Scraped(metrics)
        inserted = scraped.one("headwater_table_changes_total", **labels, change="insert")
        seen.append(inserted)
        return inserted, scraped.one("headwater_table_copied_rows_total", **labels)

    assert counted(Counts(copied=100, inserted=50)) == (0, 0)  # what was there before does not count
    assert counted(Counts(copied=100, inserted=80)) == (30, 0)
    group.state.record_progress("g", oid, 0, 130)  # it is copied again
    assert counted(Counts(copied=60)) == (30, 0)
    assert counted(Counts(copied=130, inserted=5)) == (35, 70)
    assert seen == sorted(seen)


def test_changes_are_counted_as_the_log_gets_them(group: Group, looks: Looks) -> None:
    metrics = Metrics(looks)
    for total in (100, 130):
        group.state.query("UPDATE headwater.groups SET captured_changes = %s RETURNING 1", (total,))
        looks.see()
        counted = Scraped(metrics).one("headwater_group_captured_changes_total", group="g")
    assert counted == 30


def test_counters_stand_still_while_the_state_does_not_answer(group: Group, looks: Looks) -> None:
    metrics, oid = Metrics(looks), group.oid("public.orders")
    looks.see()
    Scraped(metrics)
    group.state.note_counts("g", {oid: Counts(inserted=5)})
    looks.see()
    before = Scraped(metrics)
    looks.lose(Unreachable("the state is away"))
    looks.deliver(delivery())
    scraped = Scraped(metrics)
    assert scraped.one("headwater_state_up") == 0
    name = "headwater_table_changes_total"
    assert scraped.all(name) == before.all(name)
    assert max(scraped.all(name)) == 5
    assert scraped.one("headwater_deliveries_total", group="g") == 1
    assert scraped.all("headwater_table_rows") == scraped.all("headwater_group_lag_seconds") == []


def test_a_delivery_is_counted_once_with_its_phases(looks: Looks) -> None:
    metrics = Metrics(looks)
    looks.see()
    assert Scraped(metrics).one("headwater_deliveries_total", group="g") == 0
    looks.deliver(delivery(1), delivery(2, changes=5000))
    looks.deliver(delivery(3))
    scraped = Scraped(metrics)
    assert scraped.one("headwater_deliveries_total", group="g") == 3
    assert scraped.one("headwater_delivery_read_changes_total", group="g") == 5240
    assert scraped.one("headwater_delivery_changes_total", group="g", change="update") == 90
    assert scraped.one("headwater_delivery_phase_seconds_sum", group="g", phase="fold") == pytest.approx(0.6)
    assert scraped.one("headwater_delivery_duration_seconds_sum", group="g") == pytest.approx(3 * 0.65)
    assert scraped.one("headwater_delivery_duration_seconds_bucket", group="g", le="0.5") == 0
    assert scraped.one("headwater_delivery_size_changes_bucket", group="g", le="1000.0") == 2
    assert scraped.one("headwater_delivery_lag_seconds_count", group="g") == 3
    assert Scraped(metrics).one("headwater_deliveries_total", group="g") == 3


def test_an_odd_name_of_a_table_stays_one_label(database: str, tmp_path: Path) -> None:
    with closing(Group(database, tmp_path, ODD, 'public."two\nlines"', 'public."<script>"')) as group:
        looks = Looks(group.config)
        status = looks.see()
        scraped = Scraped(Metrics(looks))
    names = {each.table for each in the(status).tables}
    assert len(names) == 3
    assert {each["table"] for each in scraped.labels("headwater_table_rows")} == names


def test_a_table_of_the_same_name_as_one_that_was_removed_is_the_one_that_is_shown(looks: Looks) -> None:
    status = looks.see()
    (orders, quiet) = the(status).tables
    removed = replace(orders, state="REMOVED", rows=7)
    for tables in ((removed, orders, quiet), (orders, removed, quiet)):
        looks.show(replace(status, groups=(replace(the(status), tables=tables),)))
        scraped = Scraped(Metrics(looks))
        assert scraped.one("headwater_table_state", table="public.orders", state="PENDING") == 1
        assert scraped.all("headwater_table_state", table="public.orders", state="REMOVED") == []


def test_each_failed_attempt_of_a_table_is_an_error_of_its_kind(group: Group, looks: Looks) -> None:
    metrics, oid = Metrics(looks), group.oid("public.orders")
    looks.see()
    Scraped(metrics)
    for attempt in (1, 2):
        group.state.record("g", oid, Failed("disk full", datetime.now(UTC) + timedelta(minutes=attempt)))
        status = looks.see()
        scraped = Scraped(metrics)
        assert scraped.one("headwater_errors_total", kind="table") == attempt
        assert Scraped(metrics).one("headwater_errors_total", kind="table") == attempt  # the same one again
        assert scraped.one("headwater_problems", kind="table") == 1
        assert scraped.one("headwater_table_error", table="public.orders") == 1
        assert scraped.one("headwater_table_retry_timestamp_seconds") > time.time()
        assert scraped.one("headwater_healthy") == 0
        group.state.record("g", oid, RecopyRequested("again"))
    assert {each.kind for each in failures(status)} == {"capture", "delivery", "table"}
    assert scraped.one("headwater_errors_total", kind="log") == 0


def test_an_error_that_comes_and_goes_between_two_scrapes_is_counted(group: Group, looks: Looks) -> None:
    metrics, oid = Metrics(looks), group.oid("public.orders")
    looks.see()
    assert Scraped(metrics).one("headwater_errors_total", kind="table") == 0
    group.state.record("g", oid, Failed("disk full", datetime.now(UTC) + timedelta(minutes=1)))
    group.state.note_counts("g", {oid: Counts(inserted=7)})
    looks.see()
    group.state.record("g", oid, RecopyRequested("again"))
    group.state.note_counts("g", {oid: Counts(inserted=2)})  # it counts anew
    looks.see()
    scraped = Scraped(metrics)
    assert scraped.one("headwater_errors_total", kind="table") == 1
    assert scraped.one("headwater_table_changes_total", table="public.orders", change="insert") == 7


def test_what_is_wrong_is_what_the_status_says_is_wrong(looks: Looks) -> None:
    status = looks.see()
    running = replace(the(status).capture, state="RUNNING", heartbeat_seconds=1.0)
    healthy = replace(the(status), state="RUNNING", capture=running, delivery=running)
    error = "no space left"
    broken = [
        replace(healthy, capture=replace(running, heartbeat_seconds=99.0)),
        replace(healthy, delivery=replace(running, error=error)),
        replace(healthy, slot_active=None),
        replace(healthy, wal_status="lost"),
        replace(healthy, wal_limit_bytes=100, wal_safe_bytes=10),
        replace(healthy, log_needed_bytes=2_000_000_000),
        replace(healthy, tables=(replace(healthy.tables[0], error=error),)),
        healthy,
    ]
    for each in broken:
        now = replace(status, groups=(each,))
        assert now.healthy == (not list(failures(now))) == (each is healthy)
    away = replace(status, groups=(healthy,), source_error="connection refused")
    assert [each.kind for each in failures(away)] == ["source"]


def test_what_maintenance_did_is_counted_when_it_was_done(group: Group, looks: Looks) -> None:
    metrics = Metrics(looks)
    for merged in (3, 4):
        name = TableName("public", "orders")
        group.state.record_maintained("g", name, Chores(merged_files=merged, merged_bytes=merged << 20))
        looks.see()
        scraped = Scraped(metrics)
        assert scraped.one("headwater_maintenance_merged_files_total", group="g") == (0 if merged == 3 else 4)
    assert Scraped(metrics).one("headwater_maintenance_runs_total", group="g") == 1
    assert scraped.one("headwater_table_maintained_timestamp_seconds") == pytest.approx(time.time(), abs=300)


def test_the_processes_of_this_host_are_measured_with_what_they_started(group: Group, looks: Looks) -> None:
    metrics = Metrics(looks)
    with group.running():
        until(lambda: the(looks.see()).state == "RUNNING")
        first, _ = Scraped(metrics), sum(range(2_000_000))
        scraped = Scraped(metrics)
    # Here both stages are this process, which delivery has last.
    labels = {"stage": "delivery", "program": "headwater"}
    assert scraped.one("headwater_process_resident_memory_bytes", **labels) > 10 << 20
    assert scraped.one("headwater_processes", **labels) == 1
    cpu = "headwater_process_cpu_seconds_total"
    assert scraped.one(cpu, **labels) >= first.one(cpu, **labels) == 0
    status = looks.see()
    elsewhere = replace(the(status).delivery, state="RUNNING", host="another", pid=os.getpid())
    looks.show(replace(status, groups=(replace(the(status), delivery=elsewhere),)))
    assert Scraped(metrics).all("headwater_processes", stage="delivery") == []


def test_of_many_destinations_the_most_urgent_have_series_and_the_rest_are_counted(
    database: str, tmp_path: Path
) -> None:
    with closing(RoutedShop(database, tmp_path)) as shop:
        values = [f"company {number:04d}" for number in range(1000)]
        shop.seeded(rows=3, values=values)
        shop.state.note_failed("by_company", "=company 0777", "disk full", shop.newest, datetime.now(UTC))
        shop.state.request_seed("by_company", ["=company 0500"], "its lake was replaced")
        shop.state.pause_destinations("by_company", ["=company 0001"])
        looks = Looks(shop.config)
        status = looks.see()
        metrics = Metrics(looks)
        scraped = Scraped(metrics)
        route = {"route": "by_company"}
        assert scraped.one("headwater_route_destinations", **route, status="error") == 1
        assert scraped.one("headwater_route_destinations", **route, status="healthy") == 997
        assert scraped.one("headwater_route_rows", **route) == 3000
        shown = scraped.labels("headwater_destination_status")
        assert [each["destination"] for each in shown[:3]] == ["company 0777", "company 0500", "company 0000"]
        assert len(shown) == SHOWN_DESTINATIONS == 100
        assert "company 0001" not in {each["destination"] for each in shown}  # it is paused by hand
        assert scraped.one("headwater_route_left_out_destinations", **route) == 900
        assert len(scraped.text.splitlines()) < 1200
        behind = replace(status, routes=tuple(_behind(each) for each in status.routes))
        looks.show(behind)
        assert Scraped(metrics).labels("headwater_destination_status") == shown  # by lag, all would be others
        shop.polled(**{"company 0002": Counts(inserted=5, deleted=1)})
        shop.state.note_failed("by_company", "=company 0777", "disk full", shop.newest, datetime.now(UTC))
        looks.see()
        scraped = Scraped(metrics)
        assert scraped.one("headwater_route_changes_total", **route, change="insert") == 5
        assert scraped.one("headwater_route_failed_attempts_total", **route) == 1
        assert scraped.one("headwater_errors_total", kind="destination") == 1
        shop.seeded(rows=10, values=["company 0002"])  # which counts anew
        looks.see()
        assert Scraped(metrics).one("headwater_route_changes_total", **route, change="insert") == 5


def _behind(route: RouteStatus) -> RouteStatus:
    """With lags of destinations that are well, the last by name furthest behind."""
    late = (replace(each, lag_seconds=float(number) / 1000) for number, each in enumerate(route.destinations))
    return replace(route, destinations=tuple(late))


KINDS: dict[Kind, str] = {"gauge": "gauge", "counter": "counter", "histogram": "histogram", "info": "gauge"}


def test_every_metric_of_the_list_is_exposed_as_it_is_listed_and_no_other(looks: Looks) -> None:
    status = looks.see()
    metrics = Metrics(looks)
    looks.deliver(delivery())
    looks.show(everything(status))
    scraped = Scraped(metrics)
    help_of, type_of = ({}, {})  # type: tuple[dict[str, str], dict[str, str]]
    for line in scraped.text.splitlines():
        if line.startswith("# "):
            _, what, name, text = line.split(" ", 3)
            (help_of if what == "HELP" else type_of)[name] = text
    listed = {each.name: each for each in METRICS}
    assert len(listed) == len({each.family for each in METRICS}) == len(METRICS)
    assert type_of == {name: KINDS[each.kind] for name, each in listed.items()}
    ours = [each for each in METRICS if each.name.startswith("headwater_")]
    assert all(help_of[each.name] == each.explanation for each in ours)
    for each in ours:
        sample = f"{each.name}_count" if each.kind == "histogram" else each.name
        assert {tuple(sorted(found)) for found in scraped.labels(sample)} == {tuple(sorted(each.labels))}, each.name


def test_prometheus_gets_what_a_real_delivery_did_and_only_with_the_token(site: Served, state: State) -> None:
    assert site.get("/metrics", Authorization="").status == 401
    answer = site.get("/metrics", Accept="text/plain")
    assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, "text/plain")
    assert 'headwater_deliveries_total{group="shop"} 0.0' in answer.body.decode().splitlines()
    work = Work(120, 4096, datetime.now(UTC), Phases(1.0, 0.2, 0.1, 0.3, 0.05), Counts(inserted=60), (1,))
    for _ in range(2):  # noted twice, it happened once
        state.record_delivery("shop", Lsn(100), 7, {1: Lsn(100)}, {1: Counts(inserted=60)}, work=work)
        site.look()
    lines = site.get("/metrics", Accept="text/plain").body.decode().splitlines()
    assert 'headwater_deliveries_total{group="shop"} 1.0' in lines
    assert 'headwater_delivery_phase_seconds_sum{group="shop",phase="write"} 0.3' in lines
    assert 'headwater_table_changes_total{change="insert",group="shop",table="public.orders"} 60.0' in lines
    newest = site.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert newest.headers["content-type"].startswith("application/openmetrics-text")
    assert newest.body.endswith(b"# EOF\n")
    assert site.post("/metrics").status == 405
