"""How much a group's log may grow: `log.max_bytes`, and what is given up of the log before capture has to wait."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence

from headwater.change import Lsn
from headwater.errors import LogFull
from headwater.log import Log
from headwater.state import State
from headwater.state.holding import Holder, holders
from headwater.words import counted, size_text

__all__ = ["GIVEN_UP", "LogRoom"]

logger = logging.getLogger(__name__)

GIVEN_UP = "it was paused while the log reached log.max_bytes, and its changes were deleted"
REPORT_EVERY = 300.0  # seconds
_ENOUGH = 0.9  # of the limit: whoever has waited goes on below it, and so much is left when something is given up
_NEXT_MOVE = {
    "ERRORED": "`headwater status` has its error: correct that, then `headwater table resume {0}`",
    "ERROR": "`headwater status` has its error; it is tried again by itself",
    "SNAPSHOT": "it is being copied, which `headwater status` shows",
    "PENDING": "it waits to be copied: `headwater status` shows whether something keeps it from that",
}
_DELIVERY = "`headwater status` shows whether something keeps it from being delivered"


class LogRoom:
    """Implements `headwater.capture.quota.Room` for the process that captures the group.

    `routes` are the names of those that read the group's log.
    """

    def __init__(self, state: State, log: Log, max_bytes: int, routes: Collection[str] = ()) -> None:
        self._state, self._log, self._limit, self._routes = state, log, max_bytes, routes
        self._warned = float("-inf")

    def grant(self, staged: int, *, waited: bool) -> float:
        limit = self._limit * _ENOUGH if waited else self._limit
        used = self._log.size() + staged
        if used >= limit:
            self._free(used - self._limit * _ENOUGH)
            used = self._log.size() + staged
        if used < limit:
            return limit - used
        if used == staged:  # a transaction that is larger than all the log may be
            self._warn(staged)
            return 1.0
        raise self._full()

    def _free(self, wanted: float) -> None:
        """Give up so many bytes, or all that may go: first what is passed, then what only paused tables still need."""
        holding, cut, end = self._holders(), self._log.end_of_oldest(int(wanted) + 1), self._log.end()
        passed = min([end, *(each.lsn for each in holding)])
        self._trim(passed if cut is None else min(passed, cut))
        if cut is not None and cut <= passed:
            return
        most = min([end, *(each.lsn for each in holding if not each.paused)])
        upto = most if cut is None else min(most, cut)
        if upto > passed:
            self._give_up([each for each in holding if each.paused and each.lsn < upto], upto)
            self._trim(upto)

    def _give_up(self, paused: Sequence[Holder], upto: Lsn) -> None:
        """First the requests: after a crash in between, the tables are copied again without need."""
        for each in paused:
            self._state.request_resync(self._log.group, each.oid, GIVEN_UP, upto)
            logger.error("table %s has to be copied again once it is resumed: %s", each.name, GIVEN_UP)

    def _trim(self, before: Lsn) -> None:
        if gone := self._log.trim(before):
            logger.info("deleted %s of the log to make room", counted(gone, "segment file"))

    def _holders(self) -> list[Holder]:
        routes = [row for row in self._state.routes() if row.name in self._routes] if self._routes else []
        return holders(self._state.tables(self._log.group), routes)

    def _full(self) -> LogFull:
        who, move = "", _DELIVERY
        if first := next((each for each in self._holders() if not each.paused), None):
            who, move = f"; {first}, needs it", _NEXT_MOVE.get(first.state or "", _DELIVERY).format(first.name)
        return LogFull(
            f"the log of group {self._log.group!r} is full, as large as log.max_bytes allows"
            f" ({size_text(self._limit)}): capture waits, and the source keeps its WAL{who}",
            hint=f"{move}; or raise log.max_bytes, and start `headwater run` again",
        )

    def _warn(self, staged: int) -> None:
        if time.monotonic() - self._warned >= REPORT_EVERY:
            self._warned = time.monotonic()
            logger.warning(
                "group %s: transactions in progress have %s in the log, more than log.max_bytes (%s); since nothing"
                " else is in it, they go on",
                *(self._log.group, size_text(staged), size_text(self._limit)),
            )
