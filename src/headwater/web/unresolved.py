"""How many values of each table are in quarantine and not settled: only the lakes know, and they are asked seldom."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Mapping
from typing import NamedTuple

from headwater.config import Config
from headwater.errors import HeadwaterError
from headwater.state import GroupRow, State
from headwater.status import GroupStatus, Status
from headwater.web.history import TableKey
from headwater.web.quarantine import unresolved_of

__all__ = ["EVERY", "Unresolved"]

logger = logging.getLogger(__name__)

EVERY = 60.0  # seconds, and only after a delivery: it takes memory, and some seconds of a lake in S3


class _Counted(NamedTuple):
    unresolved: int
    total: int  # at that time


class Unresolved:
    """Asks in a thread, one group at a time, so that a lake that does not answer holds up nothing else."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._counted: dict[TableKey, _Counted] = {}
        self._asked: dict[str, tuple[float, Hashable]] = {}  # by group: when, and what was so then
        self._thread: threading.Thread | None = None

    def of(self, config: Config, state: State, status: Status) -> Mapping[TableKey, int]:
        """What is known now; values that came since then are unresolved."""
        for group in status.groups:
            self._ask_if_due(config, state, group)
        counted = dict(self._counted)
        tables = {
            TableKey(group.name, each.table): each.quarantined for group in status.groups for each in group.tables
        }
        return {
            key: known.unresolved + max(tables[key] - known.total, 0) for key, known in counted.items() if key in tables
        }

    def _ask_if_due(self, config: Config, state: State, group: GroupStatus) -> None:
        totals = {each.table: each.quarantined for each in group.tables if each.quarantined}
        now, so = time.monotonic(), (group.delivered_lsn, *totals.items())
        at, then = self._asked.get(group.name, (-EVERY, None))
        busy = self._thread is not None and self._thread.is_alive()
        if not totals or busy or now - at < EVERY or so == then:
            return
        row = state.group(group.name)
        tables = {each.oid: str(each.source) for each in state.tables(group.name)}
        if row is not None and group.name in config.groups:
            self._asked[group.name] = now, so
            self._thread = threading.Thread(
                target=self._ask, args=(config, row, tables, totals), name="quarantine", daemon=True
            )
            self._thread.start()

    def _ask(self, config: Config, group: GroupRow, tables: Mapping[int, str], totals: Mapping[str, int]) -> None:
        try:
            found = unresolved_of(config, self._env, group)
        except HeadwaterError as error:
            logger.debug("the quarantine of group %s is not known: %s", group.name, error)
            self._asked[group.name] = time.monotonic(), None
            return
        for oid, table in tables.items():
            if table in totals:
                self._counted[TableKey(group.name, table)] = _Counted(found.get(oid, 0), totals[table])
