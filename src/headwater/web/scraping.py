"""The endpoint that Prometheus scrapes."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from headwater.web.endpoints import Endpoint
from headwater.web.facts import Facts
from headwater.web.metrics import Metrics
from headwater.web.session import Caller

__all__ = ["Scraping"]


class Scraping:
    """`/metrics`, for whoever may read."""

    def __init__(self, facts: Facts) -> None:
        self._metrics = Metrics(facts)

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/metrics", self._scraped)]

    async def _scraped(self, request: Request, caller: Caller) -> Response:
        del caller
        # In a thread: with a thousand tables it is a megabyte of text, and pages wait for their events meanwhile.
        body, content_type = await run_in_threadpool(self._metrics.exposition, request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})
