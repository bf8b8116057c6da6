"""A replication connection: libpq's, through `psycopg.pq`. It owns the socket and knows the streaming messages."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import pq

from headwater.change import Lsn
from headwater.errors import HeadwaterError, OperatorMustAct, Unreachable
from headwater.postgres import EPOCH_2000
from headwater.postgres.connect import conninfo, refused, server_name
from headwater.postgres.settings import prepare
from headwater.postgres.timeline import Timeline

__all__ = ["KEEPALIVE", "XLOG_DATA", "QueryFailed", "Replication", "keepalive", "standby_status"]

XLOG_DATA = ord("w")
KEEPALIVE = ord("k")
_UNDEFINED = "42704"
_NO_PUBLICATION = (
    "start `headwater run` again, which creates a missing publication; if the error comes back, changes were made while"
    " there was none, and this server cannot skip them: `headwater group drop` the group, then `headwater run`"
    " copies its tables again"
)


class QueryFailed(OperatorMustAct):
    """The server refused a replication command; `sqlstate` says why."""

    def __init__(self, message: str, *, hint: str = "", sqlstate: str = "") -> None:
        super().__init__(message, hint=hint)
        self.sqlstate = sqlstate


class Replication:
    """A connection in replication mode to one database."""

    def __init__(self, url: str, application_name: str, *, unconverted: bool = False) -> None:
        info = conninfo(url, replication="database", application_name=application_name)
        self._url = url
        self._conn = pq.PGconn.connect(info.encode())
        if self._conn.status != pq.ConnStatus.OK:
            text = self._conn.error_message.decode("utf-8", "replace")
            self._conn.finish()
            raise refused(url, text)
        prepare(self.query, as_stored=True)
        if unconverted:  # text comes in the database's encoding
            self.query("SELECT set_config('client_encoding', current_setting('server_encoding'), false)")
        self.receive: Callable[[int], tuple[int, memoryview]] = (
            self._conn.get_copy_data
        )  # bound once: it is called for every change

    @property
    def server_version(self) -> int:
        """The major version."""
        return self._conn.server_version // 10000

    @property
    def server_encoding(self) -> str:
        return (self._conn.parameter_status(b"server_encoding") or b"").decode()

    def query(self, sql: str, waiting: Callable[[float], None] | None = None) -> list[str]:
        """Run a replication command; return its one row. `waiting` is called each second, with the seconds so far."""
        with self.translated():
            self._conn.send_query(sql.encode())
        begun = time.monotonic()
        while self._conn.is_busy():
            self.wait(1.0)
            self.consume()
            if waiting is not None:
                waiting(time.monotonic() - begun)
        result = self._conn.get_result()
        if result is None:
            raise self.lost()
        if result.status == pq.ExecStatus.COPY_BOTH:
            return []
        while self._conn.get_result() is not None:
            pass  # else the connection would not take another command
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise self._failed(result)
        return [(result.get_value(0, column) or b"").decode() for column in range(result.nfields)]

    def timeline(self) -> Timeline:
        """Which history of its WAL the server is writing."""
        id = self.timeline_id()
        return Timeline.read(id, self.query(f"TIMELINE_HISTORY {id}")[1] if id > 1 else "")

    def timeline_id(self) -> int:
        return int(self.query("IDENTIFY_SYSTEM")[1])

    def offer_failover(self, slot: str) -> None:
        """Have standbys keep the slot, too, where they synchronise slots; no process may be reading it."""
        self.query(f'ALTER_REPLICATION_SLOT "{slot}" (FAILOVER true)')

    def start(self, slot: str, publication: str, at: Lsn, *, in_progress: bool) -> None:
        """Start streaming transactions that commit at or after `at`, large ones while they are `in_progress` or not."""
        protocol = {14: 2, 15: 3}.get(self.server_version, 4)
        names = '"' + publication.replace('"', '""') + '"'
        quoted = names.replace("'", "''")
        # Not 'parallel': that is for a reader that applies transactions while they are in progress.
        streaming = "on" if in_progress else "off"
        options = f"proto_version '{protocol}', streaming '{streaming}', messages 'true', publication_names '{quoted}'"
        self.query(f'START_REPLICATION SLOT "{slot}" LOGICAL {at} ({options})')

    def consume(self) -> None:
        """Take in what the socket has; never blocks."""
        with self.translated():
            self._conn.consume_input()

    def wait(self, seconds: float, *others: int) -> None:
        """Sleep until the socket, or one of the other descriptors, has something."""
        select.select([self._conn.socket, *others], [], [], seconds)

    def send(self, message: bytes) -> None:
        """Send feedback."""
        with self.translated():
            self._conn.put_copy_data(message)
            self._conn.flush()

    def ended(self) -> HeadwaterError:
        """Why the stream ended, once `receive` has said that it did."""
        result = self._conn.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return self._failed(result)
        return self.lost()

    def lost(self) -> HeadwaterError:
        reason = " ".join(self._conn.error_message.decode("utf-8", "replace").split()) or "the server ended the stream"
        return Unreachable(
            f"lost the stream from {server_name(self._url)}: {reason}",
            hint="try again later; `headwater run` does so by itself",
        )

    def close(self) -> None:
        self._conn.finish()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """What libpq raises in the block is a lost connection."""
        try:
            yield
        except psycopg.OperationalError as exc:
            raise self.lost() from exc

    def _failed(self, result: pq.abc.PGresult) -> HeadwaterError:
        field = pq.DiagnosticField
        state = (result.error_field(field.SQLSTATE) or b"").decode()
        text = (result.error_field(field.MESSAGE_PRIMARY) or self._conn.error_message).decode("utf-8", "replace")
        detail = (result.error_field(field.MESSAGE_DETAIL) or b"").decode("utf-8", "replace")
        reason = " ".join(f"{text} {detail}".split())
        # connection trouble, resources, shutdown or start-up: time mends them
        if not state or state[:2] in ("08", "53") or state[:3] == "57P":
            return Unreachable(
                f"{server_name(self._url)}: {reason}", hint="try again later; `headwater run` does so by itself"
            )
        hint = (
            _NO_PUBLICATION if state == _UNDEFINED else "fix what PostgreSQL reports, then start `headwater run` again"
        )
        return QueryFailed(f"{server_name(self._url)} refuses: {reason}", hint=hint, sqlstate=state)


def keepalive(message: memoryview) -> tuple[int, bool]:
    """The server's position, and whether it wants an answer now."""
    position, _, wants_reply = struct.unpack_from("!QqB", message, 1)
    return position, bool(wants_reply)


def standby_status(written: Lsn, flushed: Lsn, *, reply: bool) -> bytes:
    """Feedback: what we have read, what is durable (the slot may move there), and whether the server should answer."""
    clock = int(time.time() * 1_000_000) - EPOCH_2000
    return struct.pack("!cQQQqB", b"r", written.value, flushed.value, flushed.value, clock, reply)
