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
from headwater.state import State
from headwater.state.connection import SharedConnection
from headwater.web.actions import Actions
from headwater.web.answers import Answers, Refusal, refused
from headwater.web.api import Api
from headwater.web.destinations import Destinations
from headwater.web.endpoints import Part, as_route
from headwater.web.files import PageFiles
from headwater.web.health import Health
from headwater.web.live import Live
from headwater.web.openapi import Described
from headwater.web.scraping import Scraping
from headwater.web.security import Guarded
from headwater.web.session import Gate
from headwater.web.sessions import Sessions
from headwater.web.site import Site
from headwater.web.tables import Tables
from headwater.web.verifying import Verifying

__all__ = ["app", "starlette"]

_SECRET_VARIABLES = ("PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def app(site: Site) -> ASGIApp:
    """An application, to be served from one thread."""
    return Guarded(starlette(site))


def starlette(site: Site) -> Starlette:
    """The same without what every answer has."""
    config, gate = site.facts.declared(), Gate(site.server.token.get_secret_value())
    keys = {site.env.get(name, "") for name in _SECRET_VARIABLES} - {""}
    answers = Answers(config.secrets() | keys)
    live, page = Live(site.facts, answers, site.stop), PageFiles()
    state = State(SharedConnection(config.state_url))
    verifying = Verifying(site.file, site.env, answers)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(live.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await verifying.close()
        state.close()

    async def on_error(request: Request, error: Exception) -> Response:
        return answers.refusal(refused(request, error))

    parts: list[Part] = [
        Api(site.facts, answers, live, gate),
        Tables(site.facts, site.env, answers, state),
        Destinations(site.facts, answers),
        Actions(site.facts, answers, state),
        verifying,
        Sessions(answers, gate, live),
        Health(site, answers),
        Scraping(site.facts),
        Described(answers),
    ]
    routes = [
        Route("/", page.index, methods=["GET"]),
        Route("/static/{name}", page.file, methods=["GET"]),
        *(as_route(each, gate) for part in parts for each in part.endpoints()),
    ]
    kinds: tuple[type[Exception], ...] = (Refusal, HTTPException, HeadwaterError, Exception)
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=dict.fromkeys(kinds, on_error))
