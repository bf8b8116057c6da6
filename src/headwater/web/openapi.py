"""The OpenAPI document: every endpoint, what it takes and what it answers. A test compares it with the routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response

from headwater import __version__
from headwater.status.routes import DestinationHealth
from headwater.web.answers import Answers
from headwater.web.endpoints import Endpoint
from headwater.web.schemas import SCHEMAS, reference
from headwater.web.session import CSRF_HEADER, Caller

__all__ = ["Described", "document"]

_JSON = "application/json"
_WHOLE = {"type": "integer", "minimum": 0}
_OPEN: list[dict[str, list[str]]] = [{}]  # no token is needed
_REFUSALS = {
    400: "the body is not JSON",
    401: "the token is missing or wrong",
    403: "not allowed, as without a token in the config",
    404: "there is no such thing",
    409: "not now",
    413: "the body is too large",
    422: "it makes no sense",
    503: "something is unreachable: try again later",
}


@dataclass(frozen=True, slots=True)
class _Operation:
    does: str
    answers: str | None = None  # the schema; None: no JSON
    takes: str | None = None
    status: int = 200
    query: Mapping[str, Any] = field(default_factory=dict)
    open: bool = False
    refusals: tuple[int, ...] = ()
    media: str = _JSON


_CHANGE = (400, 403, 404, 409, 413, 422, 503)
_TABLE, _GROUP, _VALUE = "/groups/{group}/tables/{table}", "/groups/{group}", "/routes/{route}/destinations/{value}"
_SEARCH = {
    "search": {"type": "string"},
    "status": {"type": "string", "enum": list(get_args(DestinationHealth))},
    "sort": {"type": "string", "enum": ["lag", "value", "status", "rows"], "default": "status"},
    "order": {"type": "string", "enum": ["asc", "desc"], "default": "asc"},
    "offset": _WHOLE | {"default": 0},
    "limit": _WHOLE | {"default": 50, "maximum": 1000},
}


def _accepted(does: str, answers: str = "Accepted", takes: str | None = None) -> _Operation:
    return _Operation(does, answers, takes, 202, refusals=_CHANGE)


_OPERATIONS: dict[tuple[str, str], _Operation] = {
    ("GET", "/overview"): _Operation("Everything that the page shows at once", "Overview"),
    ("GET", "/events"): _Operation(
        "The overview as server-sent events: now, and whenever it has changed, at most once a second",
        media="text/event-stream",
    ),
    ("GET", "/status"): _Operation("What `headwater status --json` prints", "Status", refusals=(503,)),
    ("GET", "/history"): _Operation(
        "Lag, speed, WAL and log of each group, for up to an hour",
        "History",
        query={"minutes": {"type": "integer", "minimum": 1, "maximum": 60, "default": 60}},
        refusals=(422,),
    ),
    ("GET", "/deliveries"): _Operation(
        "The newest deliveries, the newest first",
        "Deliveries",
        query={"group": {"type": "string"}, "limit": _WHOLE | {"default": 50, "maximum": 500}},
        refusals=(404, 422),
    ),
    ("GET", _TABLE): _Operation("One table, closely", "TableDetail", refusals=(404, 503)),
    ("GET", "/routes/{route}/destinations"): _Operation(
        "A route's destinations, searched and sorted", "Destinations", query=_SEARCH, refusals=(404, 422, 503)
    ),
    ("GET", "/requests/{id}"): _Operation("What became of a request", "Request", refusals=(404, 503)),
    ("POST", f"{_TABLE}/pause"): _accepted("Leave the mirror as it is"),
    ("POST", f"{_TABLE}/resume"): _accepted("Let it go on, and try it at once after a failure"),
    ("POST", f"{_TABLE}/resync"): _accepted("Copy it again, in place of its mirror"),
    ("POST", f"{_GROUP}/enable"): _accepted("Let a group go on"),
    ("POST", f"{_GROUP}/disable"): _accepted("Stop a group; its slot retains the source's WAL meanwhile"),
    ("POST", f"{_GROUP}/tables"): _accepted("Mirror one more table", takes="AddTable"),
    ("DELETE", _TABLE): _accepted("Mirror a table no longer that was added by request; its mirror stays"),
    ("POST", f"{_VALUE}/pause"): _accepted("Leave a destination as it is", "AcceptedByRoute"),
    ("POST", f"{_VALUE}/resume"): _accepted("Let a destination go on", "AcceptedByRoute"),
    ("POST", f"{_VALUE}/seed"): _accepted("Give a destination all its rows anew", "AcceptedByRoute"),
    ("POST", "/verify"): _accepted("Compare the lakes with the source", "VerificationBegun", "Verify"),
    ("GET", "/verifications/{id}"): _Operation("What a verification has found", "Verification", refusals=(404,)),
    ("GET", "/session"): _Operation("What the caller may do", "Session", open=True),
    ("POST", "/session"): _Operation(
        "Begin a session of a browser", "SessionBegun", "Token", open=True, refusals=(400, 401, 403, 413)
    ),
    ("DELETE", "/session"): _Operation("End it", status=204, open=True, refusals=(403,)),
    ("GET", "/openapi.json"): _Operation("This document", "Document", open=True),
    ("GET", "//healthz"): _Operation("Alive", "Alive", open=True),
    ("GET", "//metrics"): _Operation("Figures for Prometheus", media="text/plain"),
    ("GET", "//readyz"): _Operation("Every group captures and delivers within its bounds", "Ready", open=True),
}


class Described:
    """Serves the document."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/api/v1/openapi.json", self._show, "nothing")]

    async def _show(self, request: Request, caller: Caller) -> Response:
        del request, caller
        return self._answers.answer(document())


