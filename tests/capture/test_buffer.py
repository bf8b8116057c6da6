from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from headwater.capture.buffer import Buffer, columns
from headwater.capture.pgoutput import Begin, Commit, ProtocolError
from headwater.change import Lsn, Relation, TableName


def add(buffer: Buffer, *oids: int) -> None:
    for oid in oids:
        message = b"I" + struct.pack("!I", oid) + b"N"
        buffer.messages += message
        buffer.sizes.append(len(message))


def shape(oid: int, id: int = 0) -> Relation:
    return Relation(id, oid, TableName("public", f"t{oid}"), "d", ())


def as_rows(table: dict[str, pa.Array]) -> list[tuple[int, int, int]]:
    return list(zip(*(table[name].to_pylist() for name in ("commit_lsn", "seq", "relation")), strict=True))


def test_a_keepalive_is_a_position_only_between_transactions() -> None:
    buffer = Buffer(Lsn(10))
    buffer.reach(Lsn(20))
    assert buffer.position == Lsn(20)
    buffer.begin(Begin(Lsn(30), 0, 1))
    buffer.reach(Lsn(90))
    assert buffer.position == Lsn(20)
    buffer.commit(Commit(Lsn(30), Lsn(40)))
    buffer.reach(Lsn(15))
    assert buffer.position == Lsn(40)


def test_whole_transactions_are_handed_on_and_the_open_one_stays() -> None:
    buffer = Buffer(Lsn(10))
    for lsn, oids in ((20, (7, 7)), (30, (8,))):
        buffer.begin(Begin(Lsn(lsn), 0, lsn))
        add(buffer, *oids)
        assert buffer.commit(Commit(Lsn(lsn), Lsn(lsn + 5)))
    buffer.begin(Begin(Lsn(40), 0, 40))
    add(buffer, 7, 8)
    chunk = buffer.take_whole()
    assert (chunk.upto, as_rows(columns(chunk, {7: 70, 8: 80}))) == (Lsn(35), [(20, 0, 70), (20, 1, 70), (30, 0, 80)])
    assert buffer.commit(Commit(Lsn(40), Lsn(45)))
    assert as_rows(columns(buffer.take_whole(), {7: 70, 8: 80})) == [(40, 0, 70), (40, 1, 80)]


def test_a_transaction_handed_on_in_parts_goes_on_counting() -> None:
    buffer = Buffer(Lsn(10))
    buffer.begin(Begin(Lsn(20), 0, 1))
    counted = []
    for _ in range(2):
        add(buffer, 7, 7)
        part = buffer.take_open()
        assert part.upto is None
        counted += as_rows(columns(part, {7: 70}))
    assert buffer.commit(Commit(Lsn(20), Lsn(25)))  # nothing is left here, but there is something to register
    buffer.begin(Begin(Lsn(30), 0, 2))
    add(buffer, 7)
    buffer.commit(Commit(Lsn(30), Lsn(35)))
    last = buffer.take_whole()
    assert counted + as_rows(columns(last, {7: 70})) == [(20, n, 70) for n in range(4)] + [(30, 0, 70)]


def test_a_relation_that_changes_on_the_way_counts_from_there() -> None:
    buffer = Buffer(Lsn(10))
    buffer.begin(Begin(Lsn(20), 0, 1))
    add(buffer, 7)
    buffer.relation(shape(7, id=71))
    buffer.relation(shape(7, id=71))
    add(buffer, 7, 8)
    buffer.relation(shape(8, id=81))
    buffer.commit(Commit(Lsn(20), Lsn(25)))
    chunk = buffer.take_whole()
    assert as_rows(columns(chunk, {7: 70, 8: 80})) == [(20, 0, 70), (20, 1, 71), (20, 2, 80)]
    assert [row for row, _ in buffer.relations] == [0]  # for the next chunk


def test_a_stream_that_contradicts_itself_is_refused() -> None:
    buffer = Buffer(Lsn(50))
    with pytest.raises(ProtocolError, match="already"):
        buffer.begin(Begin(Lsn(20), 0, 1))
    with pytest.raises(ProtocolError, match="without its begin"):
        buffer.commit(Commit(Lsn(60), Lsn(65)))
    buffer.begin(Begin(Lsn(60), 0, 1))
    add(buffer, 9)
    buffer.commit(Commit(Lsn(60), Lsn(65)))
    with pytest.raises(ProtocolError, match="relation 9 came before"):
        columns(buffer.take_whole(), {})
