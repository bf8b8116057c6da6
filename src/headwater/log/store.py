"""The staged log of one group: whole transactions, in commit order, durable before the source may forget them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from headwater.change import Lsn, Relation
from headwater.errors import OperatorMustAct
from headwater.log import segment
from headwater.log.folder import Folder
from headwater.log.index import Index, Indexed, Written
from headwater.log.segment import Part
from headwater.state import State

__all__ = ["Batch", "Log", "SegmentRef"]

_YOUNG = timedelta(hours=24)  # an unregistered file may be part of a transaction that is still being read


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment to read. `path` is absolute, or a URI; a reader takes only rows with commit_lsn < the batch's upto."""

    id: int
    path: str
    first_lsn: Lsn
    last_lsn: Lsn
    end_lsn: Lsn
    rows: int
    bytes: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """All there is between the position asked for and `upto`."""

    segments: tuple[SegmentRef, ...]
    upto: Lsn


class Log:
    """One writer, any number of readers."""

    def __init__(self, state: State | str, group: str, root: str) -> None:
        self._state = State.connect(state) if isinstance(state, str) else state
        self.group = group
        self._folder = Folder(root, group)
        self._index = Index(self._state, group)
        self._newest: dict[int, Relation] | None = None
        self._unregistered: set[str] = set()

    def stage(self, columns: Mapping[str, pa.Array]) -> Written:
        """Write changes, in commit order, to a new segment file. It is not part of the log before `register`."""
        table = segment.clustered(columns)
        lsns = pc.min_max(columns["commit_lsn"])
        first, last = Lsn(lsns["min"].as_py()), Lsn(lsns["max"].as_py())
        name = f"{first.value:016X}-{uuid.uuid4().hex}.parquet"  # unique for ever: nothing is overwritten
        self._unregistered.add(name)
        self._folder.write(name, table)
        # Bytes as a reader will hold them, not as the disk does: readers are sized by it.
        return Written(name, first, last, table.num_rows, table.nbytes, segment.parts(table))

    def register(self, written: Sequence[Written], after: Lsn, upto: Lsn) -> None:
        """Append staged files: the log was complete up to `after` and is now complete up to `upto`.

        Tried once. After Unreachable, `end` tells whether it was done.
        """
        self._index.register(written, after, upto)
        self._unregistered.difference_update(each.name for each in written)

    def forget(self) -> None:
        """Give up what was staged and not registered: its files are orphans from now on."""
        self._unregistered.clear()
        self._newest = None

    def relation(self, relation: Relation, lsn: Lsn) -> Relation:
        """The relation with its version id: a new version only if it differs from the newest one known."""
        if self._newest is None:
            self._newest = {each.oid: each for each in self._index.newest()}
        known = self._newest.get(relation.oid)
        if known is None or replace(relation, id=known.id) != known:
            known = replace(relation, id=self._index.add_relation(relation, lsn))
            self._newest[relation.oid] = known
        return known

    def end(self) -> Lsn:
        """The position up to which the log is complete; 0/0 before anything was captured."""
        return self._index.bounds()[1]

    def read(self, after: Lsn, upto: Lsn | None = None, max_rows: int | None = None) -> Batch:
        """What was committed from `after` on, whole transactions, at most up to `upto`, about `max_rows` of them.

        At least one transaction when there is one, however large.
        """
        begin, end = self._index.bounds()  # before the segments: what is registered meanwhile waits for the next read
        if after < begin:
            raise OperatorMustAct(
                f"the log of group {self.group!r} begins at {begin}, {after} was asked for",
                hint="what was between is deleted: the tables must be copied again",
            )
        limit = end if upto is None else min(end, upto)
        if limit <= after:
            return Batch((), after)
        found: list[Indexed] = []
        rows = 0
        for each in self._index.segments(after, limit):
            whole = not found or each.end_lsn != found[-1].end_lsn  # what was registered together is delivered together
            if max_rows is not None and found and whole and rows + each.rows > max_rows:
                limit = min(limit, found[-1].end_lsn)
                break
            found.append(each)
            rows += each.rows
        parts = self._index.parts([each.id for each in found])
        return Batch(tuple(self._ref(each, parts.get(each.id, ())) for each in found), limit)

    def relations(self, ids: Iterable[int]) -> dict[int, Relation]:
        """Relation versions by id."""
        return {each.id: each for each in self._index.relations(sorted(set(ids)))}

    def orphans(self, older_than: timedelta = _YOUNG) -> list[str]:
        """Files that were never registered, or whose segment was trimmed."""
        names = [name for name in self._folder.names(older_than) if name not in self._unregistered]
        registered = self._index.names() if names else set()  # after the listing: a file just registered is no orphan
        return [self._folder.uri_of(name) for name in names if name not in registered]

    def collect_orphans(self, older_than: timedelta = _YOUNG) -> int:
        """Delete orphans; return how many there were."""
        orphans = self.orphans(older_than)
        self._folder.delete(uri.rsplit("/", 1)[1] for uri in orphans)
        return len(orphans)

    def trim(self, before: Lsn, retention: timedelta = timedelta(0)) -> int:
        """Delete segments every reader has passed (their end is at or below `before`) once they are old enough."""
        names = self._index.trim(before, retention)
        self._folder.delete(names)  # after the index: a crash between leaves an orphan, not a hole
        return len(names)

    def _ref(self, each: Indexed, parts: tuple[Part, ...]) -> SegmentRef:
        path = self._folder.uri_of(each.name)
        return SegmentRef(each.id, path, each.first_lsn, each.last_lsn, each.end_lsn, each.rows, each.bytes, parts)
