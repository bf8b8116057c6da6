"""Alive, ready, and the verdict in one word: what whoever is on call goes by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.state import State
from headwater.status import GroupStatus, PartStatus, RouteStatus, Status, TableStatus
from headwater.web.facts import Look
from headwater.web.verdict import problems, unready, verdict
from tests.web.served import Served, config_file, loaded, served

RUNS = PartStatus(state="RUNNING", heartbeat_seconds=1.0, lag_bytes=0, lag_seconds=0.0, error=None)


def seen(table: dict[str, Any] | None = None, part: dict[str, Any] | None = None, **group: Any) -> Look:
    """A look at a group that is well, but for what is given."""
    orders = TableStatus(
        group="shop",
        table="public.orders",
        lake="main",
        lake_table="public.orders",
        state="STREAMING",
        rows=1,
        inserted=1,
        updated=0,
        deleted=0,
        copied_rows=0,
        copy_total=0,
        position="0/10",
        lag_bytes=0,
        lag_seconds=1.2,
        mode="mirror",
        quarantined=0,
        resync=None,
        error=None,
        retry_at=None,
    )
    shop = GroupStatus(
        name="shop",
        lake="main",
        state="RUNNING",
        lag_bytes=0,
        lag_seconds=1.2,
        slot="headwater_shop",
        slot_active=True,
        captured_lsn="0/20",
        capture=RUNS,
        delivery=replace(RUNS, **(part or {})),
        tables=(replace(orders, **(table or {})),),
    )
    return Look(0.0, Status("0/20", None, (replace(shop, **group),), ()), None, {})


NOTHING = Look(0.0, None, None, {})
LOST = replace(NOTHING, error="cannot connect")
OFF = replace(seen(part={"state": "STOPPED"}), disabled=frozenset({"shop"}))


@pytest.mark.parametrize(
    ("look", "word", "sentence"),
    [
        (seen(), "healthy", "Everything is mirrored; 1.2 s behind."),
        (seen(table={"state": "PAUSED"}), "healthy", "Everything is mirrored; 1.2 s behind. 1 table is paused."),
        (seen(lag_seconds=31.0), "behind", "Group shop is 31.0 s behind."),
        (seen(table={"state": "SNAPSHOT"}), "starting", "1 table is being copied."),
        (seen(part={"state": "STARTING"}), "starting", "Headwater is starting."),
        (seen(part={"state": "STOPPED"}), "trouble", "Delivery of group shop is stopped."),
        (
            seen(part={"error": "the disk is full\nhint: free some"}),
            "trouble",
            "Delivery of group shop: the disk is full.",
        ),
        (seen(table={"state": "ERRORED", "error": "no"}), "trouble", "Table public.orders: no."),
        (NOTHING, "starting", "The first look begins."),
        (LOST, "unknown", "Nothing is known: cannot connect."),
        (OFF, "healthy", "There is nothing to mirror yet."),
    ],
)
def test_the_verdict_is_one_word_and_one_sentence(look: Look, word: str, sentence: str) -> None:
    assert verdict(look) == (word, sentence)


@pytest.mark.parametrize(
    ("group", "found"),
    [
        ({"part": {"state": "STARTING"}}, []),
        ({"table": {"state": "PENDING"}}, []),
        ({"table": {"state": "PENDING"}, "delivered_lsn": "0/10"}, ["route by_company: no lake yet"]),
        ({}, ["route by_company: no lake yet"]),
    ],
)
def test_a_route_is_no_problem_before_there_is_anything_to_read(group: dict[str, Any], found: list[str]) -> None:
    look = seen(**group)
    assert look.status is not None
    route = RouteStatus(
        name="by_company",
        source="lake main",
        running=False,
        position=None,
        source_position=None,
        source_error="no lake yet",
        unknown_rows=0,
        null_rows=0,
        instances=(),
    )
    look = replace(look, status=replace(look.status, routes=(route,)))
    assert [each.what.replace("its source cannot be read: ", "") for each in problems(look)] == found


def test_a_problem_says_where_it_is_and_what_to_do() -> None:
    (found,) = problems(seen(table={"state": "ERRORED", "error": "a column is gone\nhint: resync it"}))
    assert (found.severity, found.what, found.hint) == ("error", "table public.orders: a column is gone", "resync it")
    assert (found.group, found.table) == ("shop", "public.orders")


def test_errors_come_before_warnings() -> None:
    look = seen(table={"quarantined": 2}, part={"state": "STOPPED"})
    assert [each.severity for each in problems(look)] == ["error", "warning"]


@pytest.mark.parametrize(
    ("look", "reasons"),
    [
        (seen(), []),
        (seen(lag_seconds=30.0), []),
        (seen(lag_seconds=30.1), ["group 'shop': it is 30.1 s behind, 30 s are allowed"]),
        (seen(lag_seconds=None), ["group 'shop': its lag is not known"]),
        (seen(lag_seconds=None, table={"state": "PAUSED"}), []),
        (seen(part={"state": "STARTING"}), ["group 'shop': delivery is STARTING"]),
        (seen(part={"heartbeat_seconds": 31.0}), ["group 'shop': delivery has no heartbeat"]),
        (seen(part={"error": "secret"}), ["group 'shop': delivery has failed"]),
        (NOTHING, ["the status is not known"]),
        (OFF, []),
    ],
)
def test_ready_means_that_every_group_is_within_its_bounds(look: Look, reasons: list[str]) -> None:
    assert unready(look) == reasons


def test_a_group_that_flushes_seldom_may_be_further_behind(tmp_path: Path) -> None:
    file = config_file(tmp_path, "postgresql://app@/nowhere")
    file.write_text(file.read_text().replace("lake: main,", "lake: main, flush: {interval: 1m},"))
    look = replace(seen(lag_seconds=170.0), config=loaded(file))
    assert unready(look) == []
    assert verdict(look)[0] == "healthy"
    assert unready(replace(seen(lag_seconds=190.0), config=loaded(file))) != []


def test_anyone_may_ask_whether_it_is_alive(site: Served) -> None:
    found = site.get("/healthz", Authorization="")
    assert (found.status, found.json) == (200, {"alive": True})


def test_a_group_that_does_not_run_is_not_ready_and_the_reasons_quote_no_error(site: Served, state: State) -> None:
    state.record_error("shop", "capture", "cannot connect as app_secret_user")
    site.look()
    found = site.get("/readyz", Authorization="")
    assert found.status == 503
    assert found.json["ready"] is False
    assert "group 'shop': delivery is STOPPED" in found.json["reasons"]
    assert "group 'shop': capture has failed" in found.json["reasons"]
    assert b"app_secret_user" not in found.body


def test_a_standby_is_not_ready(state: State, database: str, tmp_path: Path) -> None:
    del state
    with served(config_file(tmp_path, database), leads=False) as site:
        site.look()
        assert site.get("/readyz").json["reasons"] == ["this is a standby: another run has the groups"]
        site.site.leads.set()
        assert "this is a standby: another run has the groups" not in site.get("/readyz").json["reasons"]
