"""The delivery process: one Spark session, a thread for each group and each route of a lake, until `stop` is set."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.config import Config, Group
from headwater.errors import HeadwaterError
from headwater.spark import session, warm_up
from headwater.state import State
from headwater.state.sharing import Share
from headwater.supervise.beside import Beside, Observer
from headwater.supervise.effective import served
from headwater.supervise.groupdelivery import DRAIN_SECONDS, GroupDelivery
from headwater.supervise.opening import open_state
from headwater.supervise.reloading import Reloading, needs_restart
from headwater.supervise.routing import RouteDelivery
from headwater.supervise.tending import RouteMaintenance
from headwater.supervise.threads import DeliveryThread
from headwater.supervise.upkeep import GroupMaintenance, MaintenanceThread

__all__ = ["DRAIN_SECONDS", "deliver_forever"]

logger = logging.getLogger(__name__)

_Settings = tuple[Group, object]  # with its lake

LOOK_EVERY = 0.5  # seconds: which groups there are, and how many of them are ours
MAINTENANCE_GRACE = 5.0  # for all of it together


def deliver_forever(
    config: Config,
    env: Mapping[str, str],
    stop: threading.Event,
    file: Path,
    begin: threading.Event,
    *,
    all_needed: bool,
    on_delivery: Observer,
) -> int:
    """Deliver every group and route until `stop`, once `begin` is set; an exit code.

    `on_delivery` is called with each delivery of a group, in the group's thread.

    A dead JVM ends the process: the supervisor starts a new one. A group or route that cannot go on leaves the others
    alone, unless `all_needed`. Groups come and go with the config in force; what the `file` says about routes is taken
    up when it changes.
    """
    spark = session(config.spark.master, config.spark.conf)
    warm_up(spark, ["headwater.merge.plan", "headwater.route.fanout", "headwater.sink.addresses"])
    while not begin.wait(LOOK_EVERY) and not stop.is_set():
        pass
    if (now := Reloading(file, env).again()) is not None and not needs_restart(config, now):
        config = now  # it may have waited for days
    with closing(open_state(config)) as state, closing(Share(config.state_url, config.log.path)) as share:
        beside = Beside(on_delivery=on_delivery)
        deliveries = _Deliveries(config, env, spark, stop, file, share, beside, all_needed=all_needed)
        while not stop.is_set() and not deliveries.over():
            deliveries.look(state)
            stop.wait(LOOK_EVERY)
        deliveries.end()
    with suppress(Exception):  # it may be gone already
        spark.stop()
    return deliveries.exit_code()


class _Deliveries:
    """The threads of the process. Those of groups come and go."""

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        spark: SparkSession,
        stop: threading.Event,
        file: Path,
        share: Share,
        beside: Beside,
        *,
        all_needed: bool,
    ) -> None:
        self._config, self._env, self._spark, self._stop = config, env, spark, stop
        self._share, self._all_needed = share, all_needed
        self._reload = Reloading(file, env)
        self._beside = beside
        self._groups: dict[str, _Running] = {}
        self._ended: list[DeliveryThread] = []
        self._handled: dict[str, datetime] | None = None  # by group, when its last request was; None: nothing is stuck
        self._routes = [self._started(each) for each in self._lake_routes()]
        self._maintenance = self._route_maintenance()

    def look(self, state: State) -> None:
        """Deliver the groups of the config in force that have been made ready; give up those that are gone."""
        try:
            changed = self._take_up_file()
            config = served(self._config, state)
            self._wake(state, config_changed=changed)
            ready = {row.name for row in state.groups() if row.captured_lsn is not None}
        except HeadwaterError as error:
            logger.warning("which groups there are is looked at later: %s", error)
            return
        wanted = {name: _settings(config, name) for name in config.groups if name in ready}
        self._share.look(len(wanted))
        for name in [*self._groups]:
            if self._groups[name].settings != wanted.get(name) or not self._groups[name].delivery.is_alive():
                self._give_up(name)
        for name, settings in wanted.items():
            if name not in self._groups:
                self._groups[name] = self._take(config, name, settings)

    def over(self) -> bool:
        """Whether none can go on: an operator must act, for each of them."""
        threads = self._threads()
        return bool(threads) and all(each.exit_code or not each.is_alive() for each in threads)

    def _take_up_file(self) -> bool:
        """Whether the file says something else by now."""
        config = self._reload()
        if config is None or needs_restart(self._config, config):
            return False
        self._config = config
        return True

    def _news(self) -> Callable[[], Config | None]:
        """Tells one thread what the file says when that has changed since it last asked, and else None."""
        known = self._config

        def changed() -> Config | None:
            nonlocal known
            before, known = known, self._config
            return known if known is not before else None

        return changed

    def _wake(self, state: State, *, config_changed: bool) -> None:
        """Let what is stuck try again when a request was handled for its group, or when the config has changed."""
        if not any(each.exit_code for each in self._threads()):
            self._handled = None
            return
        before, self._handled = self._handled, state.last_handled()
        for name, each in self._groups.items():
            if config_changed or (before is not None and before.get(name) != self._handled.get(name)):
                each.delivery.try_again()
        for route in self._routes if config_changed else ():
            route.try_again()

    def _threads(self) -> list[DeliveryThread]:
        return [*(each.delivery for each in self._groups.values()), *self._routes]

    def end(self) -> None:
        """End all threads; what maintenance is at can be given up at any moment."""
        running, threads = [*self._groups.values()], self._threads()
        for thread in [*threads, *self._ended]:
            thread.end()
        for each in running:
            each.ending.set()
        for thread in [*threads, *self._ended]:
            thread.join()
        deadline = time.monotonic() + MAINTENANCE_GRACE
        for beside in [*(each.maintenance for each in running), self._maintenance]:
            if beside is not None:
                beside.join(max(0.0, deadline - time.monotonic()))

    def exit_code(self) -> int:
        return max((each.exit_code for each in self._threads()), default=0)

    def _take(self, config: Config, name: str, settings: _Settings) -> _Running:
        part = self._share.part()
        delivery = GroupDelivery(config, self._env, name, self._spark, self._stop, self._news(), self._beside, part)
        ending, maintenance = threading.Event(), None
        if config.maintenance is not None:
            maintenance = GroupMaintenance(
                config, config.maintenance, self._env, name, self._spark, ending, self._beside.precedence
            )
            maintenance.start()
        return _Running(settings, self._started(delivery), ending, maintenance)

    def _give_up(self, name: str) -> None:
        """Let a group's threads end. Another one for it waits for the lock that this one holds until then."""
        running = self._groups.pop(name)
        running.delivery.end()
        running.ending.set()
        self._ended = [each for each in (*self._ended, running.delivery) if each.is_alive()]

    def _started(self, thread: DeliveryThread) -> DeliveryThread:
        thread.all_needed = self._all_needed
        thread.start()
        return thread

    def _lake_routes(self) -> list[RouteDelivery]:
        return [
            RouteDelivery(self._config, self._env, name, self._spark, self._stop, self._news(), self._beside)
            for name, route in self._config.routes.items()
            if route.source.group is None
        ]

    def _route_maintenance(self) -> MaintenanceThread | None:
        if self._config.maintenance is None or not self._config.routes:
            return None
        thread = RouteMaintenance(self._config, self._config.maintenance, self._spark, self._stop, self._beside)
        thread.start()
        return thread


class _Running:
    """A group's threads."""

    def __init__(
        self,
        settings: _Settings,
        delivery: DeliveryThread,
        ending: threading.Event,
        maintenance: MaintenanceThread | None,
    ) -> None:
        self.settings, self.delivery, self.ending, self.maintenance = settings, delivery, ending, maintenance


def _settings(config: Config, name: str) -> _Settings:
    """What a delivery goes by: its tables it takes from the state."""
    group = config.groups[name]
    return group.model_copy(update={"entries": ()}), config.lakes[group.lake]
