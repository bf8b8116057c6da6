"""The heads of pgoutput messages. Pure: bytes in, facts out. Rows are not decoded; they are staged as they came."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import cast

from headwater.change import Column, Identity, Lsn, Relation, TableName
from headwater.errors import OperatorMustAct

__all__ = ["Begin", "Change", "Commit", "Ignored", "Message", "ProtocolError", "Truncate", "decode", "relation"]

_EPOCH_2000 = 946_684_800_000_000  # PostgreSQL counts microseconds from 2000, everybody else from 1970
_BEGIN = struct.Struct("!QqI")
_COMMIT = struct.Struct("!BQQq")


class ProtocolError(OperatorMustAct):
    """The server said something this program does not understand; going on could lose changes."""


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
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class Ignored:
    """A message that changes no row: an origin, a type's name, a logical message."""

    kind: str


Message = Begin | Commit | Relation | Change | Truncate | Ignored


def decode(message: bytes) -> Message:
    """What a message is about; ProtocolError if it is none we know."""
    kind = message[:1]
    try:
        match kind:
            case b"I" | b"U" | b"D":
                return Change(kind.decode(), int.from_bytes(message[1:5]))
            case b"B":
                commit_lsn, clock, xid = _BEGIN.unpack_from(message, 1)
                return Begin(Lsn(commit_lsn), clock + _EPOCH_2000, xid)
            case b"C":
                _, commit_lsn, end_lsn, _ = _COMMIT.unpack_from(message, 1)
                return Commit(Lsn(commit_lsn), Lsn(end_lsn))
            case b"R":
                return relation(message)
            case b"T":
                count, flags = struct.unpack_from("!IB", message, 1)
                return Truncate(struct.unpack_from(f"!{count}I", message, 6), bool(flags & 1), bool(flags & 2))
            case b"O" | b"Y" | b"M":
                return Ignored(kind.decode())
    except (struct.error, IndexError, ValueError) as exc:
        raise ProtocolError(f"a pgoutput message of kind {kind!r} is cut short: {message[:40]!r}") from exc
    raise ProtocolError(
        f"unknown pgoutput message {kind!r}", hint="a newer headwater may know it; capture stops rather than skip it"
    )


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
    return Relation(0, oid, TableName(namespace or "pg_catalog", name), cast(Identity, identity), tuple(columns))


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1
