"""An endpoint: its path, its method, and what whoever calls it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.web.audit import audited
from headwater.web.session import Caller, Gate

__all__ = ["Endpoint", "Handler", "Needs", "Part", "as_route"]

Needs = Literal["nothing", "reading", "changing"]
Handler = Callable[[Request, Caller], Awaitable["Response | ASGIApp"]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: Literal["GET", "POST", "DELETE"]
    path: str  # as starlette writes it
    handler: Handler
    needs: Needs = "reading"


class Part(Protocol):
    """Some of the endpoints."""

    def endpoints(self) -> list[Endpoint]: ...


def as_route(endpoint: Endpoint, gate: Gate) -> Route:
    """A route that lets only those in who may."""

    async def called(request: Request) -> Response:
        caller = _let_in(endpoint, gate, request)
        with audited(request, caller) if endpoint.needs == "changing" else nullcontext():
            answer = await endpoint.handler(request, caller)
        return answer if isinstance(answer, Response) else _Raw(answer)

    return Route(endpoint.path, called, methods=[endpoint.method], name=f"{endpoint.method} {endpoint.path}")


def _let_in(endpoint: Endpoint, gate: Gate, request: Request) -> Caller:
    match endpoint.needs:
        case "changing":
            with audited(request, gate.caller(request) or Caller("anyone")):
                return gate.check_change(request)
        case "reading":
            return gate.check_read(request)
        case "nothing":
            gate.check_host(request)
            return gate.caller(request) or Caller("anyone")


class _Raw(Response):
    """A response that an ASGI application writes by itself."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
