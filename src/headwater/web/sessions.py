"""A browser's session: begun with the token, which the page need not keep."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import Response

from headwater.web.answers import Answers, Refusal
from headwater.web.audit import audit, audited
from headwater.web.endpoints import Endpoint
from headwater.web.live import Live
from headwater.web.security import read_json
from headwater.web.session import Caller, Gate, Session

__all__ = ["Sessions"]

logger = logging.getLogger(__name__)


class Sessions:
    def __init__(self, answers: Answers, gate: Gate, live: Live) -> None:
        self._answers, self._gate, self._live = answers, gate, live

    def endpoints(self) -> list[Endpoint]:
        path = "/api/v1/session"
        return [
            Endpoint("GET", path, self._show, "nothing"),
            Endpoint("POST", path, self._begin, "nothing"),
            Endpoint("DELETE", path, self._end, "nothing"),
        ]

    async def _show(self, request: Request, caller: Caller) -> Response:
        del request
        return self._answers.answer(self._said(caller, caller.session))

    async def _begin(self, request: Request, caller: Caller) -> Response:
        given = (await read_json(request)).get("token")
        if not self._gate.needs_token:
            audit(request, caller, "begin a session", "refused: the config has no token")
            raise Refusal(403, "the config has no token", "set server.token, and start `headwater run` again")
        if not isinstance(given, str) or not self._gate.opens(given):
            audit(request, caller, "begin a session", "refused: wrong token")
            raise Refusal(401, "this is not the token", "it is server.token of the config")
        response = Response(media_type="application/json")
        session = self._gate.begin(request, response)
        audit(request, Caller("token"), "begin a session", "done")
        response.body = self._answers.text({"csrf": session.csrf, "may_change": True}).encode()
        response.headers["Content-Length"] = str(len(response.body))
        return response

    async def _end(self, request: Request, caller: Caller) -> Response:
        response = Response(status_code=204)
        if caller.session is not None:
            with audited(request, caller):
                self._gate.check_change(request)
            self._gate.end(caller.session, request, response)
            audit(request, caller, "end the session", "done")
            await self._live.wake()
        return response

    def _said(self, caller: Caller, session: Session | None) -> dict[str, object]:
        return {
            "needs_token": self._gate.needs_token,
            "may_change": caller.kind != "anyone",
            "csrf": session.csrf if session else None,
        }
