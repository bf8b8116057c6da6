"""What the tables of the groups' lakes are made of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing

from headwater.change import TableName
from headwater.config import Config
from headwater.errors import HeadwaterError
from headwater.lake.maintenance import Figures
from headwater.lake.stream import WAL
from headwater.sink.addresses import group_lake
from headwater.state import GroupRow
from headwater.supervise.lakes import source_name

__all__ = ["LakeFigures"]

FRESH = 10.0  # seconds: whoever watches asks every second, and this changes slowly


class LakeFigures:
    """Asks the lakes now and then."""

    def __init__(self, config: Config, env: Mapping[str, str]) -> None:
        self._config, self._env = config, env
        self._known: dict[str, tuple[float, Mapping[TableName, Figures]]] = {}

    def of(self, group: GroupRow) -> Mapping[TableName, Figures]:
        """By the tables' names in the lake; nothing of a lake that does not answer."""
        at, known = self._known.get(group.name, (-FRESH, {}))
        if time.monotonic() - at >= FRESH:
            known = self._asked(group)
            self._known[group.name] = time.monotonic(), known
        return known

    def _asked(self, group: GroupRow) -> Mapping[TableName, Figures]:
        try:
            sink = group_lake(self._config, self._env, group.name).find(source_name(group.source_id, group.name), WAL)
            if sink is None:
                return {}
            with closing(sink):
                maintenance = sink.maintenance()
                return maintenance.figures() if maintenance else {}
        except (HeadwaterError, OSError):
            return {}
