"""The shop in a thread of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import Event, Thread
from types import TracebackType

import psycopg

from headwater.commands.demo.workload import Tally, Workload
from headwater.errors import Unreachable

__all__ = ["Shop"]


class Shop(AbstractContextManager["Shop"]):
    """The web shop, which writes until `stop` is set."""

    def __init__(self, url: str, stop: Event, rate: float) -> None:
        self._connection = psycopg.connect(url)
        self._workload = Workload(self._connection)
        self._stop = stop
        self._rate = rate
        self._error: psycopg.Error | None = None
        self._thread = Thread(target=self._write, name="shop", daemon=True)
        self._thread.start()

    @property
    def tally(self) -> Tally:
        return self._workload.tally

    def look(self) -> None:
        """Unreachable if a write failed."""
        if self._error is not None:
            raise Unreachable(f"the shop cannot write: {self._error}", hint="start the demo again") from None

    def finish(self) -> None:
        """Stop after the transaction in progress."""
        self._stop.set()
        self._thread.join()
        self.look()

    def one_more(self) -> None:
        """A last transaction, after `finish`, which changes a row."""
        self._workload.step(self._workload.edit_profile)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._connection.close()

    def _write(self) -> None:
        try:
            self._workload.run(self._stop, self._rate)
        except psycopg.Error as error:
            self._error = error
