"""A bound on how fast something is read: whoever is ahead of it sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Throttle"]


class Throttle:
    """So many bytes a second, counted from the first; None: no bound."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._begun, self._bytes = clock(), 0

    def passed(self, size: int) -> None:
        """So many bytes more have been read; returns when that is no longer too soon."""
        if self._rate is None:
            return
        self._bytes += size
        ahead = self._bytes / self._rate - (self._clock() - self._begun)
        if ahead > 0:
            self._sleep(ahead)
