"""The live page of a run: what it shows of a status."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from headwater.change import Lsn
from headwater.commands.runview import Rates, RunLook, page
from headwater.state import DeliveryRow, Phases
from headwater.status import GroupStatus, InstanceStatus, PartStatus, RouteStatus, Status, TableStatus

RUNNING = PartStatus(state="RUNNING", lag_bytes=0, lag_seconds=0.0, error=None)
DELIVERY = DeliveryRow(
    *(1, "shop", datetime.now(UTC), Lsn(0x1A2B), 42, 12, 2, 1_005, 3, 1, 4096, 1.25),
    phases=Phases(0.5, 0.1, 0.2, 0.3, 0.05),
    oids=(7, 8),
)


def table(name: str, state: str = "STREAMING", **other: Any) -> TableStatus:
    known: dict[str, Any] = dict.fromkeys(
        ("copy_total", "position", "lag_bytes", "resync", "error", "retry_at"),
    )
    known |= {"inserted": 0, "updated": 0, "deleted": 0, "copied_rows": 0, "quarantined": 0, "lag_seconds": 1.25}
    names = {"group": "shop", "table": name, "lake": "main", "lake_table": name}
    return TableStatus(**known | names | {"state": state, "rows": 1_234, "mode": "mirror"} | other)


def group(*tables: TableStatus, **other: Any) -> GroupStatus:
    known: dict[str, Any] = {
        "name": "shop",
        "lake": "main",
        "state": "RUNNING",
        "capture": RUNNING,
        "delivery": RUNNING,
    }
    known |= {"lag_bytes": 12_345, "lag_seconds": 1.25, "delivered_lsn": "0/1A2B", "snapshot_id": 42}
    return GroupStatus(tables=tables, **known | other)


def status(*groups: GroupStatus, routes: tuple[RouteStatus, ...] = ()) -> Status:
    return Status("0/1A2C", None, groups, (), routes, ("http://127.0.0.1:8080/",))


def look(*groups: GroupStatus, **other: Any) -> RunLook:
    known: dict[str, Any] = {"elapsed": 75.4, "log": "headwater.log", "status": status(*groups)}
    return RunLook(**known | other)


def shown(seen: RunLook, height: int = 40, width: int = 100) -> str:
    console = Console(width=width, height=height)
    with console.capture() as captured:
        console.print(page(seen, height))
    return captured.get()


def test_the_page_shows_groups_tables_deliveries_and_where_the_log_is() -> None:
    seen = look(
        group(table("public.orders"), table("public.items", lag_seconds=90.0)),
        rates={("shop", "public.orders"): 312.4},
        deliveries=[DELIVERY],
        said="started delivery",
    )
    said = shown(seen)
    for fact in ("mirroring · 01:15", "http://127.0.0.1:8080/", "WAL at 0/1A2C", "shop → main: RUNNING", "snapshot 42"):
        assert fact in said
    for fact in ("public.orders", "1,234", "312", "1.2 s", "1 min", "+1,005 ~3 -1 in 2 tables", "0/1A2B", "0.65 s"):
        assert fact in said
    assert "started delivery" in said
    assert "log: headwater.log" in said


def test_before_anything_is_known_it_says_what_the_supervisor_does() -> None:
    said = shown(RunLook(0.3, "headwater.log", "checking the source and the lakes"))
    assert "starting · 00:00" in said
    assert "checking the source and the lakes" in said


def test_problems_are_counted_in_the_title_and_stand_above_the_tables() -> None:
    broken = table("public.broken", "ERRORED", error="cannot read [bold]it[/bold]\nhint: mend it")
    said = shown(look(group(table("public.orders"), broken)))
    assert "headwater · 1 problem" in said
    assert "table public.broken is ERRORED: cannot read [bold]it[/bold]" in said
    assert said.index("is ERRORED") < said.index("public.orders")
    assert said.index("│  public.broken") < said.index("│  public.orders")  # what needs care comes first


def test_a_group_that_starts_is_no_problem_yet() -> None:
    starting = PartStatus(state="STARTING", lag_bytes=None, lag_seconds=None, error=None)
    seen = look(group(table("public.orders"), state="STARTING", delivery=starting))
    assert seen.problems == []
    assert seen.headline == "starting"


def test_a_run_that_stops_says_so() -> None:
    stopped = PartStatus(state="STOPPED", lag_bytes=None, lag_seconds=None, error=None)
    assert look(group(capture=stopped, state="STOPPED"), stopping=True).headline == "stopping"


def test_what_cannot_be_asked_is_said_beside_what_was_known_last() -> None:
    seen = replace(look(group(table("public.orders"))), problem="cannot reach 'shop' on localhost")
    assert "1 problem" in shown(seen)
    assert "cannot reach 'shop' on localhost" in shown(seen)
    assert "public.orders" in shown(seen)


def test_a_copy_shows_how_far_it_is() -> None:
    said = shown(look(group(table("public.items", "SNAPSHOT", copied_rows=600, copy_total=1_000))))
    assert "SNAPSHOT 60%" in said
    assert " 600 " in said


@pytest.mark.parametrize("height", [24, 40, 60])
def test_a_thousand_tables_fit_and_those_in_trouble_are_among_the_shown(height: int) -> None:
    many = [table(f"public.t{number}") for number in range(1_000)] + [table("public.broken", "ERRORED", error="no")]
    said = shown(look(group(*many), deliveries=[DELIVERY] * 5), height)
    assert len(said.splitlines()) <= height
    assert "public.broken" in said
    assert "more: headwater status" in said
    assert "Ctrl-C stops" in said


def test_a_route_is_its_destinations_by_status() -> None:
    instance = InstanceStatus(name="main", running=True)
    route = RouteStatus(
        name="by_company",
        source="public.orders",
        running=True,
        position="1",
        source_position="1",
        source_error=None,
        unknown_rows=0,
        null_rows=0,
        instances=(instance,),
    )
    seen = look(status=status(group(table("public.orders")), routes=(route,)))
    assert "route by_company: no destinations yet" in shown(seen)


def test_changes_a_second_are_those_of_the_last_looks() -> None:
    rates = Rates()
    for second, inserted in enumerate((100, 160, 220, 280)):
        found = rates.of(float(second), status(group(table("public.orders", inserted=inserted))))
    assert found == {("shop", "public.orders"): 60.0}
    for second in range(4, 20):
        found = rates.of(float(second), status(group(table("public.orders", inserted=280))))
    assert found == {("shop", "public.orders"): 0.0}


def test_a_table_that_is_copied_again_has_no_negative_rate() -> None:
    rates = Rates()
    rates.of(0.0, status(group(table("public.orders", inserted=500))))
    found = rates.of(1.0, status(group(table("public.orders", copied_rows=10), table("public.new", copied_rows=10))))
    assert found == {("shop", "public.orders"): 0.0, ("shop", "public.new"): 0.0}
