"""A route that takes turns, wherever it runs: in a thread of its own, or in the delivery of the group that it reads."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headwater.config import Config, FromTemplate
from headwater.flow.routing import OpenRoute, Turn, follow, routing_type, sight
from headwater.supervise.beside import Beside, route_deliveries
from headwater.supervise.destinations import Finder
from headwater.words import counted

__all__ = ["RouteTurns", "same_route"]

logger = logging.getLogger(__name__)


class RouteTurns:
    """Finds the route's destinations and brings them up to date. `owner` is the lock that is held meanwhile.

    `beside` is for maintenance of the destinations, which goes on between the turns.
    """

    def __init__(
        self, config: Config, env: Mapping[str, str], route: OpenRoute, owner: str, beside: Beside | None = None
    ) -> None:
        self._route = route
        self._beside = beside or Beside()
        self._templated = isinstance(config.routes[route.name].to, FromTemplate)
        self._finder = Finder(config, env, route.name, route.state, route.source.id(), owner)
        self._type = routing_type(route)
        # With a template, the values that the source has by now and that have no destination yet.
        self._seen = sight(route, self._finder.find(self._type)) if self._templated else {}

    def take(self) -> bool:
        """One turn; whether there is nothing more to do for now."""
        destinations = self._finder.find(self._type, self._seen)
        self._beside.tended.note(self._route.name, destinations, self._route.source.stream)
        with self._beside.precedence.delivery(route_deliveries(self._route.name)):
            turn = follow(self._route, destinations)
        self._log(turn)
        self._seen = turn.unknown if self._templated else {}
        return turn.caught_up and not self._seen

    def _log(self, turn: Turn) -> None:
        if turn.landed:
            landed = turn.landed.values()
            logger.info(
                "route %s: +%d ~%d -%d in %s",
                self._route.name,
                sum(each.inserted for each in landed),
                sum(each.updated for each in landed),
                sum(each.deleted for each in landed),
                counted(len(landed), "destination"),
            )


def same_route(before: Config, now: Config, name: str) -> bool:
    """Whether a route goes on as it is; one that the file does not have any more does, until the process ends."""
    if name not in now.routes:
        return True
    return (before.routes[name], before.lakes) == (now.routes[name], now.lakes)
