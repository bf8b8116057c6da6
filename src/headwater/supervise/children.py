"""Keep child processes running: start them, restart what dies with backoff, stop them in order."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from headwater.supervise.crash import BUG

__all__ = ["Child", "looked_after", "parent_gone", "stop_all", "stopped_by_signals", "watch"]

logger = logging.getLogger(__name__)

FIRST_DELAY, LONGEST_DELAY = 1.0, 30.0
LOOK_EVERY = 0.25
HEALTHY_AFTER = 60.0  # a child that lived this long starts over with the first delay
GIVE_UP = (2, 4)  # exit codes that a restart does not help: edit the config, an operator must act
RETRY_EVERY = 300.0  # after these: what was wrong may have been mended
CONFIG = 2  # of these, one that helps once it has worked: a password is being changed, or the file edited


@dataclass(slots=True)
class Child:
    """A process of ours. Its standard input is a pipe that we hold open: when we are gone, it reads the end."""

    name: str
    arguments: Sequence[str]
    grace: float  # seconds between being asked to stop and being killed
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    delay: float = FIRST_DELAY
    restart_at: float = 0.0
    gave_up: int | None = None
    worked: bool = False  # it has lived for long enough
    released: bool = False  # it need not wait, and nor do those that come after it

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater", *self.arguments],
            stdin=subprocess.PIPE,
            env=dict(self.environment),
            start_new_session=True,  # a Ctrl-C at the terminal reaches us alone: we stop the children in order
        )
        self.started = time.monotonic()
        logger.info("started %s", self.name, extra={"child": self.name, "pid": self.process.pid})
        if self.released:
            self._write()

    def look(self) -> None:
        """Notice a death, and start again when its time has come."""
        if self.gave_up is not None and time.monotonic() < self.restart_at:
            return
        self.gave_up = None
        if self.process is None:
            if time.monotonic() >= self.restart_at:
                self.start()
            return
        code = self.process.poll()
        if code is None:
            return
        self._forget()
        self.worked = self.worked or time.monotonic() - self.started > HEALTHY_AFTER
        if code in GIVE_UP and not (code == CONFIG and self.worked):
            self.gave_up, self.restart_at = code, time.monotonic() + RETRY_EVERY
            message = f"{self.name} ended with {code}: it is tried again in {RETRY_EVERY / 60:.0f} minutes"
            logger.error(message, extra={"child": self.name})
            return
        if time.monotonic() - self.started > HEALTHY_AFTER:
            self.delay = FIRST_DELAY
        # A failpoint kills once: what is proved is that the next start goes on correctly.
        self.environment = {k: v for k, v in self.environment.items() if k != "HEADWATER_FAILPOINT"}
        self.restart_at = time.monotonic() + self.delay
        level, what = (logging.ERROR, "70, a bug in Headwater") if code == BUG else (logging.WARNING, str(code))
        message = f"{self.name} ended with {what}, starting it again in {self.delay:.0f} s"
        logger.log(level, message, extra={"child": self.name})
        self.delay = min(self.delay * 2, LONGEST_DELAY)

    def try_again(self) -> None:
        """If it has given up: start it now, since something was done about it."""
        if self.gave_up is not None:
            self.restart_at = time.monotonic()

    def _forget(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            with suppress(BrokenPipeError):  # what was written to it and not read is flushed once more
                self.process.stdin.close()
        self.process = None

    def tell(self) -> None:
        """Tell the child that waits for it to go on, now and after every start; see `parent_gone`."""
        self.released = True
        self._write()

    def _write(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.write(b"\n")
                self.process.stdin.flush()

    def ask_to_stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def wait(self, deadline: float) -> int | None:
        """Wait for the end; after the deadline kill. Returns the exit code, None if it was not running."""
        if self.process is None:
            return None
        try:
            return self.process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            logger.error("%s did not stop in time and is killed", self.name, extra={"child": self.name})
            self.process.kill()
            return self.process.wait()


def watch(
    stages: Sequence[Sequence[Child]], stop: threading.Event, done: Callable[[], bool], *, all_needed: bool
) -> int:
    """Look after the children until `stop` is set, or `done`, or a stage cannot go on. Returns an exit code.

    A stage cannot go on when all its children have given up; if all are needed, when one has.
    """
    enough = any if all_needed else all
    while not stop.is_set():
        for stage in stages:
            for child in stage:
                child.look()
        if any(enough(child.gave_up is not None for child in stage) for stage in stages if stage) or done():
            break
        stop.wait(LOOK_EVERY)
    return max((child.gave_up for stage in stages for child in stage if child.gave_up is not None), default=0)


@contextmanager
def looked_after(children: Sequence[Child]) -> Iterator[None]:
    """Inside, another thread keeps the children running."""
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for each in children:
                each.look()
            over.wait(LOOK_EVERY)

    thread = threading.Thread(target=look, name="children", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def stop_all(stages: Sequence[Sequence[Child]]) -> None:
    """Stop stage after stage: what feeds others first, so that those can finish what they were given."""
    for stage in stages:
        for child in stage:
            child.ask_to_stop()
        for child in stage:
            child.wait(time.monotonic() + child.grace)


def parent_gone(stop: threading.Event, grace: float, begin: threading.Event | None = None) -> None:
    """In a child: set `stop` when the supervisor is gone, however it went; after `grace` this process is killed,
    as the supervisor would have done: the next one waits for it. When the supervisor writes a line, `begin` is set.
    """

    def wait() -> None:
        while os.read(0, 1):
            if begin is not None:
                begin.set()
        stop.set()
        time.sleep(grace)
        logger.error("the supervisor is gone, and this process did not stop in time: it ends now")
        os._exit(3)

    threading.Thread(target=wait, name="parent", daemon=True).start()


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
