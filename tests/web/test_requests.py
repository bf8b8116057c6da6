"""What is asked for over HTTP becomes a request of the state, which the run acts on, with an outcome to be seen."""

from __future__ import annotations

from pathlib import Path

import psycopg

from headwater.state import State
from tests.captured_group import until
from tests.serving import handled
from tests.web.served import Served, config_file, loaded


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


def test_a_verification_runs_beside_and_one_at_a_time(site: Served) -> None:
    begun = site.post("/api/v1/verify", {"tables": ["public.orders"]})
    assert begun.status == 202
    where = begun.headers["location"]
    assert site.get(where).json["state"] == "running"
    second = site.post("/api/v1/verify", {})
    assert (second.status, second.json["hint"]) == (409, "one at a time: wait until it has ended")
    until(lambda: site.get(where).json["state"] != "running", 240, 0.5)
    found = site.get(where).json
    assert found["ended"] is not None
    assert (found["state"] == "failed") == bool(found["error"])
