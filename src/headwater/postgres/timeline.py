"""Which history of a server's WAL this is: each promotion begins another timeline, at an LSN of the one before.

What the old timeline has from there on never happened on the new one, and both use the same LSNs for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headwater.change import Lsn

__all__ = ["Timeline"]


class _Left(NamedTuple):
    """A timeline that was left for the next one at an LSN."""

    id: int
    at: Lsn


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timeline, and those that lead to it."""

    id: int
    before: tuple[_Left, ...] = ()

    @classmethod
    def read(cls, id: int, history: str) -> Timeline:
        """From the content of a history file."""
        lines = (line.split() for line in history.splitlines() if line.strip() and not line.startswith("#"))
        return cls(id, tuple(_Left(int(number), Lsn.parse(at)) for number, at, *_ in lines))

    @classmethod
    def parse(cls, text: str) -> Timeline:
        """Read what `str` has written."""
        *before, id = text.split()
        left = (each.split("@") for each in before)
        return cls(int(id), tuple(_Left(int(number), Lsn.parse(at)) for number, at in left))

    def __str__(self) -> str:
        return " ".join([*(f"{each.id}@{each.at}" for each in self.before), str(self.id)])

    def common(self, other: Timeline) -> Lsn | None:
        """Up to where the WAL of both is the same; None: they are the same timeline."""
        if self == other:
            return None
        begin = Lsn(0)
        for ours, theirs in zip(self._spans(), other._spans(), strict=False):
            if ours.id != theirs.id:
                return begin
            if ours.at != theirs.at:
                return min(ours.at, theirs.at)
            begin = ours.at
        raise AssertionError("the last span of a timeline has no end, so two of them differ before both are over")

    def _spans(self) -> tuple[_Left, ...]:
        return (*self.before, _Left(self.id, _NEVER))


_NEVER = Lsn((1 << 64) - 1)
