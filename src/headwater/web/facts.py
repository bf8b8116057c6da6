"""What there is to know, asked for by one thread: it costs the source the same with no page open and with a hundred."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from headwater.config import Config
from headwater.errors import ConfigError, HeadwaterError
from headwater.logs import redact
from headwater.state import State
from headwater.state.connection import SharedConnection
from headwater.state.deliveries import DeliveryRow
from headwater.status import Status, status
from headwater.status.figures import LakeFigures
from headwater.status.lag import Oldest
from headwater.supervise.effective import in_force
from headwater.web.events import Events
from headwater.web.history import HOUR, History, Rates, TableKey

__all__ = ["EVERY", "Facts", "Look", "Subscriber"]

logger = logging.getLogger(__name__)

EVERY = 1.0  # seconds
REST = 4.0  # times as long as a look took: with thousands of destinations it takes longer, and others need the cores
KEPT = 100  # deliveries of each group

Subscriber = Callable[[Sequence[DeliveryRow]], None]


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment."""

    at: float
    status: Status | None  # None: nothing is known, or `error` says why
    error: str | None
    deliveries: Mapping[str, tuple[DeliveryRow, ...]]  # by group, the newest first
    rates: Mapping[TableKey, float] = field(default_factory=dict)  # changes per second
    config: Config | None = None  # the one in force
    disabled: frozenset[str] = frozenset()  # groups
    hint: str | None = None  # what to do about the error


class Facts:
    """Looks every second or so, in the thread that calls `run`; `newest` may be called in any."""

    def __init__(self, config: Config, env: Mapping[str, str], reload: Callable[[], Config | None]) -> None:
        self._file, self._env, self._reload = config, env, reload
        self._secrets = config.secrets()
        self._newest = Look(time.time(), None, None, {})
        self._history, self._rates, self.events = History(), Rates(), Events()
        self._subscribers: list[Subscriber] = []
        self._asking: _Asking | None = None
        self._last: Status | None = None

    def newest(self) -> Look:
        return self._newest

    def subscribe(self, on_deliveries: Subscriber) -> None:
        """Have it called with new deliveries, the oldest first; those from before the first look are not new."""
        self._subscribers.append(on_deliveries)

    def history(self, minutes: float = 60) -> dict[str, object]:
        """Each group's lag, speed, WAL and log, every few seconds."""
        return self._history.last(minutes)

    def declared(self) -> Config:
        """What the config file says."""
        return self._file

    def in_force(self) -> Config:
        """The config with what was added to it, as of the newest look."""
        return self._newest.config or self._file

    def run(self, stop: threading.Event) -> None:
        """Look again and again until `stop`."""
        try:
            while not stop.is_set():
                begun = time.monotonic()
                self.look()
                stop.wait(max(EVERY, (time.monotonic() - begun) * REST))
        finally:
            self.close()

    def look(self) -> Look:
        """Look once. What cannot be reached is said, and the deliveries that are known stay."""
        self._file = self._reload() or self._file
        self._secrets = self._secrets | self._file.secrets()
        try:
            self._newest = self._seen()
        except HeadwaterError as error:
            message, hint = redact(error.message, self._secrets), redact(error.hint, self._secrets)
            known = self._newest
            self._newest = replace(known, at=time.time(), status=None, error=message, rates={}, hint=hint or None)
            self.close()
        return self._newest

    def _seen(self) -> Look:
        if self._asking is None:
            self._asking = _Asking(self._file, self._env)
        asking, before = self._asking, self._last
        found = asking.ask(self._file)
        new = {name: asking.deliveries(name, self._known(name)) for name in found.config.groups}
        now = time.time()
        if before is None:
            self._history.begin(asking.last_hour(), now)
        else:
            self._tell(sorted((each for rows in new.values() for each in rows), key=lambda each: each.id))
        self._history.add(found.status, now)
        self.events.note(before, found.status, now)
        self._last = found.status
        kept = {name: (*rows, *self._newest.deliveries.get(name, ()))[:KEPT] for name, rows in new.items()}
        rates = self._rates.add(found.status, now)
        return Look(now, found.status, None, kept, rates, found.config, found.disabled)

    def _known(self, group: str) -> int:
        return max((each.id for each in self._newest.deliveries.get(group, ())), default=0)

    def _tell(self, rows: Sequence[DeliveryRow]) -> None:
        for each in self._subscribers if rows else ():
            each(rows)

    def close(self) -> None:
        """Give the connections back; the next look opens them again."""
        if self._asking is not None:
            self._asking.close()
            self._asking = None


@dataclass(frozen=True, slots=True)
class _Found:
    status: Status
    config: Config
    disabled: frozenset[str]


class _Asking:
    """The connections, which stay open between two looks."""

    def __init__(self, config: Config, env: Mapping[str, str]) -> None:
        self._env = env
        self._opened = ExitStack()
        self._source = self._opened.enter_context(closing(State(SharedConnection(config.source))))
        self._state = self._opened.enter_context(closing(State(SharedConnection(config.state_url))))
        self._oldest = Oldest(config.source)
        self._figures = LakeFigures(config, env)

    def ask(self, file: Config) -> _Found:
        if self._state.query("SELECT to_regclass('headwater.deliveries')") == [(None,)]:
            raise ConfigError("nothing has run with this config yet", hint="start it with `headwater run`")
        config = in_force(file, self._state)
        found = status(config, self._env, self._source, self._state, self._oldest, self._figures)
        known = replace(found, source_error=found.source_error and redact(found.source_error, file.secrets()))
        return _Found(known, config, frozenset(self._state.disabled_groups()))

    def deliveries(self, group: str, after: int) -> list[DeliveryRow]:
        return self._state.deliveries(group, after=after, limit=KEPT)

    def last_hour(self) -> list[DeliveryRow]:
        return self._state.deliveries(limit=HOUR * 2)

    def close(self) -> None:
        self._opened.close()
