"""Raw pgoutput messages → columns, on hand-made messages and on those of a real PostgreSQL."""

from __future__ import annotations

import struct
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import TableError
from headwater.merge.tuples import NULL, TEXT, UNCHANGED, Cells, Tuples, new_row, old_row, split

Value = str | None
CHANGES = (
    "SELECT data FROM pg_logical_slot_get_binary_changes"
    "(%s, NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
)
TOAST = "\0unchanged"


def cells(mark: str, values: list[Value]) -> bytes:
    def cell(value: Value) -> bytes:
        if value is None:
            return b"n"
        return b"u" if value == TOAST else b"t" + struct.pack("!I", len(value.encode())) + value.encode()

    return mark.encode() + struct.pack("!H", len(values)) + b"".join(map(cell, values))


def message(op: str, *tuples: bytes) -> bytes:
    return op.encode() + struct.pack("!I", 16388) + b"".join(tuples)


def seen(tuples: Tuples, columns: int) -> dict[int, list[Value]]:
    """The values by message, as they were put in."""
    found: dict[int, list[Value]] = {int(row): [] for row in tuples.rows}
    for column in range(columns):
        cell = tuples.cells[column]
        for row, text, kind in zip(tuples.rows, cell.text.to_pylist(), cell.kind.tolist(), strict=True):
            assert (text is None) == (kind != TEXT)
            found[int(row)].append({NULL: None, UNCHANGED: TOAST}[kind] if text is None else text.decode())
    return found


# Also texts that look like the cells around an UNCHANGED one, and with a few long ones among many short.
texts = st.one_of(st.text(max_size=20), st.text("tnuIUD\x01", max_size=4), st.just("long" * 300))
rows = st.lists(st.one_of(st.none(), st.just(TOAST), texts), min_size=3, max_size=3)
changes = st.one_of(
    st.tuples(st.just("I"), st.none(), rows),
    st.tuples(st.just("U"), st.none(), rows),
    st.tuples(st.just("U"), st.tuples(st.sampled_from("KO"), rows), rows),
    st.tuples(st.just("D"), st.tuples(st.sampled_from("KO"), rows), st.none()),
)


