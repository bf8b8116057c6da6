"""Routes that read a group's tables, inside the group's delivery: what has landed in its lake is carried on at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress

from headwater import flow
from headwater.change import Lsn
from headwater.config import Config
from headwater.errors import HeadwaterError, Outdated
from headwater.flow.logsource import LogSource
from headwater.flow.routing import OpenRoute
from headwater.logs import redact
from headwater.state import Lock
from headwater.state.routes import RouteId
from headwater.supervise.beside import Beside
from headwater.supervise.instances import instance_name, owner_of
from headwater.supervise.sources import route_rules
from headwater.supervise.threads import BACKOFF_FIRST, BACKOFF_LONGEST
from headwater.supervise.turns import RouteTurns, same_route

__all__ = ["GroupRoutes"]

logger = logging.getLogger(__name__)


class GroupRoutes:
    """The routes of an opened group, each of which has its lock. `reload` is as in `RouteDelivery`.

    What keeps a route from going on is noted with it, and stops neither the others nor the group.
    """

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        m: flow.Mirroring,
        reload: Callable[[], Config | None],
        beside: Beside | None = None,
    ) -> None:
        self._m, self._config, self._reload = m, config, reload
        names = [name for name, route in config.routes.items() if route.source.group == m.group]
        self._routes = [_GroupRoute(config, env, m, name, beside) for name in names]

    def __enter__(self) -> GroupRoutes:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._routes:
            each.close()

    def take_turns(self, *, landed: bool) -> None:
        """A turn for each route whose time has come, and if something has `landed`, for each that has no trouble."""
        if self._routes and (config := self._reload()) is not None:
            self._config = config
        for each in self._routes:
            each.adopt(self._config)
            if each.is_due(landed=landed):
                each.take()

    def positions(self) -> list[Lsn]:
        """What the routes have read of the log; none of a route that has read nothing yet."""
        rows = (self._m.state.route(each.id) for each in self._routes)
        return [Lsn(row.position) for row in rows if row is not None and row.position is not None]


class _GroupRoute:
    def __init__(
        self, config: Config, env: Mapping[str, str], m: flow.Mirroring, name: str, beside: Beside | None
    ) -> None:
        self.id = RouteId(name, instance_name(config))
        self._config, self._env, self._m, self._beside = config, env, m, beside
        self._held = ExitStack()
        self._lock: Lock | None = None
        self._turns: RouteTurns | None = None
        self._next, self._wait = 0.0, 0.0  # when it is its turn, and how long it has waited after a failure

    def close(self) -> None:
        self._held.close()

    def adopt(self, config: Config) -> None:
        """Go by what the file says now."""
        if not same_route(self._config, config, self.id.name):
            self._turns, self._next, self._wait = None, 0.0, 0.0
        if self.id.name in config.routes:
            self._config = config

    def is_due(self, *, landed: bool) -> bool:
        return time.monotonic() >= self._next or (landed and not self._wait)

    def take(self) -> None:
        try:
            caught_up = self._opened().take()
            self._wait = 0.0
            self._next = time.monotonic() + (self._config.routes[self.id.name].poll.total_seconds() if caught_up else 0)
        except Outdated as waits:
            logger.debug("route %s: %s", self.id.name, waits)
            self._next = time.monotonic() + BACKOFF_FIRST
        except HeadwaterError as error:
            self._fail(error)
        except Exception as error:  # as in a thread of its own: the route's trouble stays its own
            logger.exception("delivery of route %s failed", self.id.name)
            self._fail(error)

    def _opened(self) -> RouteTurns:
        if self._lock is None:
            self._lock = self._held.enter_context(self._m.state.lock(owner_of(self.id)))
        self._lock.keep()
        if self._turns is None:
            route, m = self._config.routes[self.id.name], self._m
            rules = route_rules(route)
            source = LogSource(m, route.source.table, rules, route.batch.rows)
            opened = OpenRoute(self.id, source, rules, route.seed, m.state, m.spark)
            self._turns = RouteTurns(self._config, self._env, opened, self._lock.name, self._beside)
        return self._turns

    def _fail(self, error: Exception) -> None:
        """It is opened again after a while, longer each time."""
        logger.error("route %s: %s", self.id.name, error)
        with suppress(HeadwaterError):
            self._m.state.record_route_error(self.id, redact(str(error), self._config.secrets()))
        self._turns = None
        self._wait = min(max(self._wait * 2, BACKOFF_FIRST), BACKOFF_LONGEST)
        self._next = time.monotonic() + self._wait
