"""The lakes of destinations, opened inside Spark's workers and kept open from poll to poll."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from headwater.change import Position, TableName
from headwater.lake.address import LakeAddress
from headwater.lake.sink import Sink
from headwater.lake.stream import P, Stream

__all__ = ["DestinationLake", "sink_of"]

PATIENCE = 5  # seconds for a lock of another client, or for a server's first answer: then a destination has failed
HURRIED = 1  # for each further one, once another has failed so: they are many perhaps
MOST_OPEN = 2_000  # in one worker; a DuckLake on SQLite holds no connection, those on one PostgreSQL share theirs


@dataclass(frozen=True, slots=True)
class DestinationLake:
    """Where a destination is: a lake, the table's name there, and the name under which the lake keeps its position."""

    address: LakeAddress
    table: TableName
    source: str
    wait: int = PATIENCE

    def hurried(self) -> DestinationLake:
        return replace(self, wait=HURRIED)

    def find(self, stream: Stream[P]) -> Sink[Any, P] | None:
        """As `LakeAddress.find`. In all three, whoever keeps us waiting has failed: the others are not to wait, too."""
        return self.address.within(self.wait).find(self.source, stream)

    def reopen(self, stream: Stream[P]) -> Sink[Any, P]:
        return self.address.within(self.wait).reopen(self.source, stream)

    def open(self, stream: Stream[P]) -> Sink[Any, P]:
        return self.address.within(self.wait).open(self.source, stream)


def sink_of(lake: DestinationLake, stream: Stream[Any]) -> Sink[Any, Position]:
    """The destination's sink in this process; opened at most once."""
    return _open.get(lake, stream)


class _Open:
    """What was asked for longest ago is closed first."""

    def __init__(self) -> None:
        self._sinks: OrderedDict[tuple[str, str, int], Sink[Any, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, lake: DestinationLake, stream: Stream[Any]) -> Sink[Any, Position]:
        key = repr(lake.address), lake.source, lake.wait
        with self._lock:
            if key in self._sinks:
                self._sinks.move_to_end(key)
                return self._sinks[key]
        opened = lake.reopen(stream)
        with self._lock:
            kept = self._sinks.setdefault(key, opened)
            while len(self._sinks) > MOST_OPEN:
                self._sinks.popitem(last=False)[1].close()
        if kept is not opened:
            opened.close()
        return kept


_open = _Open()
