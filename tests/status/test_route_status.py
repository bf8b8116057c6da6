"""The status of routes: how far each destination is, why it is not further, and who delivers to it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from tests.routed import RoutedShop

from headwater.commands.routeview import route_lines
from headwater.commands.statusview import coloured
from headwater.errors import CheckFailed
from headwater.lake.counts import Counts
from headwater.state.routes import RouteId
from headwater.status import open_status
from headwater.supervise.instances import owner_of

SOON = timedelta(minutes=5)


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[RoutedShop]:
    with closing(RoutedShop(database, tmp_path)) as made:
        yield made


def test_a_destination_goes_from_being_found_to_having_everything(shop: RoutedShop) -> None:
    assert shop.status().destinations == ()
    shop.found()
    new = shop.destinations()
    assert {
        name: (each.status, each.seed, each.position, each.lag_seconds) for name, each in new.items()
    } == dict.fromkeys(("acme", "globex", "default"), ("lagging", "it is new", None, None))
    shop.seeded(rows=100)
    shop.polled()
    assert {each.status for each in shop.destinations().values()} == {"healthy"}

    shop.sql("INSERT INTO shop.main.orders VALUES (1, 'acme', 1.5)", "DELETE FROM shop.main.orders")
    acme = shop.destinations()["acme"]
    assert (acme.status, acme.lag_snapshots, acme.rows) == ("buffering", 2, 100)
    assert acme.lag_seconds is not None
    assert 0 < acme.lag_seconds < 60

    shop.polled(acme=Counts(inserted=5, updated=2, deleted=1))
    route = shop.status()
    acme = shop.destinations()["acme"]
    assert (acme.status, acme.lag_snapshots, acme.lag_seconds) == ("healthy", 0, 0.0)
    assert (acme.rows, acme.inserted, acme.updated, acme.deleted) == (104, 5, 2, 1)
    assert route.position == route.source_position == acme.position == str(shop.newest)


def test_a_poll_that_a_process_makes_is_flushing_and_one_that_was_killed_is_not(shop: RoutedShop) -> None:
    shop.seeded()
    shop.sql("INSERT INTO shop.main.orders VALUES (1, 'acme', 1.5)")
    shop.state.begin_poll(shop.id, "an attempt")
    assert shop.destinations()["acme"].status == "buffering"
    with shop.state.lock(shop.owner):
        assert shop.destinations()["acme"].status == "flushing"
        assert shop.status().running is True
    assert shop.status().running is False


def test_a_destination_lags_when_changes_wait_for_longer_than_they_should(shop: RoutedShop) -> None:
    shop.seeded()
    shop.sql("INSERT INTO shop.main.orders VALUES (1, 'acme', 1.5)")
    shop.sql("DETACH shop")
    with closing(sqlite3.connect(shop.folder / "shop.sqlite")) as catalog:
        earlier = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%d %H:%M:%S+00")
        catalog.execute("UPDATE ducklake_snapshot SET snapshot_time = ?", (earlier,))
        catalog.commit()
    acme = shop.destinations()["acme"]
    assert acme.status == "lagging"
    assert acme.lag_seconds == pytest.approx(3600, abs=60)


def test_a_failure_is_the_destinations_own_and_its_circuit_opens_after_three(shop: RoutedShop) -> None:
    shop.seeded()
    at = shop.newest
    for failures in (1, 2, 3):
        shop.state.note_failed("by_company", "=acme", "disk full", at, datetime.now(UTC) + SOON)
        acme = shop.destinations()["acme"]
        assert (acme.status, acme.failures, acme.circuit_open) == ("error", failures, failures == 3)
    shop.sql("INSERT INTO shop.main.orders VALUES (1, 'acme', 1.5)")
    shop.polled()
    shop.state.end_poll(shop.id, None, shop.newest, (), {"=acme": 7})
    acme, globex = shop.destinations()["acme"], shop.destinations()["globex"]
    assert (acme.position, acme.lag_snapshots, acme.waiting_rows) == (str(at), 1, 7)
    assert (globex.status, globex.position) == ("healthy", str(shop.newest))

    shop.state.note_failed("by_company", "=acme", "disk full", at, datetime.now(UTC))
    assert shop.destinations()["acme"].circuit_open is False  # the next probe is due


def test_a_paused_destination_stays_where_it_is_and_one_that_is_to_be_seeded_says_why(shop: RoutedShop) -> None:
    shop.seeded()
    at = shop.newest
    shop.state.pause_destinations("by_company", ["=acme"])
    shop.state.request_seed("by_company", ["=globex"], "its lake was replaced")
    shop.sql("INSERT INTO shop.main.orders VALUES (1, 'acme', 1.5)")
    shop.polled()
    acme, globex = shop.destinations()["acme"], shop.destinations()["globex"]
    assert (acme.status, acme.position, acme.lag_snapshots) == ("paused", str(at), 1)
    assert (globex.status, globex.seed) == ("lagging", "its lake was replaced")


def test_a_source_that_cannot_be_read_breaks_nothing(shop: RoutedShop) -> None:
    shop.seeded()
    shop.sql("DETACH shop")
    (shop.folder / "shop.sqlite").rename(shop.folder / "away.sqlite")
    route = shop.status()
    assert "there is no lake in" in str(route.source_error)
    assert [(each.status, each.lag_seconds) for each in route.destinations] == [("buffering", None)] * 3
    assert any("its source cannot be read" in each for each in route.problems)
    (shop.folder / "away.sqlite").rename(shop.folder / "shop.sqlite")
    shop.attach("shop")
    shop.sql("DROP TABLE shop.main.orders")
    assert "has no table 'main.orders'" in str(shop.status().source_error)


def test_instances_share_a_route_and_each_says_how_far_it_is(shop: RoutedShop) -> None:
    for ordinal, value in enumerate(("acme", "globex")):
        shop.configure(f"instance: {{partition: hash, total: 2, ordinal: {ordinal}}}")
        shop.sql("INSERT INTO shop.main.orders VALUES (1, 'acme', 1.5)")
        shop.seeded(values=[value])
        shop.state.note_unrouted(shop.id, 5 + ordinal, 1)
    with shop.state.lock(owner_of(RouteId("by_company", "1 of 2"))):
        route = shop.status()
    assert [(each.name, each.running) for each in route.instances] == [("0 of 2", False), ("1 of 2", True)]
    assert [(str(each), each.instance) for each in route.destinations] == [("acme", "0 of 2"), ("globex", "1 of 2")]
    assert route.running is False
    assert route.position == str(shop.newest - 1)  # of the one that is further behind
    assert (route.unknown_rows, route.null_rows) == (6, 1)  # each has seen all of them
    assert list(route.problems) == ["instance '0 of 2': no process delivers it"]
    assert "1 of 2 instances RUNNING" in next(route_lines(route, 200))


def test_the_whole_status_has_routes_in_every_rendering(shop: RoutedShop) -> None:
    shop.seeded(rows=1234)
    shop.sql("INSERT INTO shop.main.orders VALUES (1, 'acme', 1.5)")
    shop.polled(globex=Counts(inserted=1))
    shop.state.note_unrouted(shop.id, 3, 1)
    shop.state.note_failed("by_company", "=acme", "disk full", shop.newest - 1, datetime.now(UTC) + SOON)
    with shop.state.lock(shop.owner), open_status(shop.config, {}) as ask:
        status = ask()
    assert status.problems == ("route 'by_company': destination 'acme': disk full",)
    with pytest.raises(CheckFailed, match="disk full"):
        status.check()

    shown = shop.cli("status").output
    assert "route by_company ← main.orders of lake shop: STOPPED, at 2" in shown
    facts = "3 destinations: 2 healthy, 1 error; 3 rows with a value of no destination; 1 row with NULL"
    assert facts in " ".join(shown.split())
    assert "acme: ERROR: disk full (tried again at " in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["globex", "healthy", "1,235"] in [line[:3] for line in lines]
    found = json.loads(shop.cli("status", "--json").stdout)["routes"]
    assert [each["status"] for each in found[0]["destinations"]] == ["healthy", "error", "healthy"]
    assert max(map(len, shown.splitlines())) <= 100
    console = Console(force_terminal=True, width=80)
    with console.capture() as drawn:
        console.print(coloured(status, 80))
    assert "\x1b[32mhealthy" in drawn.get()


def test_check_asks_for_the_lag_of_destinations_too(shop: RoutedShop) -> None:
    shop.seeded()
    shop.sql("INSERT INTO shop.main.orders VALUES (1, 'acme', 1.5)")
    time.sleep(0.2)
    with shop.state.lock(shop.owner), open_status(shop.config, {}) as ask:
        late = ask()
        late.check()
        with pytest.raises(CheckFailed, match="the lag of 3 destinations is too large: 'default' has 0"):
            late.check(timedelta(seconds=0.1))
        shop.state.pause_destinations("by_company", ["=acme", "=globex", "*"])
        ask().check(timedelta(seconds=0.1))
        shop.state.resume_destinations("by_company", ["=acme"])
        shop.state.request_seed("by_company", ["=acme"], "it was asked for")
        shop.polled()
        with pytest.raises(CheckFailed, match="the lag of 1 destination is too large"):
            ask().check(timedelta(seconds=0.1))


def test_of_many_destinations_the_status_shows_those_that_need_attention(shop: RoutedShop) -> None:
    values = [f"tenant {number:04}" for number in range(1000)]
    shop.seeded(values=values)
    shop.polled()
    shop.state.pause_destinations("by_company", ["=tenant 0007"])
    shop.state.note_failed("by_company", "=tenant 0500", "disk full", shop.newest, datetime.now(UTC) + SOON)
    begun = time.process_time()
    route = shop.status()
    assert time.process_time() - begun < 2, "a thousand destinations take no longer than a few"
    lines = list(route_lines(route, 100))
    assert len(lines) < 10
    assert [line.split()[:3] for line in lines if line.startswith("tenant 0")][:2] == [
        ["tenant", "0500", "error"],
        ["tenant", "0007", "paused"],
    ]
    assert "and 998 destinations healthy: see `headwater route list by_company`" in lines
    listed = shop.cli("route", "list").output.splitlines()
    assert sum(line.startswith("tenant ") for line in listed) == 1001  # and the note about the error
    everyone = replace(route, destinations=tuple(replace(each, status="error") for each in route.destinations))
    assert len(list(everyone.problems)) == 12
    assert list(everyone.problems)[-1] == "990 more destinations failed"


def test_a_state_that_no_route_has_run_with_shows_that_nothing_is_delivered(shop: RoutedShop) -> None:
    route = shop.status()
    assert list(route.problems) == ["no process delivers it"]
    assert next(route_lines(route, 100)) == (
        "route by_company ← main.orders of lake shop: STOPPED, nothing delivered yet"
    )
