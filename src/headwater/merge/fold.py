"""What a batch of changes amounts to, in plain Python. `net.py` does the same on Arrow; a property test compares them.

Read it as the specification of the merge: `fold` is the whole meaning, and `apply` says what its answer means.
UNCHANGED values come from an earlier change to the same row in the batch, also under the key it had then, else from
the row in the lake. `net.py` only says where each is to be looked for; `rows.py` does the looking.
Tables without a key are not in it: their fold is a subtraction of how often each row went from how often it came.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

__all__ = ["UNCHANGED", "Event", "Folded", "NetChange", "apply", "fold"]

Key = Hashable
Row = tuple[Any, ...]


class _Mark(Enum):
    UNCHANGED = "a TOASTed value that the update left alone, and PostgreSQL therefore did not send"


UNCHANGED = _Mark.UNCHANGED


@dataclass(frozen=True, slots=True)
class Event:
    """One change in commit order. `old_key` comes with an update that changed the key."""

    op: Literal["insert", "update", "delete", "truncate"]
    key: Key = None
    row: Row = ()
    old_key: Key = None


@dataclass(frozen=True, slots=True)
class NetChange:
    """The last operation on a key."""

    op: Literal["upsert", "delete"]
    event: Event  # the one that won
    existed: bool  # whether a row may have had this key before the batch: its first operation is not an insert
    row: Row = ()  # the winner's, its UNCHANGED values taken from earlier in the batch where they were set there
    base: Key = None  # if some are UNCHANGED still: the key, before the batch, of the row that has them


@dataclass(frozen=True, slots=True)
class Folded:
    net: dict[Key, NetChange] = field(default_factory=dict)
    truncated: bool = False  # every row from before the batch goes first


def fold(history: Iterable[Event]) -> Folded:
    """A key's history in the batch → its last operation."""
    folded = Folded()
    for event in history:
        if event.op == "truncate":
            folded = Folded(truncated=True)  # drops what came before it
        elif event.op == "insert":
            _put(folded, event.key, NetChange("upsert", event, False, event.row))
        elif event.op == "delete":
            _put(folded, event.key, NetChange("delete", event, True))
        else:
            old = event.key if event.old_key is None else event.old_key
            row, base = _completed(event.row, folded.net.get(old), old)
            moved = old != event.key  # then it is a delete of the old and an upsert of the new, which was free
            if moved:
                _put(folded, old, NetChange("delete", event, True))
            _put(folded, event.key, NetChange("upsert", event, not moved, row, base))
    return folded


def apply(folded: Folded, before: Mapping[Key, Row]) -> dict[Key, Row]:
    """The table after the batch, from the table before it."""
    after = {key: row for key, row in before.items() if not folded.truncated and key not in folded.net}
    for key, net in folded.net.items():
        if net.op == "upsert":
            after[key] = net.row if net.base is None else _filled(net.row, before[net.base])
    return after


def _put(folded: Folded, key: Key, net: NetChange) -> None:
    first = folded.net.get(key)
    folded.net[key] = replace(net, existed=first.existed) if first else net


def _completed(row: Row, earlier: NetChange | None, key: Key) -> tuple[Row, Key]:
    """Take UNCHANGED values from the row's earlier version in the batch, else say whose row before it has them."""
    row = _filled(row, earlier.row) if earlier else row
    base = earlier.base if earlier else key
    return row, base if UNCHANGED in row else None


def _filled(row: Row, older: Row) -> Row:
    return tuple(old if new is UNCHANGED else new for new, old in zip(row, older, strict=True))
