"""Where a poll's events come from: the one contract between routes and what they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

__all__ = ["EventUnit"]


class EventUnit(Protocol):
    """A bounded part of the events, read inside a Spark task; picklable."""

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    def read(self, columns: Sequence[Any], of_deletes: Sequence[Any]) -> Iterator[pa.Table]:
        """The events: `_position`, `_upsert`, then the row's columns; a delete needs to have `of_deletes` only.

        A position of the stream after which an event counts is less than the event's. If `_seq` comes third, it
        orders the events of one position: all units of a source have it, or none.
        """
        ...
