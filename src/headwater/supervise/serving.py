"""The groups that a run serves: each has its lock and its capture process, and they come and go while it runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from headwater.config import Config
from headwater.control.expanding import Skipped, with_patterns
from headwater.errors import HeadwaterError, Unreachable
from headwater.logs import redact
from headwater.postgres.connect import worked_before
from headwater.state import Lock, State
from headwater.state.listening import Listener
from headwater.state.sharing import leader
from headwater.supervise.children import Child, stop_all
from headwater.supervise.effective import in_force, served
from headwater.supervise.handling import Handling
from headwater.supervise.opening import when_free
from headwater.supervise.readying import make_group_ready
from headwater.supervise.reloading import Reloading, needs_restart

__all__ = ["Serving"]

logger = logging.getLogger(__name__)

LOOK_EVERY = 5.0  # seconds: at what the state wants, should a notification have been lost
RETRY_EVERY = 30.0  # a group that could not be made ready


@dataclass(slots=True)
class _Served:
    lock: Lock
    held: ExitStack
    capture: Child | None = None
    failed_at: float | None = None  # it could not be made what the config says
    gave_up: int | None = None  # the exit code of the capture that the state knows of


class Serving:
    """Holds the groups' locks and changes what is asked for. `captures` are the children to look after.

    Only one leads: it holds a lock of the whole log, whatever groups there are, from before it looks at the config.
    What the file says about `source`, `state`, `log` and `spark` is taken up by the next start.
    """

    def __init__(
        self, config: Config, state: State, reload: Reloading, capture: Callable[[str], Child], stop: threading.Event
    ) -> None:
        self._file = config
        self._state, self._reload, self._capture, self._stop = state, reload, capture, stop
        self._skipped: set[Skipped] = set()  # already reported
        self.config = config
        self.captures: list[Child] = []
        self._leading: Lock | None = None
        self._held = ExitStack()
        self._groups: dict[str, _Served] = {}
        self._asked = threading.Event()
        self._looked = time.monotonic()
        self._ending = threading.Event()
        self._listening = threading.Thread(target=self._listen, name="requests", daemon=True)

    def __enter__(self) -> Self:
        self._listening.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for each in self._groups.values():
            each.held.close()
        self._held.close()
        self._listening.join(1.0)  # no longer: it may be connecting to a server that does not answer

    def lead(self, *, wait: bool) -> bool:
        """Be the one that leads, with the locks of all groups; if another run does, `wait` for its end.

        What was changed meanwhile counts, in the file and in the state. False if `stop` was set before that. After
        Unreachable, call `lead` again.
        """
        if self._leading is None:
            self._leading = self._taken(leader(self._file.log.path), self._held, wait=wait)
        if self._leading is None:
            return False
        self._take_up(self._reload.again())
        self.config = self._wanted()
        while missing := [name for name in self.config.groups if name not in self._groups]:
            for name in missing:
                held = ExitStack()
                lock = self._taken(f"run:{name}", held, wait=wait)
                if lock is None:
                    return False
                self._groups[name] = _Served(lock, held)
            self.config = self._wanted()
        return True

    def _taken(self, name: str, held: ExitStack, *, wait: bool) -> Lock | None:
        if wait:
            return held.enter_context(when_free(self._state, name, self._stop))
        return held.enter_context(self._state.lock(name))

    def begin(self) -> None:
        """Start to capture the groups, which are ready, and do what was asked for while nothing ran.

        After Unreachable, call it again.
        """
        self._declare()
        for name in self.config.groups:
            self._start(name)
        self._look_again()

    def step(self) -> None:
        """Keep the locks; do what was asked for since the last step. LockHeld: another run has taken them."""
        if self._leading is not None:
            self._leading.keep()
        for each in self._groups.values():
            each.lock.keep()
        if self._asked.is_set() or time.monotonic() - self._looked > LOOK_EVERY:
            with worked_before():
                self._look_again()

    def serve(self, name: str) -> None:
        """Make a group what the config in force says, and see that it is captured; HeadwaterError if it cannot be."""
        with worked_before():
            self.config = self._wanted()
            if name not in self.config.groups:
                return
            if name not in self._groups:
                held = ExitStack()
                self._groups[name] = _Served(held.enter_context(self._state.lock(f"run:{name}")), held)
            make_group_ready(self.config, self._state, name)
            self._start(name)

    def leave(self, name: str) -> None:
        """Stop capturing a group; whoever delivers it notices by itself."""
        group = self._groups.pop(name, None)
        if group is None:
            return
        if group.capture is not None:
            self.captures.remove(group.capture)
            stop_all([[group.capture]])
        group.held.close()
        logger.info("group %s is not served any more", name)

    def everything(self) -> Config:
        """The config in force, with the groups that are disabled."""
        return in_force(self._file, self._state)

    def declared(self) -> Config:
        """What the file itself says."""
        return self._file

    def _wanted(self) -> Config:
        """What is to be served, with the tables that patterns match now."""
        config, skipped = with_patterns(served(self._file, self._state))
        for each in skipped:
            if each not in self._skipped:
                logger.warning("%s", each)
        self._skipped = set(skipped)
        return config

    def _start(self, name: str) -> None:
        group = self._groups[name]
        if group.capture is None:
            group.capture = self._capture(name)
            self.captures.append(group.capture)
        group.capture.try_again()

    def _look_again(self) -> None:
        self._asked.clear()
        self._looked = time.monotonic()
        self._take_up(self._reload())
        handling = Handling(self, self._state)
        for request in self._state.waiting():
            handling.handle(request)
            self._try_capture_again(request.group)
        self._follow(self._wanted())
        self._note_captures()

    def _try_capture_again(self, name: str) -> None:
        """Something was done for the group, which may have mended what its capture gave up for."""
        group = self._groups.get(name)
        if group is not None and group.capture is not None:
            group.capture.try_again()

    def _note_captures(self) -> None:
        """Let the state know of a capture that has given up, if that could not say why itself."""
        for name, group in self._groups.items():
            gave_up = group.capture.gave_up if group.capture else None
            if gave_up is not None and gave_up != group.gave_up:
                row = self._state.group(name)
                if row is not None and row.capture_error is None:
                    self._state.record_error(name, "capture", f"capture ended with exit code {gave_up}: see its log")
            group.gave_up = gave_up

    def _follow(self, now: Config) -> None:
        """Serve what the config has by now, if a request has not done so already."""
        before, self.config = self.config, now
        for name in [*self._groups]:
            if name not in now.groups:
                self.leave(name)
        for name, group in now.groups.items():
            known = self._groups.get(name)
            retry = known is not None and known.failed_at is not None and _age(known.failed_at) > RETRY_EVERY
            if known is None or retry or before.groups.get(name) != group:
                self._try_to_serve(name)

    def _try_to_serve(self, name: str) -> None:
        """What the file asks for is tried again until it can be done; the group goes on as it is meanwhile."""
        failed_at = None
        try:
            self.serve(name)
        except Unreachable:
            raise
        except HeadwaterError as error:
            logger.error("group %s stays as it is: %s", name, redact(str(error), self._file.secrets()))
            failed_at = time.monotonic()
        if name in self._groups:
            self._groups[name].failed_at = failed_at

    def _take_up(self, config: Config | None) -> None:
        """What the file says, if it can be used."""
        if config is not None and not needs_restart(self._file, config):
            self._file = config
            self._declare()

    def _declare(self) -> None:
        tables = {name: [str(each.table) for each in group.tables] for name, group in self._file.groups.items()}
        self._state.declare(self._file.log.path, tables)

    def _listen(self) -> None:
        said = ""
        with Listener(self._state.url, stop=self._ending) as listener:
            while not self._ending.is_set():
                try:
                    if listener.wait(LOOK_EVERY):
                        self._asked.set()
                        said = ""
                except HeadwaterError as error:
                    if error.message != said:
                        logger.warning("requests are noticed after up to %.0f s: %s", LOOK_EVERY, error.message)
                    said = error.message
                    self._ending.wait(LOOK_EVERY)


def _age(since: float) -> float:
    return time.monotonic() - since
