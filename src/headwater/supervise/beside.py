"""What deliveries and maintenance in one process know of each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwater.flow import Delivered
from headwater.flow.routing import Destinations
from headwater.lake.stream import Stream
from headwater.supervise.precedence import Precedence

__all__ = ["Beside", "Observer", "Tended", "ignored", "route_deliveries"]

Observer = Callable[[str, Delivered], None]  # what is called with each delivery of a group


def ignored(group: str, done: Delivered) -> None:
    """No one needs to know of it."""


def route_deliveries(route: str) -> str:
    """The name under which deliveries of a route go before maintenance of its destinations."""
    return f"route {route}"


class Tended:
    """The destinations of the routes in this process, as the latest turns have found them."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Destinations, Stream[Any]]] = {}

    def note(self, route: str, destinations: Destinations, stream: Stream[Any]) -> None:
        self._found[route] = destinations, stream

    def routes(self) -> dict[str, tuple[Destinations, Stream[Any]]]:
        return dict(self._found)


@dataclass(frozen=True, slots=True)
class Beside:
    """Who is at work on which lake, which lakes are those of destinations, and who hears of a group's deliveries."""

    precedence: Precedence = field(default_factory=Precedence)
    tended: Tended = field(default_factory=Tended)
    on_delivery: Observer = ignored
