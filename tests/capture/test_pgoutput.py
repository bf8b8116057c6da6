from __future__ import annotations

import struct

import pytest

from headwater.capture.pgoutput import (
    Begin,
    Change,
    Commit,
    Emitted,
    Ignored,
    Message,
    ProtocolError,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    decode,
    decode_streamed,
)
from headwater.change import Column, Lsn, Relation, TableName

RELATION = (
    b"R" + struct.pack("!I", 16384) + b"Sales\0orders\0d" + struct.pack("!H", 2)
    + b"\1id\0" + struct.pack("!Ii", 20, -1) + b"\0sum\xc3\xa9\0" + struct.pack("!Ii", 1700, 655366)
)  # fmt: skip


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        (b"B" + struct.pack("!QqI", 0x1_0000_0010, 1_000_000, 77), Begin(Lsn(0x1_0000_0010), 946_684_801_000_000, 77)),
        (b"C" + struct.pack("!BQQq", 0, 16, 48, 0), Commit(Lsn(16), Lsn(48))),
        (b"I" + struct.pack("!I", 16384) + b"N\0\1n", Change("I", 16384)),
        (b"U" + struct.pack("!I", 4294967295) + b"K\0\1n", Change("U", 4294967295)),
        (b"D" + struct.pack("!I", 1) + b"O\0\1n", Change("D", 1)),
        (b"T" + struct.pack("!IBII", 2, 3, 5, 6), Truncate((5, 6))),
        (b"S" + struct.pack("!IB", 77, 1), StreamStart(77, first=True)),
        (b"S" + struct.pack("!IB", 77, 0), StreamStart(77, first=False)),
        (b"E", StreamStop()),
        (
            b"c" + struct.pack("!IBQQq", 77, 0, 16, 48, 1_000_000),
            StreamCommit(77, Lsn(16), Lsn(48), 946_684_801_000_000),
        ),
        (b"A" + struct.pack("!II", 77, 78), StreamAbort(77, 78)),
        (b"A" + struct.pack("!IIQq", 77, 77, 16, 0), StreamAbort(77, 77)),  # with what 'parallel' adds
        (b"O" + struct.pack("!Q", 1) + b"x\0", Ignored("O")),
        (b"Y" + struct.pack("!I", 1) + b"\0x\0", Ignored("Y")),
        (b"M\0" + struct.pack("!Q", 1) + b"x\0" + struct.pack("!I", 2) + b"ab", Emitted(False, "x", b"ab")),
        (b"M\1" + struct.pack("!Q", 1) + b"\0" + struct.pack("!I", 0), Emitted(True, "", b"")),
        (
            RELATION,
            Relation(
                0,
                16384,
                TableName("Sales", "orders"),
                "d",
                (Column("id", 20, -1, True), Column("sumé", 1700, 655366, False)),
            ),
        ),
        (
            b"R" + struct.pack("!I", 9) + b"\0pg_x\0n" + struct.pack("!H", 0),
            Relation(0, 9, TableName("pg_catalog", "pg_x"), "n", ()),
        ),
    ],
)
def test_a_message_is_understood_by_its_head(message: bytes, meaning: Message) -> None:
    assert decode(message) == meaning


XID = struct.pack("!I", 78)


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        (b"I" + XID + struct.pack("!I", 16384) + b"N\0\1n", Change("I", 16384)),
        (b"U" + XID + struct.pack("!I", 4294967295) + b"K\0\1n", Change("U", 4294967295)),
        (b"D" + XID + struct.pack("!I", 1) + b"O\0\1n", Change("D", 1)),
        (b"T" + XID + struct.pack("!IBII", 2, 3, 5, 6), Truncate((5, 6))),
        (b"R" + XID + RELATION[1:], decode(RELATION)),
        (b"Y" + XID + struct.pack("!I", 1) + b"\0x\0", Ignored("Y")),
        (b"M" + XID + b"\1" + struct.pack("!Q", 1) + b"x\0" + struct.pack("!I", 1) + b"a", Emitted(True, "x", b"a")),
        (b"O" + struct.pack("!Q", 1) + b"x\0", Ignored("O")),
        (b"E", StreamStop()),
    ],
)
def test_inside_a_stream_block_a_message_carries_an_xid(message: bytes, meaning: Message) -> None:
    assert decode_streamed(message) == meaning


@pytest.mark.parametrize("message", [b"S\0\0", b"c" + b"\0" * 20, b"A\0\0\0\1"])
def test_a_stream_message_cut_short_is_an_error(message: bytes) -> None:
    with pytest.raises(ProtocolError, match="cut short"):
        decode(message)


def test_only_an_abort_of_the_transaction_itself_is_of_the_whole() -> None:
    assert StreamAbort(7, 7).whole
    assert not StreamAbort(7, 8).whole


def test_an_unknown_message_is_an_error_and_not_skipped() -> None:
    with pytest.raises(ProtocolError, match="unknown pgoutput message b'Z'"):
        decode(b"Zebra")


@pytest.mark.parametrize("size", range(1, len(RELATION), 5))
def test_a_message_cut_short_is_an_error(size: int) -> None:
    with pytest.raises(ProtocolError, match="cut short") as reported:
        decode(RELATION[:size])
    assert "report it" in reported.value.hint
