"""What can be read at once, under `/api/v1`."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from headwater.errors import Unreachable
from headwater.status import Status, plain
from headwater.web.answers import Answers, Refusal
from headwater.web.endpoints import Endpoint
from headwater.web.facts import Facts, Look
from headwater.web.live import Live
from headwater.web.overview import delivery, snapshots_of
from headwater.web.session import Caller, Gate

__all__ = ["Api", "known_status", "number"]


class Api:
    """Everything that the newest look has."""

    def __init__(self, facts: Facts, answers: Answers, live: Live, gate: Gate) -> None:
        self._facts, self._answers, self._live, self._gate = facts, answers, live, gate

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/api/v1/overview", self._overview),
            Endpoint("GET", "/api/v1/events", self._events),
            Endpoint("GET", "/api/v1/status", self._status),
            Endpoint("GET", "/api/v1/history", self._history),
            Endpoint("GET", "/api/v1/deliveries", self._deliveries),
        ]

    async def _overview(self, request: Request, caller: Caller) -> Response:
        del request, caller
        return Response(await self._live.text(), media_type="application/json")

    async def _events(self, request: Request, caller: Caller) -> ASGIApp:
        del request
        return self._live.stream(lambda: self._gate.admits(caller))

    async def _status(self, request: Request, caller: Caller) -> Response:
        del request, caller
        status = known_status(self._facts.newest())
        return await asyncio.to_thread(lambda: self._answers.answer(plain(status)))

    async def _history(self, request: Request, caller: Caller) -> Response:
        del caller
        minutes = number(request, "minutes", 60, least=1, most=60)
        return self._answers.answer(self._facts.history(minutes))

    async def _deliveries(self, request: Request, caller: Caller) -> Response:
        del caller
        group, limit = request.query_params.get("group"), number(request, "limit", 50, least=1, most=500)
        look = self._facts.newest()
        kept = look.deliveries
        if group is not None and group not in kept:
            raise Refusal(404, f"there is no group {group!r}", f"there are: {', '.join(kept) or 'none'}")
        rows = [each for name, found in kept.items() if group in (None, name) for each in found]
        newest = sorted(rows, key=lambda each: each.id, reverse=True)[:limit]
        shown = [{"group": each.group} | delivery(each, snapshots=snapshots_of(look, each.group)) for each in newest]
        return self._answers.answer({"deliveries": shown})


def known_status(look: Look) -> Status:
    """Unreachable if nothing is known now."""
    if look.status is None:
        raise Unreachable(look.error or "nothing is known yet", hint=look.hint or "try again in a second")
    return look.status


def number(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    """A parameter of the address; Refusal if it is no number, or out of bounds."""
    given = request.query_params.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 10 and least <= int(given) <= most):
        raise Refusal(422, f"{name}={given[:50]!r} is not a number from {least} to {most}", f"leave out {name}")
    return int(given)
