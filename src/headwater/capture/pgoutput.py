"""The heads of pgoutput messages. Pure: bytes in, facts out. Rows are not decoded; they are staged as they came."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import cast

from headwater.change import Column, Lsn, Relation, ReplicaIdentity, TableName
from headwater.errors import OperatorMustAct
from headwater.postgres import EPOCH_2000

__all__ = [
    "XID_BYTES",
    "Begin",
    "Change",
    "Commit",
    "Emitted",
    "Ignored",
    "Message",
    "ProtocolError",
    "StreamAbort",
    "StreamCommit",
    "StreamStart",
    "StreamStop",
    "Truncate",
    "decode",
    "decode_streamed",
    "relation",
]

XID_BYTES = 4  # inside a stream block most messages carry their subtransaction's xid after the tag

_BEGIN = struct.Struct("!QqI")
_COMMIT = struct.Struct("!BQQq")
_STREAM_COMMIT = struct.Struct("!IBQQq")
_REPORT = (
    "capture stops rather than lose changes; start it again, and if that does not help, report it as a bug, with what"
    " `SELECT version()` says"
)


class ProtocolError(OperatorMustAct):
    """The server sent something that this program does not understand; going on could lose changes."""

    def __init__(self, message: str, *, hint: str = _REPORT) -> None:
        super().__init__(message, hint=hint)


@dataclass(frozen=True, slots=True)
class Begin:
    commit_lsn: Lsn  # where the commit record starts: the transaction's place in the order
    commit_ts: int  # microseconds since 1970
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    commit_lsn: Lsn
    end_lsn: Lsn  # the position after the transaction


@dataclass(frozen=True, slots=True)
class Change:
    op: str  # I, U or D
    oid: int


@dataclass(frozen=True, slots=True)
class Truncate:
    oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ignored:
    """A message that changes no row: an origin, a type's name."""

    kind: str


@dataclass(frozen=True, slots=True)
class Emitted:
    """A message that `pg_logical_emit_message` has put into the WAL."""

    transactional: bool  # it is part of a transaction, and in order with its changes
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class StreamStart:
    """What follows, up to StreamStop, is of this transaction, which is still in progress."""

    xid: int
    first: bool  # the transaction was not heard of before


@dataclass(frozen=True, slots=True)
class StreamStop:
    """The block is over; the transaction is not."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """A streamed transaction has committed."""

    xid: int
    commit_lsn: Lsn
    end_lsn: Lsn
    commit_ts: int  # microseconds since 1970


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A streamed transaction is rolled back, or one of its subtransactions is."""

    xid: int
    subxid: int

    @property
    def whole(self) -> bool:
        return self.xid == self.subxid


Message = (
    Begin
    | Commit
    | Relation
    | Change
    | Truncate
    | Emitted
    | Ignored
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
)


def decode(message: bytes) -> Message:
    """What a message is about; ProtocolError if it is none we know."""
    kind = message[:1]
    try:
        match kind:
            case b"I" | b"U" | b"D":
                return Change(kind.decode(), int.from_bytes(message[1:5]))
            case b"B":
                commit_lsn, clock, xid = _BEGIN.unpack_from(message, 1)
                return Begin(Lsn(commit_lsn), clock + EPOCH_2000, xid)
            case b"C":
                _, commit_lsn, end_lsn, _ = _COMMIT.unpack_from(message, 1)
                return Commit(Lsn(commit_lsn), Lsn(end_lsn))
            case b"R":
                return relation(message)
            case b"T":
                (count,) = struct.unpack_from("!I", message, 1)
                return Truncate(struct.unpack_from(f"!{count}I", message, 6))  # after the flags, which change no row
            case b"M":
                return _emitted(message)
            case b"O" | b"Y":
                return Ignored(kind.decode())
            case b"S" | b"E" | b"c" | b"A":
                return _stream_message(kind, message)
    except UnicodeDecodeError as exc:
        raise ProtocolError(
            f"a table or a column has a name that is not UTF-8: {exc.object[:80]!r}",
            hint="take the table out of the config, or rename it and start the group over",
        ) from exc
    except (struct.error, IndexError, ValueError) as exc:
        raise ProtocolError(f"a pgoutput message of kind {kind!r} is cut short: {message[:40]!r}") from exc
    raise ProtocolError(
        f"unknown pgoutput message {kind!r}", hint="a newer headwater may know it; capture stops rather than skip it"
    )


def decode_streamed(message: bytes) -> Message:
    """What a message inside a stream block is about, without its xid."""
    if message[:1] in (b"E", b"O"):
        return decode(message)  # these two carry no xid
    return decode(message[:1] + message[1 + XID_BYTES :])


def _emitted(message: bytes) -> Emitted:
    prefix, at = _text(message, 10)  # after the flags and its position
    (size,) = struct.unpack_from("!I", message, at)
    content = message[at + 4 : at + 4 + size]
    if len(content) != size:
        raise ValueError(size)
    return Emitted(bool(message[1] & 1), prefix, content)


def _stream_message(kind: bytes, message: bytes) -> Message:
    match kind:
        case b"S":
            xid, first = struct.unpack_from("!IB", message, 1)
            return StreamStart(xid, bool(first))
        case b"E":
            return StreamStop()
        case b"c":
            xid, _, commit_lsn, end_lsn, clock = _STREAM_COMMIT.unpack_from(message, 1)
            return StreamCommit(xid, Lsn(commit_lsn), Lsn(end_lsn), clock + EPOCH_2000)
    return StreamAbort(*struct.unpack_from("!II", message, 1))


def relation(message: bytes) -> Relation:
    """A Relation message. Its version id is not known yet: 0."""
    (oid,) = struct.unpack_from("!I", message, 1)
    namespace, at = _text(message, 5)
    name, at = _text(message, at)
    identity = chr(message[at])
    (count,) = struct.unpack_from("!H", message, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = message[at]
        column, at = _text(message, at + 1)
        type_oid, typmod = struct.unpack_from("!Ii", message, at)
        at += 8
        columns.append(Column(column, type_oid, typmod, bool(flags & 1)))
    # pgoutput writes pg_catalog as the empty string
    return Relation(0, oid, TableName(namespace or "pg_catalog", name), cast(ReplicaIdentity, identity), tuple(columns))


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1
