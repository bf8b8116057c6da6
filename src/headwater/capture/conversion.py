"""Text of a database whose encoding is not UTF8, converted here and not by the server.

The server gives up the whole stream at the first character that has no equivalent in UTF-8. Here such a value stays as
it is stored, which is not UTF-8: so it goes to quarantine.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

import psycopg

from headwater.postgres.connect import Connection, translated
from headwater.postgres.replication import XLOG_DATA

__all__ = ["Receive", "converted", "converting", "server_conversion"]

Receive = Callable[[int], tuple[int, memoryview]]
Convert = Callable[[bytes], bytes]

_HEADER = 25  # of XLogData
_NEVER_UTF8 = b"\xff"
_CACHED = 10_000


def converting(receive: Receive, convert: Convert) -> Receive:
    """`receive` with the text of its messages converted. Not for transactions in progress, whose messages differ."""

    def received(asynchronous: int) -> tuple[int, memoryview]:
        size, data = receive(asynchronous)
        if size <= _HEADER or data[0] != XLOG_DATA:
            return size, data
        message = bytes(data[:_HEADER]) + converted(bytes(data[_HEADER:]), convert)
        return len(message), memoryview(message)

    return received


def server_conversion(url: str, connection: Connection, encoding: str) -> Convert:
    """Ask the server what it makes of a text; what it cannot convert stays as it is stored, which is not UTF-8."""

    @lru_cache(_CACHED)
    def convert(text: bytes) -> bytes:
        with translated(url):
            try:
                row = connection.execute("SELECT convert(%s, %s, 'UTF8')", (text, encoding)).fetchone()
            except (psycopg.errors.UntranslatableCharacter, psycopg.errors.CharacterNotInRepertoire):
                return text if _is_not_utf8(text) else text + _NEVER_UTF8
        assert row is not None
        return bytes(row[0])

    return lambda text: text if text.isascii() else convert(text)


def _is_not_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def converted(message: bytes, convert: Convert) -> bytes:
    """A pgoutput message with its text converted: names of tables and columns, and values."""
    match message[:1]:
        case b"I" | b"U" | b"D":
            return message[:5] + _tuples(message, 5, convert)
        case b"R":
            return _relation(message, convert)
    return message


def _tuples(message: bytes, at: int, convert: Convert) -> bytes:
    done = bytearray()
    while at < len(message):
        done += message[at : at + 3]  # K, O or N, and the number of columns
        (count,) = struct.unpack_from("!H", message, at + 1)
        at += 3
        for _ in range(count):
            kind = message[at : at + 1]
            done += kind
            at += 1
            if kind in (b"t", b"b"):
                (size,) = struct.unpack_from("!I", message, at)
                value = message[at + 4 : at + 4 + size]
                at += 4 + size
                value = convert(value) if kind == b"t" else value
                done += struct.pack("!I", len(value)) + value
    return bytes(done)


def _relation(message: bytes, convert: Convert) -> bytes:
    done = bytearray(message[:5])
    at = 5
    for _ in ("schema", "table"):
        at = _name(message, at, convert, done)
    done += message[at : at + 3]  # the replica identity, and the number of columns
    (count,) = struct.unpack_from("!H", message, at + 1)
    at += 3
    for _ in range(count):
        done += message[at : at + 1]  # the flags
        at = _name(message, at + 1, convert, done)
        done += message[at : at + 8]  # the type
        at += 8
    return bytes(done)


def _name(message: bytes, at: int, convert: Convert, done: bytearray) -> int:
    end = message.index(b"\0", at)
    done += convert(message[at:end]) + b"\0"
    return end + 1