def document() -> dict[str, Any]:
    """The whole of it."""
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), operation in _OPERATIONS.items():
        whole = path[1:] if path.startswith("//") else f"/api/v1{path}"
        paths.setdefault(whole, {})[method.lower()] = _described(operation, method, whole)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headwater", "version": __version__, "license": {"name": "Apache-2.0"}},
        "security": [{"bearer": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS | {"Document": {"type": "object"}},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "server.token of the config"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "headwater_PORT",
                    "description": f"of POST /api/v1/session; a change also needs the header {CSRF_HEADER}",
                },
            },
        },
    }


def _described(operation: _Operation, method: str, path: str) -> dict[str, Any]:
    parts = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters = [
        *({"name": each, "in": "path", "required": True, "schema": {"type": "string"}} for each in parts),
        *({"name": name, "in": "query", "schema": schema} for name, schema in operation.query.items()),
    ]
    found: dict[str, Any] = {
        "summary": operation.does,
        "operationId": "_".join([method.lower(), *(part.strip("{}") for part in path.split("/")[1:])]),
        "responses": _responses(operation, path),
    }
    if parameters:
        found["parameters"] = parameters
    if operation.takes is not None:
        content = {_JSON: {"schema": reference(operation.takes)}}
        found["requestBody"] = {"required": operation.takes != "Verify", "content": content}
    return found | ({"security": _OPEN} if operation.open else {})


def _responses(operation: _Operation, path: str) -> dict[str, Any]:
    schema = {"type": "string"} if operation.answers is None else reference(operation.answers)
    answered = {} if operation.status == 204 else {"content": {operation.media: {"schema": schema}}}
    refusals = operation.refusals if operation.open else {401, 403, *operation.refusals}
    found = {str(operation.status): {"description": "done"} | answered}
    for status in sorted(refusals):
        found[str(status)] = {"description": _REFUSALS[status], "content": {_JSON: {"schema": reference("Error")}}}
    if path == "/readyz":
        found["503"] = {"description": "not ready: the reasons", "content": {_JSON: {"schema": reference("Ready")}}}
    return found
