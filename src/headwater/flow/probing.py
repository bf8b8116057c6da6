"""Does a destination that has failed answer again? It is asked beside the turns, and one that hangs holds up none."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from headwater.errors import HeadwaterError
from headwater.lake.stream import Stream
from headwater.route.lakes import DestinationLake

__all__ = ["Probes"]

MOMENT = 1.0  # seconds that a turn waits for new probes; whoever answers later takes part in a later turn
AT_ONCE = 32


class Probes:
    """The probes of one route that are under way, by the ids of the destinations."""

    def __init__(self) -> None:
        self._asked: dict[str, _Probe] = {}

    def answers(self, lakes: Mapping[str, DestinationLake], stream: Stream[Any]) -> dict[str, str | None]:
        """Those of these destinations that have answered, each with the reason why it cannot be written to, or None.

        The others are being asked, also after this returns.
        """
        self._asked = {id_: probe for id_, probe in self._asked.items() if id_ in lakes}
        free = AT_ONCE - sum(probe.is_alive() for probe in self._asked.values())
        new = {id_: _Probe(lake, stream) for id_, lake in lakes.items() if id_ not in self._asked}
        new = dict(list(new.items())[: max(free, 0)])
        for probe in new.values():
            probe.start()
        until = time.monotonic() + MOMENT
        for probe in new.values():
            probe.join(max(0.0, until - time.monotonic()))
        self._asked |= new
        done = {id_: probe.error for id_, probe in self._asked.items() if not probe.is_alive()}
        self._asked = {id_: probe for id_, probe in self._asked.items() if id_ not in done}
        return done


class _Probe(threading.Thread):
    def __init__(self, lake: DestinationLake, stream: Stream[Any]) -> None:
        super().__init__(name=f"probe of {lake.source}", daemon=True)  # the process need not wait for it
        self._lake, self._stream = lake, stream
        self.error: str | None = None

    def run(self) -> None:
        try:
            sink = self._lake.find(self._stream)
            if sink is not None:  # else it answers as well: it is to be created
                with closing(sink):
                    sink.probe()
        except HeadwaterError as error:
            self.error = str(error)
        except Exception as error:  # a destination's trouble stays its own
            self.error = f"{type(error).__name__}: {error}"
