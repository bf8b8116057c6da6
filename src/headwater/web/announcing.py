"""Where the page is, in the state, so that `headwater status` can say it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing

from headwater.config import Config
from headwater.errors import HeadwaterError
from headwater.state import Lock, State
from headwater.state.servers import announce

__all__ = ["Announcing"]

logger = logging.getLogger(__name__)

LOOK_EVERY = 0.25  # seconds, until there is an address
KEEP_EVERY = 5.0  # as long as it stands


class Announcing(threading.Thread):
    """Keeps the address in the state until `stop`, through whatever happens to the state's server."""

    def __init__(self, config: Config, address: Callable[[], str | None], stop: threading.Event) -> None:
        super().__init__(name="announcing")
        self._config, self._address, self._ending = config, address, stop

    def run(self) -> None:
        while not self._ending.is_set():
            try:
                self._keep()
            except HeadwaterError as error:
                logger.info("the page's address is noted later: %s", error)
                self._ending.wait(KEEP_EVERY)

    def _keep(self) -> None:
        while (address := self._address()) is None:
            if self._ending.wait(LOOK_EVERY):
                return
        with ExitStack() as held, closing(State.connect(self._config.state_url)) as state:
            lock: Lock = held.enter_context(announce(state, address, self._config.log.path))
            while not self._ending.wait(KEEP_EVERY):
                lock.keep()