@given(st.lists(changes, max_size=20), st.integers(0, 3), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_any_mix_of_messages_is_taken_apart_into_what_it_was_made_of(
    history: list[Any], skip: int, width: pa.DataType
) -> None:
    parts = split(pa.array([encode(*change) for change in history], width).slice(skip), 3)
    history = history[skip:]
    assert [chr(op) for op in parts.op] == [op for op, _, _ in history]
    assert seen(parts.new, 3) == {index: new for index, (_, _, new) in enumerate(history) if new}
    assert seen(parts.old, 3) == {index: old[1] for index, (_, old, _) in enumerate(history) if old}
    assert parts.whole.tolist() == [old[0] == "O" for _, old, _ in history if old]


def value(cell: bytes | int | None) -> Value:
    return cell.decode() if isinstance(cell, bytes) else TOAST if cell == UNCHANGED else None


def values(cells: Cells) -> list[Value]:
    texts, kinds = cells.text.to_pylist(), cells.kind.tolist()
    return [value(UNCHANGED if kind == UNCHANGED else text) for text, kind in zip(texts, kinds, strict=True)]


def encode(op: str, old: tuple[str, list[Value]] | None, new: list[Value] | None) -> bytes:
    return message(op, *([cells(*old)] if old else []), *([cells("N", new)] if new else []))


def known(old: tuple[str, list[Value]] | None, new: list[Value], key: frozenset[int]) -> list[Value]:
    """A new row, with what the old tuple of its message has of it."""
    sent = {"K": key, "O": frozenset(range(3))}[old[0]] if old else frozenset()
    return [old[1][at] if old and cell == TOAST and at in sent else cell for at, cell in enumerate(new)]


flat = st.lists(st.one_of(st.none(), texts), min_size=3, max_size=3)  # PostgreSQL sends old rows whole
sent = st.one_of(
    st.tuples(st.just("I"), st.none(), flat),
    st.tuples(st.just("U"), st.none(), rows),
    st.tuples(st.just("U"), st.tuples(st.sampled_from("KO"), flat), rows),
    st.tuples(st.just("D"), st.tuples(st.sampled_from("KO"), flat), st.none()),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(sent, max_size=20), st.frozensets(st.integers(0, 2), max_size=3), st.integers(0, 3))
def test_an_unchanged_value_is_taken_from_the_old_tuple_or_reported_as_a_hole(
    history: list[Any], key: frozenset[int], skip: int
) -> None:
    messages = pa.array([encode(*change) for change in history], pa.binary()).slice(skip)
    history = [(old, new) for _, old, new in history[skip:]]
    full = split(messages, 3)
    expected = [known(old, new, key) for old, new in history if new]
    for column in range(3):
        assert values(full.values(column, in_key=column in key)) == [row[column] for row in expected]
    assert not full.holes.any()  # not asked for
    keys = split(messages, 3, key, find_holes=True)
    assert keys.holes.tolist() == [TOAST in row for row in expected]
    for column in key:
        assert values(keys.values(column, in_key=True)) == [row[column] for row in expected]


@given(sent)
def test_one_row_is_read_as_all_of_them_are(change: Any) -> None:
    _, old, new = change
    encoded = encode(*change)
    if new:
        assert list(map(value, new_row(encoded))) == known(old, new, frozenset())
    if old:
        assert list(map(value, old_row(encoded))) == old[1]


def test_an_old_key_tells_the_key_and_nothing_else() -> None:
    moved = message("U", cells("K", ["k", None]), cells("N", [TOAST, TOAST]))
    parts = split(pa.array([moved]), 2, [0], find_holes=True)
    assert values(parts.values(0, in_key=True)) == ["k"]
    assert values(parts.values(0, in_key=False)) == [TOAST]
    assert parts.holes.tolist() == [True]  # the other column
    assert new_row(moved) == [UNCHANGED, UNCHANGED]


def test_only_the_columns_asked_for_are_read() -> None:
    update = message("U", cells("K", [None, "1", None]), cells("N", ["a", "2", "b"]))
    parts = split(pa.array([update, update]), 3, [1])
    assert {1} == set(parts.new.cells) == set(parts.old.cells)
    assert parts.new.cells[1].text.to_pylist() == [b"2", b"2"]
    assert parts.old.cells[1].text.to_pylist() == [b"1", b"1"]


def test_no_messages_have_all_columns_empty() -> None:
    parts = split(pa.array([], pa.binary()), 2)
    assert [len(parts.new.cells[column].text) for column in range(2)] == [0, 0]
    assert len(parts.op) == len(parts.old.rows) == len(parts.whole) == 0


def test_a_message_with_another_number_of_columns_is_refused() -> None:
    with pytest.raises(TableError, match="a change has 2 columns, its relation 3"):
        split(pa.array([message("I", cells("N", ["1", "2"]))]), 3)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"I\0\0\0\1N",
        message("X", cells("N", ["1", "2"])),
        message("I", cells("K", ["1", "2"])),
        message("D", cells("N", ["1", "2"])),
        message("U", cells("K", ["1", "2"])),
        message("I", cells("N", ["1", "2"])) + b"more",
        message("D", cells("K", ["1", "2"])) + b"more",
        message("I", cells("N", ["1", "22222"]))[:-3],
        message("I", cells("N", ["1", "2"]))[:-6],
        message("I", b"N\0\2b\0\0\0\1xn"),
    ],
)
@pytest.mark.parametrize("after", [[], [message("I", cells("N", ["3", "4"]))]])
def test_a_message_that_is_not_well_formed_is_refused_and_not_misread(broken: bytes, after: list[bytes]) -> None:
    with pytest.raises(TableError):
        split(pa.array([message("I", cells("N", ["1", "2"])), broken, *after]), 2)


def test_a_null_message_is_refused() -> None:
    with pytest.raises(TableError, match="null"):
        split(pa.array([None], pa.binary()), 2)


def test_messages_of_a_real_server_are_read(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id int PRIMARY KEY, n int, big text)")
        conn.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
        conn.execute("CREATE PUBLICATION p FOR TABLE t")
        slot = "s_" + conn.info.dbname
        conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        for statement in (
            "INSERT INTO t VALUES (1, NULL, repeat('x', 9000))",
            "UPDATE t SET n = 5",
            "UPDATE t SET id = 2",
            "DELETE FROM t",
            "ALTER TABLE t REPLICA IDENTITY FULL",
            "INSERT INTO t VALUES (3, 7, 'y')",
            "UPDATE t SET n = 8",
            "DELETE FROM t",
        ):
            conn.execute(statement)
        raw = [data for (data,) in conn.execute(CHANGES, (slot,)).fetchall() if data[:1] in (b"I", b"U", b"D")]
    parts = split(pa.array(raw), 3)
    assert bytes(parts.op) == b"IUUDIUD"
    big = "x" * 9000
    assert seen(parts.new, 3) == {
        0: ["1", None, big],
        1: ["1", "5", TOAST],
        2: ["2", "5", TOAST],
        4: ["3", "7", "y"],
        5: ["3", "8", "y"],
    }
    assert seen(parts.old, 3) == {2: ["1", None, None], 3: ["2", None, None], 5: ["3", "7", "y"], 6: ["3", "8", "y"]}
    assert parts.whole.tolist() == [False, False, True, True]
    assert split(pa.array(raw), 3, [0], find_holes=True).holes.tolist() == [False, True, True, False, False]
