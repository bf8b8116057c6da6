"""The application: its routes, and what holds for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headwater.errors import HeadwaterError
from headwater.web.answers import Answers, Refusal, refused
from headwater.web.api import Api
from headwater.web.endpoints import Endpoint, as_route
from headwater.web.files import PageFiles
from headwater.web.health import Health
from headwater.web.live import Live
from headwater.web.security import Guarded
from headwater.web.session import Gate
from headwater.web.sessions import Sessions
from headwater.web.site import Site

__all__ = ["app"]


def app(site: Site) -> ASGIApp:
    """An application, to be served from one thread."""
    answers, gate = Answers(site.facts.declared().secrets()), Gate(site.server.token.get_secret_value())
    live, page = Live(site.facts, answers, site.stop), PageFiles()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(live.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def on_error(request: Request, error: Exception) -> Response:
        return answers.refusal(refused(request, error))

    routes = [
        Route("/", page.index, methods=["GET"]),
        Route("/static/{name}", page.file, methods=["GET"]),
        *(as_route(each, gate) for each in _endpoints(site, answers, gate, live)),
    ]
    kinds: tuple[type[Exception], ...] = (Refusal, HTTPException, HeadwaterError, Exception)
    return Guarded(Starlette(routes=routes, lifespan=lifespan, exception_handlers=dict.fromkeys(kinds, on_error)))


def _endpoints(site: Site, answers: Answers, gate: Gate, live: Live) -> list[Endpoint]:
    parts = Api(site.facts, answers, live), Sessions(answers, gate), Health(site, answers)
    return [each for part in parts for each in part.endpoints()]
