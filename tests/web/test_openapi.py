"""The OpenAPI document says what there is: no more, no less, and as it is answered."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import validate
from starlette.applications import Starlette

from headwater.config import Server
from headwater.supervise.reloading import Reloading
from headwater.web.app import starlette
from headwater.web.facts import Facts
from headwater.web.openapi import document
from headwater.web.site import Site
from tests.web.served import Served, config_file, loaded

ROOT = Path(__file__).parents[2]
PAGE = {("GET", "/"), ("GET", "/static/{name}")}


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
    found = site.get(path)
    described = document()["paths"][re.sub(r"shop/tables/.*", "{group}/tables/{table}", path)]["get"]
    _check(found.json, described["responses"][str(found.status)]["content"]["application/json"]["schema"])


def test_refusals_are_what_the_document_says(site: Served) -> None:
    for path in ("/api/v1/nothing", "/api/v1/routes/none/destinations", "/api/v1/history?minutes=x"):
        _check(site.get(path).json, {"$ref": "#/components/schemas/Error"})


def test_the_documentation_has_every_endpoint() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    said = set(re.findall(r"^\| `(GET|POST|DELETE) (/[^`?]*)", text, re.MULTILINE))
    described = {(method.upper(), path) for path, found in document()["paths"].items() for method in found}
    assert said == described


def _check(value: Any, schema: dict[str, Any]) -> None:
    jsonschema.validate(value, schema | {"components": document()["components"]})
