"""What there is to know, asked for by one thread: it costs the source the same with no page open and with a hundred."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

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
from headwater.web.unresolved import Unresolved

__all__ = ["EVERY", "STALE", "Facts", "Look", "Subscriber", "Watcher", "outdated", "rest"]

logger = logging.getLogger(__name__)

EVERY = 1.0  # seconds
REST = 4.0  # times as long as a look took: with thousands of destinations it takes longer, and others need the cores
STALE = 30.0  # seconds after which a look says nothing about now: something holds up the next one
SELDOM = 20.0  # seconds between two looks at most, if they do not take longer themselves
KEPT = 100  # deliveries of each group

Subscriber = Callable[[Sequence[DeliveryRow]], None]
Watcher = Callable[["Look"], None]


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
    unresolved: Mapping[TableKey, int] = field(default_factory=dict)  # values in quarantine, where that is known
    taken: float = field(default_factory=time.monotonic)


class Facts:
    """Looks every second or so, in the thread that calls `run`; `newest` may be called in any."""

    def __init__(self, config: Config, env: Mapping[str, str], reload: Callable[[], Config | None]) -> None:
        self._file, self._env, self._reload = config, env, reload
        self._secrets = config.secrets()
        self._newest = Look(time.time(), None, None, {})
        self._history, self._rates, self.events = History(), Rates(), Events()
        self._subscribers: list[Subscriber] = []
        self._watchers: list[Watcher] = []
        self._outdated = self._newest
        self._unresolved = Unresolved(env)
        self._asking: _Asking | None = None
        self._last: Status | None = None

    def newest(self) -> Look:
        """The last look; of one that is too old, nothing but that. The same object as long as nothing is new."""
        look = self._newest
        if time.monotonic() - look.taken <= STALE:
            return look
        if self._outdated.taken != look.taken or self._outdated.status is not None or not self._outdated.error:
            self._outdated = outdated(look)
        return self._outdated

    def watch(self, on_look: Watcher) -> None:
        """Have it called with each look, in the thread that looks."""
        self._watchers.append(on_look)

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
                stop.wait(rest(time.monotonic() - begun))
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
            lost = replace(self._newest, status=None, error=message, rates={}, hint=hint or None)
            self._newest = replace(lost, at=time.time(), taken=time.monotonic())
            self.close()
        for each in self._watchers:
            each(self._newest)
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
        unresolved = self._unresolved.of(found.config, asking.state, found.status)
        return Look(now, found.status, None, kept, rates, found.config, found.disabled, unresolved=unresolved)

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


def outdated(look: Look) -> Look:
    """What a look that is too old still says."""
    last = f"the last look ended at {datetime.fromtimestamp(look.at, UTC):%H:%M:%S} UTC, and none has ended since"
    error = last if look.status or look.error else f"the first look has not ended in {STALE:.0f} s"
    hint = "is something in the state's database locked, or do the source, the state or a lake's catalog not answer?"
    return replace(look, status=None, error=error, rates={}, hint=hint)


def rest(took: float) -> float:
    """How many seconds to wait after a look, so that the next one ends before this is outdated, if it can."""
    return max(EVERY, min(took * REST, SELDOM - took))


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
        self.state = self._opened.enter_context(closing(State(SharedConnection(config.state_url))))
        self._oldest = Oldest(config.source)
        self._figures = LakeFigures(config, env)

    def ask(self, file: Config) -> _Found:
        if not self.state.knows("deliveries"):
            raise ConfigError("nothing has run with this config yet", hint="start it with `headwater run`")
        config = in_force(file, self.state)
        found = status(config, self._env, self._source, self.state, self._oldest, self._figures)
        known = replace(found, source_error=found.source_error and redact(found.source_error, file.secrets()))
        return _Found(known, config, frozenset(self.state.disabled_groups()))

    def deliveries(self, group: str, after: int) -> list[DeliveryRow]:
        return self.state.deliveries(group, after=after, limit=KEPT)

    def last_hour(self) -> list[DeliveryRow]:
        return self.state.deliveries(limit=HOUR * 2)

    def close(self) -> None:
        self._opened.close()
