from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from headwater.capture.buffer import Buffer, Chunk, Defined, Notice, RelationMessage
from headwater.capture.columns import Versions, chunk_columns, streamed_columns
from headwater.capture.inprogress import StreamedTransaction, TransactionsInProgress, living_rows
from headwater.capture.pgoutput import Begin, Commit, ProtocolError, StreamAbort, StreamCommit, StreamStart
from headwater.change import Lsn, Relation, TableName


def add(buffer: Buffer, *oids: int) -> None:
    for oid in oids:
        message = b"I" + struct.pack("!I", oid) + b"N"
        buffer.messages += message
        buffer.sizes.append(len(message))


def version(oid: int, id: int = 0) -> Relation:
    return Relation(id, oid, TableName("public", f"t{oid}"), "d", ())


def message(relation: Relation, number: int = 0) -> RelationMessage:
    return RelationMessage(number, relation)


class ById:
    """A relation's id is known to the test already; `times_row` says which row was the first to use it."""

    def __init__(self, times_row: int = 0) -> None:
        self.times_row = times_row
        self.defined: list[tuple[int, int, bytes]] = []

    def describe(self, message: Relation, row: int) -> int:
        return message.id if not self.times_row else message.id * self.times_row + row

    def define(self, notice: Notice) -> None:
        assert isinstance(notice.what, Defined)
        self.defined.append((notice.row, notice.transaction, notice.what.content))


def columns(chunk: Chunk, versions: Versions) -> dict[str, pa.Array]:
    return chunk_columns(chunk, dict(versions), ById())


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
    buffer.relation(message(version(7, id=71)))
    add(buffer, 7, 8)
    buffer.relation(message(version(8, id=81)))
    buffer.commit(Commit(Lsn(20), Lsn(25)))
    chunk = buffer.take_whole()
    assert as_rows(columns(chunk, {7: 70, 8: 80})) == [(20, 0, 70), (20, 1, 71), (20, 2, 80)]
    versions: Versions = {7: 70, 8: 80}
    chunk_columns(chunk, versions, ById())
    assert versions == {7: 71, 8: version(8, id=81)}  # for the next chunk


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


def test_a_relation_is_described_where_a_row_first_uses_it() -> None:
    buffer = Buffer(Lsn(10))
    buffer.begin(Begin(Lsn(20), 0, 1))
    buffer.relation(message(version(7, id=71)))
    buffer.relation(message(version(8, id=81)))
    add(buffer, 7)
    buffer.commit(Commit(Lsn(20), Lsn(25)))
    buffer.begin(Begin(Lsn(30), 0, 2))
    add(buffer, 7, 8)
    buffer.commit(Commit(Lsn(30), Lsn(35)))
    versions: Versions = {}
    chunk_columns(buffer.take_whole(), versions, ById(100))
    assert versions == {7: 7100, 8: 8102}


def stream(streamed: StreamedTransaction, *rows: tuple[int, int]) -> None:
    """Rows of (xid, oid)."""
    for xid, oid in rows:
        message = b"I" + struct.pack("!II", xid, oid) + b"N%d" % oid
        streamed.messages += message
        streamed.sizes.append(len(message))


def opened(streams: TransactionsInProgress, xid: int) -> StreamedTransaction:
    streams.start(StreamStart(xid, first=True))
    assert streams.inside is not None
    streamed = streams.inside
    streams.stop()
    return streamed


def test_a_streamed_row_loses_its_xid_and_keeps_the_rest() -> None:
    streamed = StreamedTransaction(1)
    streamed.relation(message(version(7, id=71)))
    stream(streamed, (1, 7), (2, 7))
    streamed.truncate(b"T" + struct.pack("!IIBII", 3, 2, 0, 7, 8), (7, 8))
    streamed.relation(message(version(8, id=81)))
    rows = streamed_columns(living_rows(streamed.take()), {8: 80}, ById())
    insert, truncate = b"I\0\0\0\x07N7", b"T" + struct.pack("!IBII", 2, 0, 7, 8)
    assert rows["message"].to_pylist() == [insert, insert, truncate, truncate]
    assert rows["xid"].to_pylist() == [1, 2, 3, 3]
    assert as_rows(rows) == [(0, 0, 71), (0, 1, 71), (0, 2, 71), (0, 3, 80)]


