"""A thread that looks at the source's catalog, for what happens to tables without a row being sent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

import psycopg

from headwater.capture.partitions import Seen, members, troubles
from headwater.capture.published import look_at_publication
from headwater.capture.replaced import look_at_names
from headwater.capture.shapes import carried, described_all
from headwater.capture.source import object_name
from headwater.capture.spellings import Spellings, respelled, spellings
from headwater.change import Lsn, Relation
from headwater.errors import HeadwaterError, OperatorMustAct
from headwater.state import Partitions, State
from headwater.state.connect import Connection, connect, translated

__all__ = ["Timeline", "Watch", "first_look"]

_logger = logging.getLogger("headwater.capture")
PATIENCE = 30.0  # how long the log is hurried along to where a look was taken


class Timeline(Protocol):
    """The log, as far as shapes are concerned."""

    def newest(self, oid: int) -> tuple[Lsn, Relation] | None: ...
    def add_shape(self, relation: Relation) -> Relation: ...
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
    shapes: Mapping[int, Relation]
    partitions: Mapping[int, Mapping[int, Seen]]
    spellings: Mapping[int, Spellings]
    known: Mapping[int, int]  # the newest versions that the log had then, by table

    def kept(self, oid: int) -> Partitions:
        below = {each: seen.member for each, seen in self.partitions[oid].items()}
        return Partitions(self.lsn, self.horizon, below)


def first_look(source_url: str, state: State, log: Timeline, group: str) -> None:
    """Note how tables look that nobody has looked at yet; to be done before they are copied."""
    with closing(connect(source_url, application_name="headwater watch")) as connection, translated(source_url):
        look = _look(connection, log, group, [row.oid for row in state.tables(group)])
    known = state.partitions(group)
    state.note_partitions(group, {oid: look.kept(oid) for oid in look.partitions if oid not in known})
    spelled = state.spellings(group)
    state.note_spellings(group, {oid: each for oid, each in look.spellings.items() if each and oid not in spelled})
    for oid, shape in look.shapes.items():
        if oid not in look.known:
            log.add_shape(shape)


class Watch(threading.Thread):
    """Looks every few seconds until closed. What cannot be done now is done later, unless an operator must act.

    `failed` is called if it dies.
    """

    def __init__(
        self,
        source_url: str,
        state: State,
        log: Timeline,
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
                _logger.warning("the look at the catalog of group %r is put off: %s", self._group, error)

    def close(self) -> None:
        self._ending.set()
        if self.is_alive():
            self.join()
        self._disconnect()

    def step(self) -> None:
        """Take a look; what is new in it is dealt with once the log has come that far."""
        if self._connection is None:
            # An error rather than only the rows that a policy shows.
            self._connection = connect(self._url, application_name="headwater watch", options="-c row_security=off")
        with translated(self._url):
            look_at_names(self._connection, self._state, self._group, self._first_look)
            if self._pending is None:
                look_at_publication(self._connection, self._state, self._group)
                oids = [row.oid for row in self._state.tables(self._group) if row.state != "PAUSED"]
                look = _look(self._connection, self._log, self._group, oids)
                if not self._news(look):
                    self._state.note_watched(self._group, look.since)
                    return
                self._pending = look
                self._hurry(self._connection, look.lsn)
            if self._log.end() >= self._pending.lsn:
                look, self._pending = self._pending, None
                self._settle(self._connection, look)
                # What was found is delivered by who comes past the log's end of now.
                self._hurry(self._connection, _written(self._connection))
                self._state.note_watched(self._group, look.since)

    def _first_look(self) -> None:
        first_look(self._url, self._state, self._log, self._group)

    def _hurry(self, connection: Connection, lsn: Lsn) -> None:
        """Have log and lake come to a position soon, even if nothing more is written."""
        self._state.add_fence(self._group, lsn, PATIENCE)
        _move_on(connection)  # else an idle server may stop a page header short of that position for ever

    def _news(self, look: _Look) -> bool:
        kept = self._state.partitions(self._group)
        moved = any(oid not in kept or kept[oid].members != look.kept(oid).members for oid in look.partitions)
        return (
            moved
            or bool(self._respelled(look))
            or any(self._following(oid, shape) for oid, shape in look.shapes.items())
        )

    def _respelled(self, look: _Look) -> dict[int, Spellings]:
        """What is known of the tables whose types look otherwise now; nothing of those that are new."""
        kept = self._state.spellings(self._group)
        return {oid: kept.get(oid, {}) for oid, found in look.spellings.items() if found != kept.get(oid, {})}

    def _following(self, oid: int, shape: Relation) -> Relation | None:
        """The shape as a new version, if it is one, or if the table has another file."""
        newest = self._log.newest(oid)
        if newest is None:
            return shape
        following = replace(carried(shape, newest[1]), id=newest[1].id)
        return following if following != newest[1] or following.filenode != newest[1].filenode else None

    def _settle(self, connection: Connection, look: _Look) -> None:
        for oid, shape in look.shapes.items():
            newest = self._log.newest(oid)
            if newest is not None and newest[1].id != look.known.get(oid):
                continue  # a change has told a newer one meanwhile
            if (following := self._following(oid, shape)) is not None:
                self._log.add_shape(following)
        kept = self._state.partitions(self._group)
        for oid, below in look.partitions.items():
            if oid in kept:
                truncated = self._log.truncated(oid, kept[oid].lsn)
                for reason in dict.fromkeys(troubles(connection, kept[oid], below, truncated=truncated)):
                    self._copy_again(look, oid, reason)
        self._state.note_partitions(self._group, {oid: look.kept(oid) for oid in look.partitions})
        for oid, before in self._respelled(look).items():
            if respelled(before, look.spellings[oid]):
                self._copy_again(look, oid, "a label or an attribute of one of its types was changed")
            self._state.note_spellings(self._group, {oid: look.spellings[oid]})

    def _copy_again(self, look: _Look, oid: int, reason: str) -> None:
        _logger.warning("table %s will be copied again: %s", look.shapes[oid].table, reason)
        self._state.request_resync(self._group, oid, reason, look.lsn)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _look(connection: Connection, log: Timeline, group: str, oids: Iterable[int]) -> _Look:
    wanted = list(oids)
    newest = {oid: log.newest(oid) for oid in wanted}  # first: what is told from here on counts as newer
    since = _end(connection)
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        horizon = connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone()
        shapes = described_all(connection, wanted, object_name(group))
        partitions = members(connection, shapes)
        spelled = spellings(connection, shapes)
    assert horizon is not None
    known = {oid: each[1].id for oid, each in newest.items() if each is not None}
    return _Look(since, _end(connection), horizon[0], shapes, partitions, spelled, known)


def _end(connection: Connection) -> Lsn:
    row = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
    assert row is not None
    lsn: Lsn = row[0]
    return lsn


def _written(connection: Connection) -> Lsn:
    """A position after all there is in the WAL and in any log of it."""
    _move_on(connection)
    return _end(connection)


def _move_on(connection: Connection) -> None:
    connection.execute("SELECT pg_logical_emit_message(true, 'headwater', 'look')")
