"""What the API answers, over real HTTP, from a real state."""

from __future__ import annotations

from headwater.state import State
from tests.web.served import Served


def test_the_overview_says_how_everything_is(site: Served) -> None:
    found = site.get("/api/v1/overview")
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    assert found.json["verdict"] == "trouble"
    assert found.json["source"]["reachable"] is True
    (group,) = found.json["groups"]
    assert (group["name"], group["lake"], group["state"]) == ("shop", "main", "STOPPED")
    (table,) = group["tables"]
    assert (table["table"], table["state"], table["changes_per_second"]) == ("public.orders", "PENDING", 0.0)
    assert {each["what"] for each in found.json["problems"]} >= {"capture of group shop is stopped"}


def test_the_status_is_what_the_command_prints(site: Served) -> None:
    found = site.get("/api/v1/status").json
    assert found["healthy"] is False
    assert [each["name"] for each in found["groups"]] == ["shop"]
    assert "group 'shop': delivery is STOPPED" in found["problems"]


def test_what_changed_is_sent_to_those_who_listen(site: Served, state: State) -> None:
    with site.listening() as events:
        assert next(events)["groups"][0]["capture"]["error"] is None
        state.record_error("shop", "capture", "the disk is full")
        site.look()
        assert next(events)["groups"][0]["capture"]["error"] == "the disk is full"
