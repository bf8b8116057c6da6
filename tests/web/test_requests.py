"""What is asked for over HTTP becomes a request of the state, which the run acts on, with an outcome to be seen."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from headwater.change import Lsn
from headwater.state import State
from headwater.state.transitions import CaughtUp, Copied, CopyBegun
from headwater.status import DestinationStatus
from tests.captured_group import until
from tests.routed import RoutedShop
from tests.serving import handled
from tests.web.served import TOKEN, Served, config_file, loaded, served


def test_a_pause_is_a_request_that_the_run_acts_on(site: Served, state: State, database: str, tmp_path: Path) -> None:
    asked = site.post("/api/v1/groups/shop/tables/public.orders/pause")
    assert (asked.status, asked.json["running"]) == (202, False)
    number = asked.json["request"]
    assert asked.headers["location"] == f"/api/v1/requests/{number}"
    waiting = site.get(f"/api/v1/requests/{number}").json
    assert (waiting["verb"], waiting["table"], waiting["state"]) == ("pause_table", "public.orders", "waiting")
    handled(loaded(config_file(tmp_path, database)), state)
    done = site.get(f"/api/v1/requests/{number}").json
    assert (done["state"], done["outcome"]) == ("done", "public.orders is paused: it is PAUSED")
    assert [each.state for each in state.tables("shop")] == ["PAUSED"]
    site.look()
    events = site.get("/api/v1/groups/shop/tables/public.orders").json["events"]
    assert {each["what"] for each in events} == {
        "pause table: public.orders is paused: it is PAUSED",
        "PENDING → PAUSED",
    }


def test_a_resync_has_the_table_copied_again(site: Served, state: State, database: str, tmp_path: Path) -> None:
    table = "/api/v1/groups/shop/tables/public.orders"
    for change in (CopyBegun(Lsn(16)), Copied(Lsn(16)), CaughtUp()):
        state.record("shop", 1, change)
    where = site.post(f"{table}/resync").headers["location"]
    handled(loaded(config_file(tmp_path, database)), state)
    done = site.get(where).json
    assert (done["verb"], done["state"]) == ("resync_table", "done")
    site.look()
    found = site.get(table).json
    assert found["status"]["resync"]
    assert f"resync table: {done['outcome']}" in {each["what"] for each in found["events"]}
    assert [(each.state, each.resync) for each in state.tables("shop")] == [("PENDING", found["status"]["resync"])]


def test_a_destination_is_paused_resumed_and_seeded_again(database: str, tmp_path: Path) -> None:
    with closing(RoutedShop(database, tmp_path)) as shop:
        shop.configure(f"server: {{port: 0, token: {TOKEN}}}")
        shop.seeded()
        with served(shop.file) as site:
            site.look()
            acme = "/api/v1/routes/by_company/destinations/acme"

            def after(what: str, changed: int = 1) -> DestinationStatus:
                asked = site.post(f"{acme}/{what}")
                assert (asked.status, asked.json["changed"]) == (202, changed)
                site.look()
                return shop.destinations()["acme"]

            assert after("pause").status == "paused"
            listed = site.get("/api/v1/routes/by_company/destinations?status=paused").json["destinations"]
            assert [each["name"] for each in listed] == ["acme"]
            assert after("pause", 0).status == "paused"
            assert after("resume").status != "paused"
            assert after("seed").seed
            assert shop.destinations()["globex"].seed is None
            assert site.post("/api/v1/routes/by_company/destinations/initech/seed").status in (409, 422)


def test_what_is_refused_says_why(site: Served, state: State, database: str, tmp_path: Path) -> None:
    number = site.post("/api/v1/groups/shop/tables", {"table": "public.nothing"}).json["request"]
    handled(loaded(config_file(tmp_path, database)), state)
    found = site.get(f"/api/v1/requests/{number}").json
    assert found["state"] == "refused"
    assert "public.nothing" in found["outcome"]


def test_everything_that_can_be_asked_of_tables_and_groups(site: Served, state: State) -> None:
    table = "/api/v1/groups/shop/tables/public.orders"
    for path in (f"{table}/resume", f"{table}/resync", "/api/v1/groups/shop/disable", "/api/v1/groups/shop/enable"):
        assert site.post(path).status == 202, path
    assert site.ask("DELETE", table).status == 202
    body = {"table": "public.audit", "as": "raw.audit", "copy": False, "options": {"mode": "history"}}
    assert site.post("/api/v1/groups/shop/tables", body).status == 202
    verbs = [each.verb for each in state.waiting()]
    assert verbs == ["resume_table", "resync_table", "disable_group", "enable_group", "remove_table", "add_table"]
    added = state.waiting()[-1].arguments
    assert added["copy"] is False
    assert added["entry"] == {"table": "public.audit", "as": "raw.audit", "mode": "history"}


def test_what_is_not_there_cannot_be_asked(site: Served, state: State) -> None:
    for path in (
        "/api/v1/groups/shop/tables/public.nothing/pause",
        "/api/v1/groups/none/tables/public.orders/pause",
        "/api/v1/groups/none/disable",
        "/api/v1/routes/none/destinations/x/pause",
    ):
        found = site.post(path)
        assert (found.status, bool(found.json["hint"])) == (404, True), path
    assert site.get("/api/v1/requests/1").status == 404
    assert site.get("/api/v1/requests/x").status == 404
    assert site.get("/api/v1/verifications/1").status == 404
    assert site.post("/api/v1/overview").status == 405
    assert state.waiting() == []


def test_wishes_that_make_no_sense_are_refused(site: Served) -> None:
    add = "/api/v1/groups/shop/tables"
    for body in ({}, {"table": 7}, {"table": "a.b", "copy": "yes"}, {"table": "a.b", "wrong": 1}, {"table": "a.b.c.d"}):
        found = site.post(add, body)
        assert (found.status, bool(found.json["hint"])) == (422, True), body
    wrong: list[dict[str, object]] = [{"tables": "x"}, {"tables": [1]}, {"names": []}]
    for names in wrong:
        assert site.post("/api/v1/verify", names).status == 422, names


def test_names_with_anything_in_them_are_found(site: Served, state: State, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO headwater.tables (group_name, source_oid, namespace, name, lake_schema, lake_table,"
            " configured_schema, configured_table, options) SELECT group_name, 7, 'Shop', 'a/b <x>', 'l', 't', 'Shop',"
            " 'a/b <x>', options FROM headwater.tables"
        )
    site.look()
    path = "/api/v1/groups/shop/tables/%22Shop%22.%22a%2Fb%20%3Cx%3E%22"
    assert site.get(path).json["status"]["table"] == '"Shop"."a/b <x>"'
    assert site.post(f"{path}/pause").status == 202
    assert state.waiting()[-1].table == '"Shop"."a/b <x>"'


def test_a_verification_finds_what_differs_and_seeding_again_mends_it(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    with closing(RoutedShop(database, tmp_path)) as shop:
        shop.configure(f"server: {{port: 0, token: {TOKEN}}}")
        shop.sql("INSERT INTO shop.main.orders VALUES (1, 'acme', 1.5), (2, 'globex', 2.5)")
        shop.turns(spark)
        shop.attach("acme")
        shop.sql("UPDATE acme.main.orders SET total = 9")
        with served(shop.file) as site:
            site.look()
            found = _verified(site)
            assert (found["state"], found["equal"], found["error"]) == ("done", False, None)
            verdicts = {each["destination"]: each["verdict"] for each in found["verdicts"]}
            assert verdicts == {"acme": "differs", "globex": "equal", "default": "equal"}
            assert site.post("/api/v1/routes/by_company/destinations/acme/seed").status == 202
            shop.turns(spark)
            assert shop.sql("SELECT id, total FROM acme.main.orders") == [(1, 1.5)]
            site.look()
            listed = site.get("/api/v1/routes/by_company/destinations?search=acme").json["destinations"]
            assert [(each["status"], each["seed"]) for each in listed] == [(shop.destinations()["acme"].status, None)]


def _verified(site: Served) -> Any:
    """What a verification of everything has become; it runs beside the server, one at a time."""
    begun = site.post("/api/v1/verify", {})
    assert begun.status == 202
    where = begun.headers["location"]
    assert site.get(where).json["state"] == "running"
    second = site.post("/api/v1/verify", {"tables": ["public.orders"]})
    assert (second.status, second.json["hint"]) == (409, "one at a time: wait until it has ended")
    until(lambda: site.get(where).json["state"] != "running", 240, 0.5)
    found = site.get(where).json
    assert found["ended"] is not None
    return found
