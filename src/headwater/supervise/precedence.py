"""Deliveries to a lake, and what commits beside them in threads of the same process: deliveries go first."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import CommitConflict

__all__ = ["MOMENT", "Precedence"]

MOMENT = 1.0  # seconds that a delivery waits at most
PATIENCE = 600.0  # seconds that maintenance waits for a gap between deliveries


class Precedence:
    """Who is at work on which lake, by any name that its threads agree on.

    A delivery that was planned on files that maintenance has replaced must be planned again. So what maintenance
    commits, it commits between two deliveries, and the next one waits for that moment. So does a copy, and for that
    the next delivery waits as long as it takes: a copy that meets a delivery of its table would have been for nothing.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._deliveries: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()  # by maintenance, for a moment between deliveries
        self._held: set[str] = set()
        self._alone: set[str] = set()
        self._rewritten: set[str] = set()

    @contextmanager
    def delivery(self, lake: str) -> Iterator[bool]:
        """Inside, a delivery is under way. Whether maintenance has changed the lake since the last one."""
        with self._changed:
            self._changed.wait_for(lambda: not self._gives_way(lake), MOMENT)
            self._changed.wait_for(lambda: lake not in self._alone)
            self._deliveries[lake] += 1
            rewritten = lake in self._rewritten
            self._rewritten.discard(lake)
        try:
            yield rewritten
        finally:
            with self._changed:
                self._deliveries[lake] -= 1
                self._changed.notify_all()

    @contextmanager
    def between_deliveries(self, lake: str, *, alone: bool = False) -> Iterator[None]:
        """Inside, no delivery to the lake is under way, for a moment. CommitConflict if there is no gap for long.

        With `alone`, there is none however long it takes.
        """
        with self._changed:
            self._asked[lake] += 1
            try:
                if not self._changed.wait_for(lambda: self._is_free(lake), PATIENCE):
                    raise CommitConflict("deliveries leave no moment to commit between them", hint="it comes again")
            finally:
                self._asked[lake] -= 1
            self._held.add(lake)
            if alone:
                self._alone.add(lake)
        try:
            yield
        finally:
            with self._changed:
                self._held.discard(lake)
                self._alone.discard(lake)
                self._rewritten.add(lake)
                self._changed.notify_all()

    def wait_for_quiet(self, patience: float) -> None:
        """Return when no delivery to any lake is under way, or after so many seconds: they must not stop us for ever.

        Else the files of a lake that is written to all the time would never be merged, and deliveries get slower.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._deliveries.total(), patience)

    def _is_free(self, lake: str) -> bool:
        return not self._deliveries[lake] and lake not in self._held

    def _gives_way(self, lake: str) -> bool:
        """A delivery does, unless others are under way: then maintenance has to wait for these anyway."""
        return lake in self._held or (self._asked[lake] > 0 and not self._deliveries[lake])
