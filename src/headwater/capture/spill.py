"""Transactions in progress on disk: their files, and what the relations of their rows are, until they end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from headwater import failpoints
from headwater.capture.buffer import Defined, Notice
from headwater.capture.columns import Versions, streamed_columns
from headwater.capture.describer import Describer
from headwater.capture.evolution import same_message
from headwater.capture.inprogress import Ended, StreamedRows, living_rows
from headwater.capture.staging import Staging
from headwater.change import Committed, Lsn, Relation

__all__ = ["Spill"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Spilled:
    """One transaction: the meaning of an oid inside it is its own."""

    files: list[Any] = field(default_factory=list)
    versions: Versions = field(default_factory=dict)
    events: dict[int, Relation | Defined] = field(default_factory=dict)  # by version id, in their order
    known: dict[int, tuple[Lsn, Relation]] = field(default_factory=dict)  # of the versions, those that the log has
    latest: dict[int, int] = field(default_factory=dict)  # version id by oid


@dataclass(frozen=True, slots=True)
class _Assigning:
    """Version ids for rows that are written before their commit."""

    log: Staging[Any]
    spilled: _Spilled

    def describe(self, message: Relation, _: int) -> int:
        """What the message means is only known at the commit.

        Until then it is taken for the newest version if it does not contradict it, which is nearly always so.
        """
        spilled, newest = self.spilled, self.log.newest(message.oid)
        before = spilled.latest.get(message.oid)
        if before is not None and spilled.events[before] == message:
            return before
        if before is None and newest is not None and same_message(message, newest[1]):
            id = newest[1].id
            spilled.known[id] = newest
        else:
            id = self.log.reserve()
        spilled.events[id], spilled.latest[message.oid] = message, id
        return id

    def define(self, notice: Notice) -> None:
        assert isinstance(notice.what, Defined)
        id = self.log.reserve()
        self.spilled.events[id] = notice.what
        self.spilled.latest[notice.what.oid] = id  # from here on no message means what it meant


class Spill:
    """What the writer keeps of every transaction in progress that does not fit into memory."""

    def __init__(self, log: Staging[Any], describer: Describer, stage: Callable[[Mapping[str, pa.Array]], Any]) -> None:
        self._log = log
        self._describer = describer
        self._stage = stage
        self._open: dict[int, _Spilled] = {}

    @property
    def file_bytes(self) -> int:
        """Of all files of transactions in progress."""
        return sum(file.file_bytes for each in self._open.values() for file in each.files)

    def write(self, streamed: StreamedRows) -> None:
        """Stage rows of a transaction in progress."""
        spilled = self._open.setdefault(streamed.xid, _Spilled())
        columns = streamed_columns(living_rows(streamed), spilled.versions, _Assigning(self._log, spilled))
        if len(columns["op"]):
            spilled.files.append(self._stage(columns))
            failpoints.hit("capture.streamed")

    def commit(self, ended: Ended) -> tuple[list[Any], Versions]:
        """The files to register, and what its relation messages mean for the transactions to come."""
        spilled, commit = self._open.pop(ended.commit.xid), ended.commit
        files, living = self._log.leave_out(spilled.files, ended.aborted)
        renamed = self._settled(spilled, ended, living)
        committed = Committed(commit.commit_lsn, _EPOCH + timedelta(microseconds=commit.commit_ts), commit.xid)
        # pgoutput does not send a relation again after a committed transaction has sent it. Where no row is left that
        # used it, the next one that does makes it known; where another one has sent it since, that one is noted again.
        meaning: Versions = {}
        for oid, version in spilled.versions.items():
            message = version if isinstance(version, Relation) else spilled.events[version]
            assert isinstance(message, Relation)
            meaning[oid] = message if isinstance(version, Relation) else renamed.get(version, message)
        return self._log.settle(files, committed, renamed), meaning

    def drop(self, xids: Iterable[int]) -> None:
        """The transactions were rolled back: their files go."""
        for xid in list(xids):
            if xid in self._open:
                self._log.discard(self._open.pop(xid).files)

    def drop_all(self) -> None:
        """Their ends will not be read: the server will stream them again."""
        self.drop(self._open)

    def _settled(self, spilled: _Spilled, ended: Ended, living: Collection[int]) -> dict[int, int]:
        """By version id that rows have: the version that it stands for, after all."""
        lsn, xid, aborted = ended.commit.commit_lsn, ended.commit.xid, set(ended.aborted.tolist())
        renamed: dict[int, int] = {}
        for id, what in spilled.events.items():
            if isinstance(what, Relation):
                if id in living:
                    renamed[id] = self._describer.described(what, lsn, xid, None if id in spilled.known else id).id
            elif what.xid not in aborted:
                self._describer.defined(what.content, lsn, id)
        return renamed
