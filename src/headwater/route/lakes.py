"""The lakes of destinations, opened inside Spark's workers and kept open from poll to poll."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from headwater.change import Position, TableName
from headwater.lake.address import LakeAddress
from headwater.lake.sink import Sink
from headwater.lake.stream import Stream

__all__ = ["DestinationLake", "sink_of"]

MOST_OPEN = 2_000  # in one worker; a DuckLake on SQLite holds no connection, those on one PostgreSQL share theirs


@dataclass(frozen=True, slots=True)
class DestinationLake:
    """Where a destination is: a lake, the table's name there, and the name under which the lake keeps its position."""

    address: LakeAddress
    table: TableName
    source: str


def sink_of(lake: DestinationLake, stream: Stream[Any]) -> Sink[Any, Position]:
    """The destination's sink in this process; opened at most once."""
    return _open.get(lake, stream)


class _Open:
    """What was asked for longest ago is closed first."""

    def __init__(self) -> None:
        self._sinks: OrderedDict[tuple[str, str], Sink[Any, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, lake: DestinationLake, stream: Stream[Any]) -> Sink[Any, Position]:
        key = repr(lake.address), lake.source
        with self._lock:
            if key in self._sinks:
                self._sinks.move_to_end(key)
                return self._sinks[key]
        opened = lake.address.reopen(lake.source, stream)
        with self._lock:
            kept = self._sinks.setdefault(key, opened)
            while len(self._sinks) > MOST_OPEN:
                self._sinks.popitem(last=False)[1].close()
        if kept is not opened:
            opened.close()
        return kept


_open = _Open()
