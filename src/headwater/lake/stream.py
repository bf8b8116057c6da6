"""The streams of changes that end in a lake: what their positions are, and what they may bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from headwater.change import Lsn, Position, SnapshotId

__all__ = ["FEED", "STAGED", "WAL", "P", "Stream"]

P = TypeVar("P", bound=Position)  # of the stream that ends in the lake


@dataclass(frozen=True, slots=True)
class Stream(Generic[P]):
    """A kind of stream. `misfits`: it may bring values that a lake's types cannot hold.

    Without misfits, a DuckLake gets no quarantine.
    """

    position: type[P]
    misfits: bool


WAL = Stream(Lsn, misfits=True)  # PostgreSQL's, or a group's log of it
STAGED = Stream(Lsn, misfits=False)  # a group's log, as a route carries it on: misfits are in the group's own lake
FEED = Stream(SnapshotId, misfits=False)  # the changes of a DuckLake's tables
