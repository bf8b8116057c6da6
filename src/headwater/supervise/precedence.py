"""Deliveries to a lake, and what commits beside them in threads of the same process: deliveries go first."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from headwater.errors import CommitConflict
from headwater.lake.maintenance import Ready

__all__ = ["MOMENT", "Precedence"]

MOMENT = 1.0  # seconds that a delivery waits at most for what has not begun to commit
COMMIT = 5.0  # seconds that it waits for a commit that has begun, which takes a moment
PATIENCE = 600.0  # seconds that maintenance waits for a gap between deliveries


class _Holder:
    """Who commits between two deliveries, unless a delivery could not wait so long and is under way."""

    def __init__(self, *, alone: bool) -> None:
        self.alone = alone
        self.lost = False
        self.committing = False


class Precedence:
    """Who is at work on which lake, by any name that its threads agree on.

    A delivery that was planned on files that maintenance has replaced must be planned again. So what maintenance
    commits, it commits between two deliveries, and the next one waits for that moment; if it takes longer, maintenance
    is what is given up. So does a copy, and for that the next delivery waits as long as it takes: a copy that meets a
    delivery of its table would have been for nothing.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._deliveries: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()  # by maintenance, for a moment between deliveries
        self._held: dict[str, _Holder] = {}
        self._rewritten: set[str] = set()
        self._spark = threading.Lock()

    @contextmanager
    def delivery(self, lake: str) -> Iterator[bool]:
        """Inside, a delivery is under way. Whether maintenance has changed the lake since the last one."""
        with self._changed:
            self._changed.wait_for(lambda: not self._gives_way(lake), MOMENT)
            self._changed.wait_for(lambda: not self._is_committing(lake), COMMIT)
            self._changed.wait_for(lambda: lake not in self._held or not self._held[lake].alone)
            if lake in self._held:
                self._held[lake].lost = True
            self._deliveries[lake] += 1
            rewritten = lake in self._rewritten
            self._rewritten.discard(lake)
        try:
            yield rewritten
        finally:
            with self._changed:
                self._deliveries[lake] -= 1
                self._changed.notify_all()

    def between_deliveries(
        self, lake: str, *, alone: bool = False, patience: float = PATIENCE
    ) -> AbstractContextManager[Any]:
        """Inside, no delivery to the lake is under way, for a moment. CommitConflict if there is no gap for so long.

        A `Ready` comes back: CommitConflict if a delivery could not wait until then. With `alone`, there is none
        however long it takes, and no need to ask.
        """
        return self._between(lake, _Holder(alone=alone), patience)

    @contextmanager
    def _between(self, lake: str, holder: _Holder, patience: float) -> Iterator[Ready]:
        with self._changed:
            self._asked[lake] += 1
            try:
                if not self._changed.wait_for(lambda: self._is_free(lake), patience):
                    raise CommitConflict("deliveries leave no moment to commit between them", hint="it comes again")
            finally:
                self._asked[lake] -= 1
            self._held[lake] = holder
        try:
            yield partial(self._begin_commit, holder)
        finally:
            with self._changed:
                del self._held[lake]
                self._rewritten.add(lake)
                self._changed.notify_all()

    def maintaining(self) -> AbstractContextManager[object]:
        """Inside, no other thread has Spark at work for maintenance: each would take a core from deliveries."""
        return self._spark

    def wait_for_quiet(self, patience: float) -> None:
        """Return when no delivery to any lake is under way, or after so many seconds: they must not stop us for ever.

        Else the files of a lake that is written to all the time would never be merged, and deliveries get slower.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._deliveries.total(), patience)

    def _begin_commit(self, holder: _Holder) -> None:
        with self._changed:
            if holder.lost:
                raise CommitConflict("a delivery could not wait until it was written", hint="it comes again")
            holder.committing = True

    def _is_committing(self, lake: str) -> bool:
        return lake in self._held and self._held[lake].committing

    def _is_free(self, lake: str) -> bool:
        return not self._deliveries[lake] and lake not in self._held

    def _gives_way(self, lake: str) -> bool:
        """A delivery does, unless others are under way: then maintenance has to wait for these anyway."""
        return lake in self._held or (self._asked[lake] > 0 and not self._deliveries[lake])
