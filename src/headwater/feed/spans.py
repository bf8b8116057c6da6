"""What the versions of rows come to as events, in plain numbers.

Every version of a row was made by one snapshot and is ended by another, or by none yet. A snapshot shows the versions
that were made by it or before, and not ended by it or before. So what a span of snapshots `(after, upto]` changes is
this: each version made in it is an upsert, each version ended in it a delete. A version that ended in the snapshot that
made it was never shown, and is no event.

It follows that the snapshots between `after` and `upto` may be expired: the catalog keeps each version that a retained
snapshot shows, so it has those that `after` or `upto` show. Of a version that only expired snapshots showed, both
events are there, or neither: what `after` shows, with the events applied, is what `upto` shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.ducklake.model import RowNumbers

__all__ = ["NEVER", "Events", "Moment", "Snapshots", "Span"]

Snapshots = npt.NDArray[np.int64]  # a snapshot's id for each row
NEVER = 2**63 - 1  # the end of a version that is alive


class Events(NamedTuple):
    """Which rows are upserted and which are deleted, by their places in a piece, and the snapshots that did it."""

    upserted: RowNumbers
    upserted_at: Snapshots
    deleted: RowNumbers
    deleted_at: Snapshots


@dataclass(frozen=True, slots=True)
class Span:
    """The snapshots `(after, upto]`. `first_file` is the number of the first file that was registered after `after`.

    In the snapshots `quiet`, files were replaced by others with the same rows.
    """

    after: int
    upto: int
    first_file: int
    quiet: frozenset[int] = frozenset()

    def holds(self, snapshot: int | None) -> bool:
        return snapshot is not None and self.after < snapshot <= self.upto

    def events(self, made: Snapshots, ended: Snapshots) -> Events:
        shown = ended > made
        upserted = np.flatnonzero(shown & (made > self.after) & (made <= self.upto) & ~np.isin(made, list(self.quiet)))
        deleted = np.flatnonzero(shown & (ended > self.after) & (ended <= self.upto))
        return Events(upserted, made[upserted], deleted, ended[deleted])


@dataclass(frozen=True, slots=True)
class Moment:
    """One snapshot, all of whose rows are wanted: each is an upsert at it."""

    snapshot: int

    def events(self, made: Snapshots, ended: Snapshots) -> Events:
        alive = np.flatnonzero((made <= self.snapshot) & (ended > self.snapshot))
        nothing = np.empty(0, np.int64)
        return Events(alive, np.full(len(alive), self.snapshot, np.int64), nothing, nothing)