def test_rows_of_a_subtransaction_that_is_aborted_in_memory_are_dropped() -> None:
    streams = TransactionsInProgress()
    streamed = opened(streams, 1)
    stream(streamed, (1, 7), (2, 7))
    streamed.relation(message(version(8, id=81)))
    stream(streamed, (2, 8), (3, 8))
    assert streams.abort(StreamAbort(1, 2)) is None
    assert as_rows(streamed_columns(living_rows(streamed.take()), {7: 70}, ById())) == [(0, 0, 70), (0, 3, 81)]
    assert list(streamed.ended(StreamCommit(1, Lsn(20), Lsn(25), 0)).aborted) == []
    stream(streamed, (1, 7))
    assert streams.abort(StreamAbort(1, 3)) is None  # a row of it was handed on
    assert list(streamed.ended(StreamCommit(1, Lsn(20), Lsn(25), 0)).aborted) == [3]
    assert as_rows(streamed_columns(living_rows(streamed.take()), {7: 70}, ById())) == [(0, 4, 70)]


def test_a_streamed_transaction_that_fits_is_like_any_other_after_its_commit() -> None:
    buffer, streams = Buffer(Lsn(10)), TransactionsInProgress()
    buffer.begin(Begin(Lsn(20), 0, 5))
    add(buffer, 7)
    buffer.commit(Commit(Lsn(20), Lsn(25)))
    streamed = opened(streams, 1)
    streamed.relation(message(version(7, id=71)))
    stream(streamed, (1, 7), (2, 7), (1, 7))
    streams.abort(StreamAbort(1, 2))
    commit = StreamCommit(1, Lsn(30), Lsn(35), 9)
    assert buffer.adopt(commit, living_rows(streams.commit(commit).take()).rows, streamed.relations)
    buffer.begin(Begin(Lsn(40), 0, 6))
    add(buffer, 7)
    buffer.commit(Commit(Lsn(40), Lsn(45)))
    rows = columns(buffer.take_whole(), {7: 70})
    assert as_rows(rows) == [(20, 0, 70), (30, 0, 71), (30, 1, 71), (40, 0, 71)]  # the server reported it for all
    assert rows["xid"].to_pylist() == [5, 1, 1, 6]
    assert streams.size == 0


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("streamed_at", "meaning"), [(1, 72), (3, 71)])
def test_what_was_sent_last_counts_after_a_streamed_transaction(streamed_at: int, meaning: int, whole: bool) -> None:
    """A server of before May 2025 does not tell a relation again that was altered beside such a transaction."""
    buffer, streams = Buffer(Lsn(10)), TransactionsInProgress()
    streamed = opened(streams, 1)
    streamed.relation(message(version(7, id=71), streamed_at))
    stream(streamed, (1, 7))
    buffer.begin(Begin(Lsn(20), 0, 5))
    buffer.relation(message(version(7, id=72), 2))
    add(buffer, 7)
    buffer.commit(Commit(Lsn(20), Lsn(25)))
    rows = as_rows(columns(buffer.take_whole(), {}))
    versions: Versions = {7: 72}
    commit = StreamCommit(1, Lsn(30), Lsn(35), 9)
    if whole:
        buffer.adopt(commit, living_rows(streams.commit(commit).take()).rows, streamed.relations)
    else:
        buffer.pass_by(commit, streamed.relations)
        rows, versions = [*rows, (30, 0, 71)], {7: 71}  # as the writer has it, from its files
    buffer.begin(Begin(Lsn(40), 0, 6))
    add(buffer, 7)
    buffer.commit(Commit(Lsn(40), Lsn(45)))
    assert rows + as_rows(columns(buffer.take_whole(), versions)) == [(20, 0, 72), (30, 0, 71), (40, 0, meaning)]


