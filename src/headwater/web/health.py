"""Health for whoever starts and watches this process, and figures for Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from headwater.web.answers import Answers
from headwater.web.endpoints import Endpoint
from headwater.web.session import Caller
from headwater.web.site import Site
from headwater.web.verdict import unready

__all__ = ["Health"]


class Health:
    """`/healthz` and `/readyz` tell anyone; what they say names groups, and quotes no error."""

    def __init__(self, site: Site, answers: Answers) -> None:
        self._site, self._answers = site, answers

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/healthz", self._alive, "nothing"),
            Endpoint("GET", "/readyz", self._ready, "nothing"),
        ]

    async def _alive(self, request: Request, caller: Caller) -> Response:
        del request, caller
        return self._answers.answer({"alive": True})

    async def _ready(self, request: Request, caller: Caller) -> Response:
        del request, caller
        look = self._site.facts.newest()
        standby = ["this is a standby: another run has the groups"] if not self._site.leads.is_set() else []
        reasons = standby or unready(look)
        return self._answers.answer({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)
