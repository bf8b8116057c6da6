"""What a destination's events amount to, in plain Python. `net.py` does the same on Arrow; a property test compares.

Read it as the specification of a route. Each image of a change goes by its own routing value, so a row that moves from
one destination to another is a delete there and an upsert here. The source's row ids play no part: they are reused.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Event", "Folded", "apply", "fold"]

Key = Hashable
Row = tuple[Any, ...]


class Event(NamedTuple):
    """A row that came into being, or one that ceased to be, at a position of the source.

    `seq` orders the events of one position, where the source knows their order: those of a transaction in the WAL.
    """

    position: int
    upsert: bool
    key: Key
    row: Row = ()
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Folded:
    """The rows that come, by key, and the keys whose row, if there is one, goes first."""

    upserts: dict[Key, Row] = field(default_factory=dict)
    gone: frozenset[Key] = frozenset()


def fold(events: Iterable[Event], after: int) -> Folded:
    """The events after a position → the last one of each key; what has no other order, a delete comes before an upsert.

    A key without a delete was not there before, as keys are unique in the source: nothing needs to be looked for.
    """
    new = (each for each in events if each.position > after)
    counting = sorted(new, key=lambda each: (each.position, each.seq, each.upsert))
    last = {each.key: each for each in counting}
    return Folded(
        {key: each.row for key, each in last.items() if each.upsert},
        frozenset(each.key for each in counting if not each.upsert),
    )


def apply(folded: Folded, before: Mapping[Key, Row]) -> dict[Key, Row]:
    """The destination after the events, from the destination before them."""
    return {key: row for key, row in before.items() if key not in folded.gone} | folded.upserts
