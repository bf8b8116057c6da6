"""The OpenAPI document says what there is: no more, no less, and as it is answered."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from openapi_spec_validator import validate
from starlette.applications import Starlette

from headwater.change import TableName
from headwater.config import Server
from headwater.state import State
from headwater.state.routes import Found, RouteId
from headwater.supervise.reloading import Reloading
from headwater.web.app import starlette
from headwater.web.facts import Facts
from headwater.web.openapi import document
from headwater.web.site import Site
from tests.captured_group import until
from tests.serving import handled
from tests.web.documented import check, check_answer
from tests.web.served import Served, config_file, loaded

ROOT = Path(__file__).parents[2]
PAGE = {("GET", "/"), ("GET", "/static/{name}")}
ORDERS = TableName("main", "orders")
ROUTES = """\
routes:
  by_company:
    from: {group: shop, table: public.orders}
    by: company
    keys: [id]
    to: [{value: acme, lake: main, as: main.acme}]
"""


@pytest.fixture
def application(tmp_path: Path) -> Starlette:
    file = config_file(tmp_path, "postgresql://app@/nowhere")
    facts = Facts(loaded(file), {}, Reloading(file, {}))
    return starlette(Site(facts, Server(), {}, file, threading.Event(), threading.Event()))


def test_every_route_is_described_and_everything_described_is_a_route(application: Starlette) -> None:
    routes = {
        (method, re.sub(r":\w+\}", "}", route.path))  # type: ignore[attr-defined]
        for route in application.routes
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
    }
    described = {(method.upper(), path) for path, found in document()["paths"].items() for method in found}
    assert routes - PAGE == described


def test_the_document_is_a_valid_one(site: Served) -> None:
    found = site.get("/api/v1/openapi.json", Authorization="")
    assert found.status == 200
    validate(found.json)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/overview",
        "/api/v1/status",
        "/api/v1/history",
        "/api/v1/deliveries",
        "/api/v1/session",
        "/api/v1/groups/shop/tables/public.orders",
        "/healthz",
        "/readyz",
    ],
)
def test_answers_are_what_the_document_says(site: Served, path: str) -> None:
    check_answer(site.get(path), "get", re.sub(r"shop/tables/.*", "{group}/tables/{table}", path))


@pytest.fixture
def routed(site: Served, state: State) -> Served:
    """The same with a route of a few destinations, of which one waits to be filled."""
    route = RouteId("by_company", "all")
    state.ensure_destinations(route.name, [Found(each, "sqlite:///tenant.sqlite", ORDERS) for each in ("=acme", "=b")])
    state.ensure_route(route, "the log", 1)
    state.note_seeded(route, 16, {"=acme": 40})
    file = site.site.file
    file.write_text(file.read_text() + ROUTES)
    site.look()
    return site


def test_answers_about_destinations_are_what_the_document_says(routed: Served) -> None:
    found = routed.get("/api/v1/routes/by_company/destinations")
    assert [each["name"] for each in found.json["destinations"]] == ["b", "acme"]
    check_answer(found, "get", "/routes/{route}/destinations")
    check_answer(routed.get("/api/v1/overview"), "get", "/overview")
    for what in ("pause", "resume", "seed"):
        done = routed.post(f"/api/v1/routes/by_company/destinations/acme/{what}")
        check_answer(done, "post", f"/routes/{{route}}/destinations/{{value}}/{what}")


def test_answers_about_requests_are_what_the_document_says(site: Served, state: State) -> None:
    asked = site.post("/api/v1/groups/shop/tables/public.orders/pause")
    check_answer(asked, "post", "/groups/{group}/tables/{table}/pause")
    waiting = site.get(asked.headers["location"])
    check_answer(waiting, "get", "/requests/{id}")
    handled(loaded(site.site.file), state)
    done = site.get(asked.headers["location"])
    check_answer(done, "get", "/requests/{id}")
    assert [waiting.json["state"], done.json["state"]] == ["waiting", "done"]


def test_answers_about_verifications_are_what_the_document_says(site: Served) -> None:
    begun = site.post("/api/v1/verify", {"tables": ["public.orders"]})
    check_answer(begun, "post", "/verify")
    check_answer(site.get(begun.headers["location"]), "get", "/verifications/{id}")
    until(lambda: site.get(begun.headers["location"]).json["state"] != "running", 240, 0.5)
    check_answer(site.get(begun.headers["location"]), "get", "/verifications/{id}")


def test_refusals_are_what_the_document_says(site: Served) -> None:
    for path in ("/api/v1/nothing", "/api/v1/routes/none/destinations", "/api/v1/history?minutes=x"):
        check(site.get(path).json, {"$ref": "#/components/schemas/Error"})


def test_the_documentation_has_every_endpoint() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    said = set(re.findall(r"^\| `(GET|POST|DELETE) (/[^`?]*)", text, re.MULTILINE))
    described = {(method.upper(), path) for path, found in document()["paths"].items() for method in found}
    assert said == described
