"""The staged log of one group: whole transactions, in commit order, durable before the source may forget them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.change import Committed, Lsn, NewestCommit, Relation
from headwater.errors import LogGap, OperatorMustAct, Unreachable
from headwater.log import segment
from headwater.log.folder import Folder, place
from headwater.log.identity import strange_log
from headwater.log.index import Index, Indexed, Written
from headwater.log.slices import LogSlice, segment_ref
from headwater.log.versions import Evidence, Versions
from headwater.state import Location, State
from headwater.words import counted

__all__ = ["Log"]

_MENDS = "start `headwater run`: it copies the tables that need them again"
_YOUNG = timedelta(hours=24)  # an unregistered file may be part of a transaction that is still being read


class Log:
    """One writer, any number of readers."""

    def __init__(self, state: State | str, group: str, root: str) -> None:
        self._state = State.connect(state) if isinstance(state, str) else state
        self.group = group
        self._root = root
        self._index = Index(self._state, group)
        self._versions = Versions(self._state, group)

    @cached_property
    def _folder(self) -> Folder:
        row = self._state.group(self.group)
        assert row is not None, "a group is made before its log is used"
        return Folder(self._root, place(row.source_id, self.group))

    def claim(self) -> None:
        """Make the folder the group's log, if it is new or is that already; OperatorMustAct if it is another's."""
        self._state.record_log(self.group, self._claimed)

    def strange(self) -> OperatorMustAct | None:
        """Why the folder cannot be the group's log; None if it can."""
        row = self._state.group(self.group)
        return self._strange(self._folder.id(), row.log if row else None)

    def missing(self) -> list[str]:
        """Registered segments whose files are gone."""
        return self._folder.missing(
            sorted(self._index.names())
        )  # first the index: a file exists before it is registered

    def changed(self, names: Collection[str]) -> list[tuple[int, Lsn, Lsn]]:
        """The tables with changes in these segments: OID, the last of these commits, and the end of its segment."""
        return self._index.changed(names)

    def lose(self, names: Collection[str]) -> None:
        """Go on without segments whose files are gone: tables that need them must be copied again."""
        self._index.lose(names)

    def remove(self) -> int:
        """Delete the folder with everything in it; return how many segments there were."""
        return self._folder.remove()

    def sweep(self) -> int:
        """Delete every file that is not registered; only for the one writer, before it stages anything."""
        with self._index.still():  # a writer that we have replaced registers before us, or finds its file gone
            orphans = set(self._folder.names()) - self._index.names()
            self._folder.delete(orphans)
        return len(orphans)

    def stage(self, columns: Mapping[str, pa.Array]) -> Written:
        """Write changes, in commit order, to a new segment file. It joins the log with `register`.

        Changes of a transaction in progress have commit_lsn 0, and need `settle` before that.
        """
        table = segment.clustered(columns)
        lsns = pc.min_max(columns["commit_lsn"])
        first, last = Lsn(lsns["min"].as_py()), Lsn(lsns["max"].as_py())
        name, file_bytes = self._write(table, first)
        times = pc.min_max(columns["commit_ts"])
        commits = times["min"].as_py(), times["max"].as_py()
        # Bytes in memory, too: a reader's memory is planned by them.
        sizes = table.num_rows, table.nbytes, file_bytes
        return Written(name, first, last, *sizes, *commits, segment.parts(table))

    def leave_out(self, written: Sequence[Written], xids: npt.NDArray[np.int64]) -> tuple[list[Written], set[int]]:
        """A streamed transaction's files without the rows of these subtransactions, and the relation versions left.

        A file of which nothing is left is deleted.
        """
        files = [self._living(each, xids) for each in written] if len(xids) else list(written)
        left = [each for each in files if each.rows]
        self.discard([each for each in files if not each.rows])
        return left, {part.relation_id for each in left for part in each.parts}

    def settle(self, written: Sequence[Written], commit: Committed, versions: Mapping[int, int]) -> list[Written]:
        """A streamed transaction's files, now that it has committed; `versions` renames relation versions."""
        changed = {old: new for old, new in versions.items() if old != new}
        return [self._settled(each, commit, changed) for each in written]

    def register(self, written: Sequence[Written], after: Lsn, upto: Lsn) -> None:
        """Append staged files: the log was complete up to `after` and is now complete up to `upto`.

        Tried once. After Unreachable, `end` shows whether it was done.
        """
        names = [each.name for each in written]
        self._index.register(written, after, upto, lambda: self._check_there(names))

    def discard(self, written: Sequence[Written]) -> None:
        """Delete staged files."""
        self._folder.delete(each.name for each in written)

    def forget(self) -> None:
        """Give up what was staged and not registered: its files are now orphans."""
        self._versions.forget()

    def relation(
        self,
        relation: Relation,
        lsn: Lsn,
        before: Relation | None = None,
        id: int | None = None,
        *,
        defined: bool = False,
    ) -> Relation:
        """The relation with its version id, as it follows `before` in a transaction that commits at `lsn`.

        With an id from `reserve` it is always a new version. `defined`: the version counts even without rows.
        """
        evidence: Evidence = "ddl" if defined else "rows"
        if id is not None:
            return self._versions.add(replace(relation, id=id), lsn, evidence)
        return self._versions.version(relation, lsn, before, evidence)

    def distrust(self) -> None:
        """Event triggers have not reported everything: until they are checked again, the catalog is read."""
        self._state.note_ddl(self.group, None)

    def reserve(self) -> int:
        """An id for a relation version that is to come."""
        return self._versions.reserve()

    def newest(self, oid: int, upto: Lsn | None = None) -> tuple[Lsn, Relation] | None:
        """The newest version of a table, and its first LSN; with `upto`, before the transaction that commits there."""
        return self._versions.newest(oid, upto)

    def relation_at(self, oid: int, position: Lsn) -> Relation | None:
        """The version of a table at a position; unlike `newest`, for any reader of the log."""
        found = self._versions.at(oid, position)
        return None if found is None else found[1]

    def add_from_catalog(self, relation: Relation) -> Relation:
        """A table as the catalog shows it, valid from the log's end on: a new version if it differs from the newest."""
        return self._versions.from_catalog(relation)

    def defined(self, oids: Iterable[int], after: Lsn, before: Lsn) -> dict[int, tuple[Lsn, Relation]]:
        """The newest version of each table that counts without a row, and where, with after <= lsn < before."""
        return self._versions.defined(oids, after, before)

    def generations(self, positions: Mapping[int, Lsn]) -> dict[int, int]:
        """The generation of each table at the position given for it; 0 if the table is not known there."""
        return self._versions.generations(positions)

    def truncated(self, oid: int, since: Lsn) -> set[int]:
        """The transactions (subtransactions, where known) that truncated the table since then, and maybe earlier ones.

        A TRUNCATE whose segment is gone is not among them.
        """
        xids: set[int] = set()
        for name, versions in self._index.truncations(oid, since):
            if self._folder.missing([name]):
                continue
            rows = self._folder.read(name, ["relation", "op", "xid"])
            ours = pc.is_in(rows["relation"], pa.array(versions, pa.int64()))
            xids.update(rows.filter(pc.and_(ours, pc.equal(rows["op"], ord("T"))))["xid"].to_pylist())
        return xids

    def begin(self) -> Lsn:
        """The position at which the log begins: changes committed before it are not in it."""
        return self._index.bounds()[0]

    def reaches(self, position: Lsn) -> bool:
        """Whether the log has every change that was committed from there on; segments that were lost, it has not."""
        return self._index.whole_from() <= position

    def end(self) -> Lsn:
        """The position up to which the log is complete; 0/0 before anything was captured."""
        return self._index.bounds()[1]

    def read(self, after: Lsn, upto: Lsn | None = None, max_rows: int | None = None) -> LogSlice:
        """Whole transactions committed from `after` on, at most up to `upto`, about `max_rows` rows of them.

        At least one transaction if there is one, however large. LogGap if some of it is gone.
        """
        begin, end = self._index.bounds()  # before the segments: what is registered from now on waits for the next read
        if after < begin:
            raise LogGap(f"the log of group {self.group!r} begins at {begin}, {after} was asked for", hint=_MENDS)
        limit = end if upto is None else min(end, upto)
        if limit <= after:
            return LogSlice((), after)
        found: list[Indexed] = []
        rows = 0
        for each in self._index.segments(after, limit):
            whole = (
                not found or each.end_lsn != found[-1].end_lsn
            )  # segments registered together are delivered together
            if max_rows is not None and found and whole and rows + each.rows > max_rows:
                limit = min(limit, found[-1].end_lsn)
                break
            found.append(each)
            rows += each.rows
        if gone := self._folder.missing([each.name for each in found]):
            raise LogGap(f"the log {self._folder.uri!r} has lost {counted(len(gone), 'segment')}", hint=_MENDS)
        parts = self._index.parts([each.id for each in found])
        refs = (segment_ref(each, self._folder.uri_of(each.name), parts.get(each.id, ())) for each in found)
        return LogSlice(tuple(refs), limit, self._newest(found, limit))

    def relations(self, ids: Iterable[int]) -> dict[int, Relation]:
        """Relation versions by id, in the order of the timeline, which need not be that of the ids."""
        return self._versions.by_id(ids)

    def orphans(self, older_than: timedelta = _YOUNG) -> list[str]:
        """Files that were never registered, or whose segment was trimmed."""
        names = list(self._folder.names(older_than))
        registered = self._index.names() if names else set()  # after the listing: a file registered since is no orphan
        return [self._folder.uri_of(name) for name in names if name not in registered]

    def collect_orphans(self, older_than: timedelta = _YOUNG) -> int:
        """Delete orphans; return how many there were."""
        orphans = self.orphans(older_than)
        self._folder.delete(uri.rsplit("/", 1)[1] for uri in orphans)
        return len(orphans)

    def size(self) -> int:
        """Bytes of the registered segments on disk."""
        return self._index.size()

    def end_of_oldest(self, size: int) -> Lsn | None:
        """Where the oldest segments end that have so many bytes together; None: all of them have fewer."""
        return self._index.end_of_oldest(size)

    def trim(self, before: Lsn, retention: timedelta = timedelta(0)) -> int:
        """Delete segments that every reader has passed (they end at or below `before`) and that are old enough."""
        names = self._index.trim(before, retention)
        self._folder.delete(names)  # after the index: a crash in between leaves an orphan, not a gap
        return len(names)

    def _newest(self, segments: Sequence[Indexed], before: Lsn) -> NewestCommit | None:
        """The newest commit before a position; a segment that goes past it is read for that."""
        whole = [NewestCommit(each.last_lsn, each.last_commit) for each in segments if each.last_lsn < before]
        cut = [newest for each in segments if each.last_lsn >= before for newest in self._commits(each.name, before)]
        found = [*whole, *cut]
        return NewestCommit(max(each.lsn for each in found), max(each.ts for each in found)) if found else None

    def _commits(self, name: str, before: Lsn) -> list[NewestCommit]:
        rows = self._folder.read(name, ["commit_lsn", "commit_ts"])
        rows = rows.filter(pc.less(rows["commit_lsn"], before.value))
        lsn, ts = pc.max(rows["commit_lsn"]).as_py(), pc.max(rows["commit_ts"]).as_py()
        return [] if lsn is None else [NewestCommit(Lsn(lsn), ts)]

    def _claimed(self, recorded: Location | None) -> Location:
        found = self._folder.id()
        if problem := self._strange(found, recorded):
            raise problem
        if found is None or recorded is None:
            found = uuid.uuid4().hex
            self._folder.identify(found)
        return Location(self._folder.root, found)

    def _strange(self, found: str | None, recorded: Location | None) -> OperatorMustAct | None:
        copied = recorded is not None and found == recorded.id and self._folder.is_copy_of(recorded.place)
        return strange_log(self.group, self._folder.root, found, recorded, copied=copied)

    def _write(self, table: pa.Table, first: Lsn) -> tuple[str, int]:
        """The name of a new file, and its size."""
        name = f"{first.value:016X}-{uuid.uuid4().hex}.parquet"  # unique: no file is ever overwritten
        return name, self._folder.write(name, table)

    def _living(self, each: Written, xids: npt.NDArray[np.int64]) -> Written:
        table = self._folder.read(each.name, ["relation", "xid"])
        parts, aborted = segment.living(each.parts, table, xids)
        return replace(each, rows=sum(part.rows for part in parts), parts=parts, aborted=frozenset(aborted))

    def _settled(self, each: Written, commit: Committed, versions: Mapping[int, int]) -> Written:
        lsn = commit.lsn
        if versions.keys() & {part.relation_id for part in each.parts}:
            name, file_bytes = self._write(segment.renamed(self._folder.read(each.name), versions), lsn)
            self.discard([each])
            each = replace(each, name=name, file_bytes=file_bytes)
        parts = (
            replace(part, relation_id=versions.get(part.relation_id, part.relation_id), first_lsn=lsn, last_lsn=lsn)
            for part in each.parts
        )
        return replace(
            each,
            first_lsn=lsn,
            last_lsn=lsn,
            first_commit=commit.ts,
            last_commit=commit.ts,
            parts=tuple(parts),
            streamed=commit,
        )

    def _check_there(self, names: Sequence[str]) -> None:
        missing = self._folder.missing(names)
        if missing:
            raise Unreachable(
                f"the segment {self._folder.uri_of(missing[0])!r} was deleted before it was registered",
                hint="the source sends it again; let only one headwater capture the group",
            )