def test_what_is_left_of_a_streamed_transaction_may_be_nothing() -> None:
    buffer, streams = Buffer(Lsn(10)), TransactionsInProgress()
    streamed = opened(streams, 1)
    streamed.relation(message(version(7, id=71)))
    stream(streamed, (2, 7))
    streams.abort(StreamAbort(1, 2))
    commit = StreamCommit(1, Lsn(30), Lsn(35), 9)
    assert not buffer.adopt(commit, living_rows(streams.commit(commit).take()).rows, streamed.relations)
    assert buffer.position == Lsn(35)
    buffer.begin(Begin(Lsn(40), 0, 6))
    add(buffer, 7)
    buffer.commit(Commit(Lsn(40), Lsn(45)))
    assert as_rows(columns(buffer.take_whole(), {})) == [(40, 0, 71)]  # its relation counts all the same


def test_a_whole_transaction_that_is_aborted_is_forgotten() -> None:
    streams = TransactionsInProgress()
    one, two = opened(streams, 1), opened(streams, 2)
    stream(one, (1, 7))
    stream(two, (2, 7), (2, 7))
    assert streams.largest() is two
    assert streams.abort(StreamAbort(2, 2)) is two
    assert streams.largest() is one
    with pytest.raises(ProtocolError, match="transaction 2 ends"):
        streams.commit(StreamCommit(2, Lsn(20), Lsn(25), 0))
    with pytest.raises(ProtocolError, match="block of transaction 1"):
        streams.start(StreamStart(1, first=True))
    with pytest.raises(ProtocolError, match="block of transaction 3"):
        streams.start(StreamStart(3, first=False))


def defined(chunk: Chunk) -> list[tuple[int, int, bytes]]:
    """The definitions in a chunk: before which row, in which of its transactions."""
    describing = ById()
    chunk_columns(chunk, {7: 70}, describing)
    return describing.defined


def test_a_definition_is_part_of_its_transaction_whatever_rows_are_around_it() -> None:
    buffer = Buffer(Lsn(10))
    for lsn, steps in ((20, ("row", b"a")), (30, (b"b",)), (40, (b"c", "row", b"d"))):
        buffer.begin(Begin(Lsn(lsn), 0, lsn))
        for step in steps:
            add(buffer, 7) if step == "row" else buffer.define(step)  # type: ignore[arg-type]
        assert buffer.commit(Commit(Lsn(lsn), Lsn(lsn + 5)))  # also that without a row is to be registered
    buffer.begin(Begin(Lsn(50), 0, 50))
    buffer.define(b"e")
    chunk = buffer.take_whole()
    assert [lsn for lsn, *_ in chunk.transactions] == [20, 30, 40]
    assert defined(chunk) == [(1, 0, b"a"), (1, 1, b"b"), (1, 2, b"c"), (2, 2, b"d")]
    assert buffer.commit(Commit(Lsn(50), Lsn(55)))
    last = buffer.take_whole()
    assert ([lsn for lsn, *_ in last.transactions], defined(last)) == ([50], [(0, 0, b"e")])


def test_a_definition_after_what_was_handed_on_of_its_transaction_is_handed_on_with_the_rest() -> None:
    buffer = Buffer(Lsn(10))
    buffer.begin(Begin(Lsn(20), 0, 1))
    add(buffer, 7)
    assert defined(buffer.take_open()) == []
    buffer.define(b"a")
    assert buffer.commit(Commit(Lsn(20), Lsn(25)))
    chunk = buffer.take_whole()
    assert ([lsn for lsn, *_ in chunk.transactions], defined(chunk)) == ([20], [(0, 0, b"a")])


def test_a_definition_of_an_aborted_subtransaction_is_dropped() -> None:
    buffer, streams = Buffer(Lsn(10)), TransactionsInProgress()
    streamed = opened(streams, 1)
    stream(streamed, (1, 7))
    for xid in (1, 2):
        streamed.define(b'{"oid": 7, "xid": %d}' % xid)
    stream(streamed, (2, 7), (1, 7))
    streams.abort(StreamAbort(1, 2))
    commit = StreamCommit(1, Lsn(30), Lsn(35), 9)
    assert buffer.adopt(commit, living_rows(streams.commit(commit).take()).rows, streamed.relations)
    chunk = buffer.take_whole()
    assert as_rows(columns(chunk, {7: 70})) == [(30, 0, 70), (30, 1, 70)]
    assert defined(chunk) == [(1, 0, b'{"oid": 7, "xid": 1}')]
