"""A thread that looks at the source's catalog, for what happens to tables without a row being sent."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

import psycopg

from headwater.capture.evolution import following, raised
from headwater.change import Lsn, Relation
from headwater.errors import HeadwaterError, OperatorMustAct
from headwater.postgres.connect import Connection, connect, translated
from headwater.source import triggers as ddl
from headwater.source.definition import Rewrite
from headwater.source.naming import object_name
from headwater.source.partitions import Partition, Trouble, members, troubles
from headwater.source.publications import look_at_publication
from headwater.source.relations import described_all
from headwater.source.replaced import look_at_names
from headwater.source.server import advance_wal, wal_end
from headwater.state import Partitions, State, TableRow

__all__ = ["Definitions", "Watch", "first_look"]

_logger = logging.getLogger("headwater.capture")
_UNSEEN = "it was altered in a way that no event trigger has reported"
COMPARE_EVERY = 30.0  # seconds between two looks that compare what event triggers have reported with the catalog
PATIENCE = 30.0  # how long the log is hurried along to where a look was taken


class Definitions(Protocol):
    """The log, as far as relation versions are concerned."""

    def newest(self, oid: int) -> tuple[Lsn, Relation] | None: ...
    def add_from_catalog(self, relation: Relation) -> Relation: ...
    def truncated(self, oid: int, since: Lsn) -> set[int]: ...
    def end(self) -> Lsn: ...


@dataclass(frozen=True, slots=True)
class _Look:
    """The catalog between two positions: all of what was committed before `since`, nothing from `lsn` on.

    Every transaction below `horizon` had ended.
    """

    since: Lsn
    lsn: Lsn
    horizon: int
    relations: Mapping[int, Relation]
    partitions: Mapping[int, Mapping[int, Partition]]
    known: Mapping[int, Relation]  # the newest versions that the log had then, by table

    def kept(self, oid: int) -> Partitions:
        below = {each: partition.member for each, partition in self.partitions[oid].items()}
        return Partitions(self.lsn, self.horizon, below)


def first_look(source_url: str, state: State, log: Definitions, group: str) -> None:
    """Note the columns of tables that are not known yet; to be done before they are copied."""
    with closing(connect(source_url, application_name="headwater watch")) as connection, translated(source_url):
        look = _look(connection, log, group, [row.oid for row in state.tables(group)], wal_end(connection))
    known = state.partitions(group)
    state.note_partitions(group, {oid: look.kept(oid) for oid in look.partitions if oid not in known})
    for oid, relation in look.relations.items():
        if oid not in look.known:
            log.add_from_catalog(relation)
    if not look.known:
        state.trust_ddl(group, look.lsn)


class Watch(threading.Thread):
    """Looks every few seconds until closed. What cannot be done now is done later, unless an operator must act.

    `failed` is called if it dies.
    """

    def __init__(
        self,
        source_url: str,
        state: State,
        log: Definitions,
        group: str,
        also: Callable[[], None] = lambda: None,
        *,
        every: float,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name=f"capture-watch-{group}", daemon=True)
        self._url, self._state, self._log, self._group = source_url, state, log, group
        self._also, self._every, self._failed = also, every, failed
        self._failure: BaseException | None = None
        self._ending = threading.Event()
        self._connection: Connection | None = None
        self._pending: _Look | None = None
        self._compared = float("-inf")
        self._traced = False  # event triggers have reported everything that the look shows
        self._doubted = False  # they were thought to do so, and have been removed or altered

    def run(self) -> None:
        try:
            self._look_until_closed()
        except BaseException as error:  # not swallowed: `check` raises it
            self._failure = error
            self._failed()

    def check(self) -> None:
        """Raise what the thread died of, if it did."""
        if self._failure is not None:
            raise self._failure

    def _look_until_closed(self) -> None:
        while not self._ending.wait(self._every):
            try:
                self._also()
                self.step()
            except OperatorMustAct:
                raise
            except (HeadwaterError, psycopg.Error) as error:
                self._disconnect()
                self._pending = None  # it may be another server from here on, which never was as that look shows it
                _logger.warning("the catalog of group %r cannot be read now, and is read later: %s", self._group, error)

    def close(self) -> None:
        self._ending.set()
        if self.is_alive():
            self.join()
        self._disconnect()

    def step(self) -> None:
        """Take a look; what is new in it is dealt with once the log has come that far."""
        if self._connection is None:
            self._connection = connect(self._url, application_name="headwater watch")
        with translated(self._url):
            since = wal_end(self._connection)  # before the names are looked at: they belong to the look, too
            look_at_names(self._connection, self._state, self._group, self._first_look)
            if self._pending is None:
                look_at_publication(self._connection, self._state, self._group)
                self._look_at_triggers(self._connection)
                look = _look(self._connection, self._log, self._group, self._tables(), since)
                if not self._news(look):
                    self._looked(look)
                    return
                self._pending = look
                self._hurry(self._connection, look.lsn)
            if self._log.end() >= self._pending.lsn:
                look, self._pending = self._pending, None
                if self._settle(self._connection, look):
                    self._looked(look)
                # What was found is delivered by who comes past the log's end of now.
                self._hurry(self._connection, _written(self._connection))
                self._state.note_watched(self._group, look.since)

    def _tables(self) -> list[int]:
        """The tables to look at.

        Where event triggers report what is done to them it is all of them only now and then, or when a fence waits
        for a look, and otherwise those with partitions, of which nothing is reported.
        """
        oids = [row.oid for row in self._state.tables(self._group) if row.state != "REMOVED"]
        due = time.monotonic() - self._compared >= COMPARE_EVERY
        if not self._traced or due or self._state.fences(self._group):
            self._compared = time.monotonic()
            return oids
        parted = self._state.partitions(self._group)
        return [oid for oid in oids if oid in parted]

    def _look_at_triggers(self, connection: Connection) -> None:
        """Have they reported everything since the last look?"""
        row, now = self._state.group(self._group), ddl.marks(connection)
        if row is None:
            return
        altered = row.ddl_marks != now
        self._traced = row.ddl_lsn is not None and not altered
        self._doubted = row.ddl_doubted or (row.ddl_lsn is not None and altered)
        if altered:
            if row.ddl_lsn is not None:
                _logger.warning("the event triggers were removed or altered: schema changes are read from the catalog")
            self._state.note_ddl(self._group, now)

    def _looked(self, look: _Look) -> None:
        """Every table's newest version is what the catalog shows: what comes from here on, event triggers report."""
        self._doubted = False
        self._state.trust_ddl(self._group, look.lsn)
        self._state.note_watched(self._group, look.since)

    def _first_look(self) -> None:
        first_look(self._url, self._state, self._log, self._group)

    def _hurry(self, connection: Connection, lsn: Lsn) -> None:
        """Have log and lake come to a position soon, even if nothing more is written."""
        self._state.add_fence(self._group, lsn, PATIENCE)
        advance_wal(connection)

    def _news(self, look: _Look) -> bool:
        kept = self._state.partitions(self._group)
        moved = any(oid not in kept or kept[oid].members != look.kept(oid).members for oid in look.partitions)
        return moved or any(self._following(oid, relation) for oid, relation in look.relations.items())

    def _following(self, oid: int, relation: Relation) -> Relation | None:
        """The version that follows on the newest, if the catalog shows anything else."""
        newest = self._log.newest(oid)
        if newest is None:
            return relation
        before = newest[1]
        rewrite: Rewrite | None = "none" if self._traced and not _altered(before, relation) else None
        now = replace(following(before, relation, rewrite), id=before.id)
        if now == before:
            return None if _same(now, before) else raised(now, _UNSEEN) if self._doubted else now
        return raised(now, _UNSEEN) if self._traced or self._doubted else now

    def _settle(self, connection: Connection, look: _Look) -> bool:
        """Deal with what the look has shown; whether it was all that there is to deal with."""
        overtaken = False
        for oid, relation in look.relations.items():
            newest = self._log.newest(oid)
            if newest is not None and not (oid in look.known and _same(newest[1], look.known[oid])):
                overtaken = True  # by what the stream has brought
                continue
            if (now := self._following(oid, relation)) is not None:
                self._log.add_from_catalog(now)
        kept = self._state.partitions(self._group)
        for oid, below in look.partitions.items():
            if oid in kept:
                truncated = self._log.truncated(oid, kept[oid].lsn)
                found = dict.fromkeys(troubles(connection, kept[oid], below, truncated=truncated))
                self._mend(look, oid, list(found))
        self._state.note_partitions(self._group, {oid: look.kept(oid) for oid in look.partitions})
        return not overtaken

    def _mend(self, look: _Look, oid: int, found: Sequence[Trouble]) -> None:
        """Have the rows removed that went with partitions; if they are not known, or others came, copy all."""
        row = next((row for row in self._state.tables(self._group) if row.oid == oid), None)
        goes_on = row is not None and _goes_on(row)
        for reason, conditions in found:
            if goes_on and conditions is not None and all(each.conditions is not None for each in found):
                _logger.info("table %s loses the rows of a partition: %s", look.relations[oid].table, reason)
                self._state.request_removal(self._group, oid, reason, conditions)
            else:
                self._copy_again(look, oid, reason)

    def _copy_again(self, look: _Look, oid: int, reason: str) -> None:
        _logger.warning("table %s will be copied again: %s", look.relations[oid].table, reason)
        self._state.request_resync(self._group, oid, reason, look.lsn)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _look(connection: Connection, log: Definitions, group: str, oids: Iterable[int], since: Lsn) -> _Look:
    wanted = list(oids)
    newest = {oid: log.newest(oid) for oid in wanted}  # first: what the stream brings from here on counts as newer
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        horizon = connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone()
        relations = described_all(connection, wanted, object_name(group))
        partitions = members(connection, relations)
    assert horizon is not None
    known = {oid: each[1] for oid, each in newest.items() if each is not None}
    return _Look(since, wal_end(connection), horizon[0], relations, partitions, known)


def _goes_on(row: TableRow) -> bool:
    """Whether the table has a mirror and goes on from there, if only once it is resumed or tried again."""
    waits = row.state in ("PAUSED", "ERRORED") and row.position is not None and row.resync is None
    return waits or row.state in ("CATCHUP", "STREAMING")


def _same(one: Relation, other: Relation) -> bool:
    """Whether the catalog has not changed from one to the other; a version keeps its id when only facts do."""
    return (one.id, one.facts, _stamps(one)) == (other.id, other.facts, _stamps(other))


def _stamps(relation: Relation) -> list[str]:
    return [column.stamp for column in relation.columns]


def _altered(before: Relation, now: Relation) -> bool:
    """Whether a column's entry in the catalog is another one, and more than a new file of the table explains that.

    Event triggers report every rewrite but those of VACUUM FULL and CLUSTER, which leave the values as they are. These
    alter the entries of columns that show a default in older rows: it becomes a part of them.
    """
    known = {column.attnum: column.stamp for column in before.columns if column.missing is None}
    return any(column.stamp != known.get(column.attnum, column.stamp) for column in now.columns)


def _written(connection: Connection) -> Lsn:
    """A position after all there is in the WAL and in any log of it."""
    advance_wal(connection)
    return wal_end(connection)
