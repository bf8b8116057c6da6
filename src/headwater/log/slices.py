"""What a reader of the log gets: the segments between two positions, and what each of them holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headwater.change import Committed, Lsn, NewestCommit
from headwater.log.index import Indexed
from headwater.log.segment import Part

__all__ = ["LogSlice", "SegmentRef", "segment_ref"]


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment to read. `path` is absolute, or a URI; a reader takes only rows with commit_lsn < the batch's upto.

    With a `commit` it is part of a transaction that was streamed: all rows have this commit, and rows whose xid is in
    `aborted` do not count (see segment.py). `rows` and the counts of the parts leave them out, `ops` may not.
    """

    id: int
    path: str
    first_lsn: Lsn
    last_lsn: Lsn
    end_lsn: Lsn
    rows: int
    bytes: int
    first_commit: datetime  # by the source's clock
    age: float  # seconds in the log, when it was read
    parts: tuple[Part, ...]
    commit: Committed | None = None
    aborted: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Everything in the log between the position asked for and `upto`; `newest` is None if that is nothing."""

    segments: tuple[SegmentRef, ...]
    upto: Lsn
    newest: NewestCommit | None = None


def segment_ref(segment: Indexed, path: str, parts: tuple[Part, ...]) -> SegmentRef:
    """A registered segment as its readers see it."""
    commit = None
    if segment.streamed_ts is not None and segment.streamed_xid is not None:
        commit = Committed(segment.last_lsn, segment.streamed_ts, segment.streamed_xid)
    return SegmentRef(
        segment.id,
        path,
        segment.first_lsn,
        segment.last_lsn,
        segment.end_lsn,
        segment.rows,
        segment.bytes,
        segment.first_commit,
        segment.age,
        parts,
        commit,
        frozenset(segment.aborted),
    )
