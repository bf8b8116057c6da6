"""A route's destinations: thousands of them, of which a client sees a page, searched and sorted here."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headwater.status import DestinationStatus, RouteStatus
from headwater.web.answers import Answers, Refusal
from headwater.web.api import known_status, number
from headwater.web.endpoints import Endpoint
from headwater.web.facts import Facts
from headwater.web.overview import SERIOUS_FIRST, destination
from headwater.web.session import Caller

__all__ = ["Destinations"]

_SORTS: dict[str, Callable[[DestinationStatus], Any]] = {
    # What is not known comes after all that is, in ascending order.
    "lag": lambda each: float("inf") if each.lag_seconds is None else each.lag_seconds,
    "value": str,
    "status": lambda each: SERIOUS_FIRST.index(each.status),
    "rows": lambda each: each.rows,
}


class Destinations:
    def __init__(self, facts: Facts, answers: Answers) -> None:
        self._facts, self._answers = facts, answers

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/api/v1/routes/{route}/destinations", self._list)]

    async def _list(self, request: Request, caller: Caller) -> Response:
        del caller
        name, known = request.path_params["route"], known_status(self._facts.newest()).routes
        route = next((each for each in known if each.name == name), None)
        if route is None:
            there = ", ".join(each.name for each in known) or "none"
            raise Refusal(404, f"there is no route {name!r}", f"there are: {there}")
        return await asyncio.to_thread(lambda: self._answers.answer(_page(request, route)))


def _page(request: Request, route: RouteStatus) -> dict[str, Any]:
    offset = number(request, "offset", 0, least=0, most=10_000_000)
    limit = number(request, "limit", 50, least=1, most=1000)
    found = _sorted(_matching(route.destinations, request), request)
    return {
        "total": len(route.destinations),
        "matching": len(found),
        "counts": dict(Counter(each.status for each in route.destinations)),
        "destinations": [destination(each) for each in found[offset : offset + limit]],
    }


def _matching(all_: Sequence[DestinationStatus], request: Request) -> list[DestinationStatus]:
    """Those with the words in their value, lake, table or error, and with this status."""
    words = request.query_params.get("search", "").casefold().split()
    status = request.query_params.get("status", "")
    if status and status not in SERIOUS_FIRST:
        raise Refusal(422, f"there is no status {status[:50]!r}", f"one of {', '.join(SERIOUS_FIRST)}")
    kept = (each for each in all_ if status in ("", each.status))
    return [each for each in kept if not words or all(word in _text(each) for word in words)]


def _text(each: DestinationStatus) -> str:
    return f"{each} {each.lake} {each.table} {each.error or ''}".casefold()


def _sorted(found: list[DestinationStatus], request: Request) -> list[DestinationStatus]:
    by, order = request.query_params.get("sort", "status"), request.query_params.get("order", "asc")
    if by not in _SORTS:
        raise Refusal(422, f"nothing can be sorted by {by[:50]!r}", f"one of {', '.join(_SORTS)}")
    if order not in ("asc", "desc"):
        raise Refusal(422, f"there is no order {order[:50]!r}", "asc or desc")
    found.sort(key=str)
    found.sort(key=_SORTS[by], reverse=order == "desc")
    return found
