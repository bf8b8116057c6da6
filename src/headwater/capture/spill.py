"""Transactions in progress on disk: their files, and what the relations of their rows are, until they end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from headwater import failpoints
from headwater.capture.columns import Versions, cut_columns
from headwater.capture.staging import Complete, Staging
from headwater.capture.streams import Ended, Piece, cut
from headwater.change import Committed, Lsn, Relation

__all__ = ["Spill"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Spilled:
    """One transaction: the meaning of an oid inside it is its own."""

    files: list[Any] = field(default_factory=list)
    versions: Versions = field(default_factory=dict)
    told: dict[int, Relation] = field(default_factory=dict)  # by version id, in the order in which rows used them
    known: dict[int, tuple[Lsn, Relation]] = field(default_factory=dict)  # of these, those that the log has already
    latest: dict[int, int] = field(default_factory=dict)  # version id by oid


class Spill:
    """What the writer keeps of every transaction in progress that does not fit into memory."""

    def __init__(self, log: Staging[Any], complete: Complete) -> None:
        self._log = log
        self._complete = complete
        self._open: dict[int, _Spilled] = {}

    def write(self, piece: Piece) -> None:
        """Stage a piece."""
        spilled = self._open.setdefault(piece.xid, _Spilled())
        columns = cut_columns(cut(piece), spilled.versions, lambda told, _: self._assigned(spilled, told))
        if len(columns["op"]):
            spilled.files.append(self._log.stage(columns))
            failpoints.hit("capture.streamed")

    def commit(self, ended: Ended) -> tuple[list[Any], Versions]:
        """The files to register, and what its relation messages mean for the transactions to come."""
        spilled, commit = self._open.pop(ended.commit.xid), ended.commit
        files, living = self._log.leave_out(spilled.files, ended.aborted)
        renamed = {id: self._settled(spilled, id, commit.commit_lsn, commit.xid) for id in spilled.told if id in living}
        committed = Committed(commit.commit_lsn, _EPOCH + timedelta(microseconds=commit.commit_ts), commit.xid)
        # pgoutput does not tell a relation again after a committed transaction has told it. Where no row is left that
        # used it, the next one that does makes it known; where another one has told it since, that is told again.
        meaning: Versions = {
            oid: version if isinstance(version, Relation) else renamed.get(version, spilled.told[version])
            for oid, version in spilled.versions.items()
        }
        return self._log.settle(files, committed, renamed), meaning

    def drop(self, xids: Iterable[int]) -> None:
        """The transactions were rolled back: their files go."""
        for xid in list(xids):
            if xid in self._open:
                self._log.discard(self._open.pop(xid).files)

    def drop_all(self) -> None:
        """Nobody will hear of their ends: the server will stream them again."""
        self.drop(self._open)

    def _assigned(self, spilled: _Spilled, told: Relation) -> int:
        """A version id for rows that are written before their commit.

        The catalog shows the transaction's own changes only after its commit. Until then the shape is taken for the
        newest known if the message does not contradict it, which is nearly always so and looked at again at the end.
        """
        before, newest = spilled.latest.get(told.oid), self._log.newest(told.oid)
        if before is not None and spilled.told[before] == told:
            return before
        if before is None and newest is not None and _told(newest[1]) == _told(told):
            id = newest[1].id
            spilled.known[id] = newest
        else:
            id = self._log.reserve()
        spilled.told[id], spilled.latest[told.oid] = told, id
        return id

    def _settled(self, spilled: _Spilled, id: int, lsn: Lsn, xid: int) -> int:
        """The version that the id stands for, after all."""
        told, known = spilled.told[id], spilled.known.get(id)
        before = known if known is not None and known[0] <= lsn else self._log.newest(told.oid, lsn)
        whole = self._complete(told, before and before[1], xid)
        if known is None:
            return self._log.relation(whole, lsn, id).id
        return id if before == known and replace(whole, id=id) == known[1] else self._log.relation(whole, lsn).id


def _told(relation: Relation) -> object:
    """What a Relation message says of it."""
    # Under FULL a message calls every column a key, under NOTHING none: that is not our key.
    keyed = relation.identity in ("d", "i")
    columns = [(each.name, each.type_oid, each.typmod, each.key and keyed) for each in relation.columns]
    return relation.table, relation.identity, columns
