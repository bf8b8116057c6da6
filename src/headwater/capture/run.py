"""Capturing a group for as long as it is wanted: prepare the source, stream, and start again when something breaks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from headwater.capture.completion import CatalogReader
from headwater.capture.conversion import converting, server_conversion
from headwater.capture.promotion import follow
from headwater.capture.quota import Quota, Room, Unlimited
from headwater.capture.staging import Staging
from headwater.capture.stream import ROLL_BYTES, Stream
from headwater.capture.writer import Writer
from headwater.change import Lsn, TableName
from headwater.errors import AccessDenied, ConfigError, HeadwaterError, OperatorMustAct, SlotLost, Unreachable
from headwater.postgres.connect import connect, server_name, translated
from headwater.postgres.replication import QueryFailed, Replication
from headwater.source import triggers as ddl
from headwater.source.naming import object_name
from headwater.source.publications import publication_tables
from headwater.source.publishing import ensure_publication
from headwater.source.server import identify
from headwater.source.slots import Slot, check_slot, ensure_slot, other_source, slot_gone, slot_of, start_over
from headwater.state import GroupRow, State
from headwater.words import counted

__all__ = ["prepare", "run_capture"]

_BACKOFF = 0.5, 30.0  # seconds: the first wait, doubled up to the second
PREDECESSOR = 90.0  # seconds: wal_sender_timeout is 60 by default, then the server gives a dead reader up
_SLOT_IN_USE, _NOT_IN_STATE, _FILE_GONE, _INTERNAL = "55006", "55000", "58P01", "XX"
_NOT_CONVERTED = "22P05", "22021"  # a character without an equivalent in UTF-8, bytes that are no character
_logger = logging.getLogger("headwater.capture")


def prepare(source_url: str, state: State, group: str, tables: Iterable[TableName]) -> Lsn:
    """Make group, event triggers, publication and slot exist, in an order that a crash between does not spoil.

    Returns the slot's position.
    """
    name = object_name(group)
    with closing(connect(source_url, application_name="headwater source")) as connection, translated(source_url):
        row = state.ensure_group(group, identify(connection).source_id, name, name)
        if (marks := ddl.install(connection)) != row.ddl_marks:
            state.note_ddl(group, marks)
        ensure_publication(connection, name, tables)  # before the slot: the slot must never see a time without it
        return ensure_slot(connection, group, state)


def run_capture(
    source_url: str,
    state: State,
    log: Staging[Any],
    group: str,
    *,
    stop: threading.Event,
    roll_bytes: int = ROLL_BYTES,
    predecessor: float = PREDECESSOR,
    room: Room | None = None,
) -> None:
    """Read the group's slot into the log until `stop`; then everything read is registered and confirmed.

    While the log has no `room`, nothing is read, and the connection stays open; None: it may grow as the disk allows.
    Another reader of the slot has `predecessor` seconds to end before it counts as an error.
    What is unreachable is tried again for ever, and so is a login that is refused: it has worked when the group was
    made ready. OperatorMustAct and ConfigError are noted in the state and raised.
    """
    wait = _BACKOFF[0]
    session = _Session(source_url, state, log, group, stop, roll_bytes, predecessor, room or Unlimited())
    while not stop.is_set():
        begun, before = time.monotonic(), None
        try:
            before = log.end()
            session.run()
        except (Unreachable, AccessDenied) as exc:
            if time.monotonic() - begun > _BACKOFF[1] or _moved(log, before):
                wait = _BACKOFF[0]
            denied = isinstance(exc, AccessDenied)
            level, said = (logging.ERROR, str(exc)) if denied else (logging.WARNING, exc.message)
            _logger.log(level, "capture of group %r waits %.1f s: %s", group, wait, said)
            with suppress(HeadwaterError):
                state.record_error(group, "capture", str(exc) if denied else None)
            stop.wait(wait)
            wait = min(wait * 2, _BACKOFF[1])
        except (OperatorMustAct, ConfigError) as exc:
            if session.in_progress and isinstance(exc, QueryFailed) and exc.sqlstate.startswith(_INTERNAL):
                # PostgreSQL 16 and 18 cannot decode every transaction before its end: one that rolls back ALTER TABLE
                # to a savepoint and then alters the same table again ends in "could not map filenumber".
                _logger.warning("group %r: %s; transactions are now read after their commit", group, exc.message)
                session = replace(session, in_progress=False)
                continue
            if not session.unconverted and isinstance(exc, QueryFailed) and exc.sqlstate in _NOT_CONVERTED:
                _logger.warning(
                    "group %r: %s; text is now read as it is stored, and converted here", group, exc.message
                )
                session = replace(session, unconverted=True, in_progress=False)
                continue
            with suppress(HeadwaterError):  # it may be the state's server that refuses us
                state.record_error(group, "capture", str(exc))
            raise


@dataclass(frozen=True, slots=True)
class _Session:
    """One connection after the other, each going on where the log ends."""

    source_url: str
    state: State
    log: Staging[Any]
    group: str
    stop: threading.Event
    roll_bytes: int
    predecessor: float
    room: Room
    in_progress: bool = True  # large transactions are read before their commit
    unconverted: bool = False  # the server is not asked to convert text to UTF-8

    def run(self) -> None:
        """Stream until stopped, or until it breaks."""
        name = object_name(self.group)
        with self._connected() as connection:
            captured = self._start(connection, name)
            if captured is None:
                return
            self.state.record_error(self.group, "capture", None)
            swept = self.log.sweep()  # the slot is ours: what was read and not registered is sent again
            if swept:
                _logger.info(
                    "deleted %s of group %r that the log has not registered", counted(swept, "file"), self.group
                )
            with closing(CatalogReader(self.source_url, name)) as catalog:
                quota = Quota(self.state, self.log, self.group, self.room, catalog.check)
                writer = Writer(self.state, self.log, self.group, captured, catalog.complete, quota)
                writer.start()
                with closing(writer):
                    Stream(connection, writer, self.roll_bytes).run(self.stop)

    @contextmanager
    def _connected(self) -> Iterator[Replication]:
        name = f"headwater capture {self.group}"
        with ExitStack() as opened:
            connection = opened.enter_context(closing(Replication(self.source_url, name, unconverted=self.unconverted)))
            if self.unconverted:
                asked = opened.enter_context(closing(connect(self.source_url, application_name="headwater conversion")))
                convert = server_conversion(self.source_url, asked, connection.server_encoding)
                connection.receive = converting(connection.receive, convert)
            yield connection

    def _start(self, connection: Replication, name: str) -> Lsn | None:
        """Start where the log ends, once the server has given up a dead reader; None when stopped meanwhile."""
        deadline = time.monotonic() + self.predecessor
        reported = False
        while not self.stop.is_set():
            row, slot = _checked(self.source_url, self.state, self.group)  # the predecessor may still have been writing
            try:
                if not slot.failover:
                    connection.offer_failover(name)
                captured = self._follow(connection, row, slot)
                connection.start(name, name, captured, in_progress=self.in_progress)
                return captured
            except QueryFailed as exc:
                if exc.sqlstate in (_NOT_IN_STATE, _FILE_GONE):
                    raise SlotLost(f"slot {name!r}: {exc.message}", hint=start_over(self.group)) from exc
                if exc.sqlstate != _SLOT_IN_USE:
                    raise
                if time.monotonic() > deadline:
                    raise Unreachable(f"slot {name!r} is in use: {exc.message}", hint="end its other reader") from exc
                if not reported:
                    _logger.warning("slot %r is still in use, waiting for its reader to end: %s", name, exc.message)
                    reported = True
                self.stop.wait(0.5)
        return None

    def _follow(self, connection: Replication, row: GroupRow, slot: Slot) -> Lsn:
        """Where to go on, after the source may have been promoted."""
        now = connection.timeline()
        if str(now) == row.timeline:
            assert row.captured_lsn is not None
            return row.captured_lsn
        follow(self.source_url, self.state, self.log, row, now, slot.confirmed_lsn)
        return self.log.end()


def _checked(source_url: str, state: State, group: str) -> tuple[GroupRow, Slot]:
    """The group and its slot, after making sure that source and slot are still the ones we know."""
    with closing(connect(source_url, application_name="headwater source")) as connection, translated(source_url):
        slot = slot_of(connection, object_name(group))
        published = publication_tables(connection, object_name(group))
        identity = identify(connection)
    # After the slot: a predecessor that still runs notes a position, then moves the slot there.
    row = state.group(group)
    if row is None or row.captured_lsn is None:
        raise OperatorMustAct(f"group {group!r} has no slot yet", hint="run `headwater run`, which makes it")
    if identity.source_id != row.source_id:
        raise other_source(row, identity)
    if identity.timeline is None:
        raise Unreachable(
            f"{server_name(source_url)} is a standby", hint="wait for its promotion, or point `source` at the primary"
        )
    if slot is None:
        raise slot_gone(row, identity)
    check_slot(slot, identity, row)
    if published is None:
        raise OperatorMustAct(
            f"publication {row.publication!r} of group {group!r} is gone",
            hint="start `headwater run` again: it creates the publication again, or prints what another role must run,"
            " and copies the tables again",
        )
    return row, slot


def _moved(log: Staging[Any], before: Lsn | None) -> bool:
    with suppress(Unreachable, AccessDenied):
        return before is not None and log.end() > before
    return False
