"""Routes that read a lake, inside the delivery process: a thread for each, running until `stop` is set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing

from pyspark.sql import SparkSession

from headwater.config import Config, Route
from headwater.flow.routesource import RouteSource
from headwater.flow.routing import OpenRoute
from headwater.state import Lock, State
from headwater.state.routes import RouteId
from headwater.supervise.beside import Beside
from headwater.supervise.instances import instance_name, owner_of
from headwater.supervise.opening import open_state, when_free
from headwater.supervise.sources import copy_is_awaited, opened_source, route_rules
from headwater.supervise.threads import DeliveryThread
from headwater.supervise.turns import RouteTurns, same_route

__all__ = ["RouteDelivery"]

TICK = 0.5


class RouteDelivery(DeliveryThread):
    """Delivers one route. `reload` gives the config as the file has it now, or None while it has not changed."""

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        name: str,
        spark: SparkSession,
        stop: threading.Event,
        reload: Callable[[], Config | None] = lambda: None,
        beside: Beside | None = None,
    ) -> None:
        super().__init__(f"route {name}", config, env, spark, stop)
        self._id = RouteId(name, instance_name(config))
        self._reload = reload
        self._beside = beside

    @property
    def _route(self) -> Route:
        return self._config.routes[self._id.name]

    def work(self) -> None:
        """Hold the route's lock and deliver; returns after `stop`, or when the file says something else about it."""
        self._changed()  # what kept it from going on may have been corrected
        with (
            closing(open_state(self._config)) as state,
            when_free(state, owner_of(self._id), self._ending) as lock,
        ):
            if lock is None or not self._copied(state, lock):
                return
            with opened_source(self._config, self._env, self._id.name) as source:
                self._follow(source, state, lock)

    def _copied(self, state: State, lock: Lock) -> bool:
        """Wait until there is something to read; False if `stop` was set, or the file says something else by now."""
        while copy_is_awaited(self._config, state, self._id.name):
            lock.keep()
            if self._ending.wait(TICK) or self._changed():
                return False
        return True

    def _follow(self, source: RouteSource, state: State, lock: Lock) -> None:
        route = OpenRoute(self._id, source, route_rules(self._route), self._route.seed, state, self._spark)
        turns = RouteTurns(self._config, self._env, route, lock.name, self._beside)
        while not self._ending.is_set() and not self._changed():
            lock.keep()
            if turns.take():
                self._ending.wait(self._route.poll.total_seconds())

    def record(self, error: str) -> None:
        with closing(open_state(self._config)) as state:
            state.record_route_error(self._id, error)

    def _changed(self) -> bool:
        """Whether the file says something else about the route by now; that is taken up."""
        config = self._reload()
        if config is None or self._id.name not in config.routes:
            return False
        before, self._config = self._config, config
        return not same_route(before, config, self._id.name)
