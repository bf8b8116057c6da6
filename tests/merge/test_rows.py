"""The two ends where types are met, on messages made by hand: keys for the fold, typed rows to write."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.change import Column, Lsn, Relation, TableName
from headwater.errors import TableError
from headwater.merge.batch import Mirror
from headwater.merge.rows import keyed, typed_rows
from headwater.types import lake_type

INT4, TEXT, NUMERIC_10_2 = (23, -1), (25, -1), (1700, (10 << 16 | 2) + 4)
TOAST = object()  # a large value that the update left alone, and PostgreSQL therefore did not send


def tuple_of(mark: str, values: tuple[Any, ...]) -> bytes:
    def cell(value: Any) -> bytes:
        if value is None:
            return b"n"
        if value is TOAST:
            return b"u"
        text = str(value).encode()
        return b"t" + struct.pack("!I", len(text)) + text

    return mark.encode() + struct.pack("!H", len(values)) + b"".join(map(cell, values))


def insert(*new: Any) -> bytes:
    return b"I" + struct.pack("!I", 77) + tuple_of("N", new)


def update(*new: Any, key: tuple[Any, ...] | None = None, row: tuple[Any, ...] | None = None) -> bytes:
    old = tuple_of("K", key) if key else tuple_of("O", row) if row else b""
    return b"U" + struct.pack("!I", 77) + old + tuple_of("N", new)


def delete(*key: Any) -> bytes:
    return b"D" + struct.pack("!I", 77) + tuple_of("K", key)


def relation(**columns: tuple[int, int]) -> Relation:
    made = tuple(Column(name, oid, typmod, name.startswith("id")) for name, (oid, typmod) in columns.items())
    return Relation(1, 77, TableName("public", "t"), "d", made)


def mirror(columns: dict[str, tuple[int, int]]) -> Mirror:
    kinds = tuple((name, lake_type(*type_)) for name, type_ in columns.items())
    key = tuple(name for name in columns if name.startswith("id"))
    return Mirror(77, "public.t", Lsn(0), kinds, key, rows=0, inserts_only=False)


SHAPE = {"id": INT4, "item": TEXT, "price": NUMERIC_10_2}


def number(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def told(messages: list[bytes], **columns: tuple[int, int]) -> list[tuple[int, str, bytes]]:
    """What each message does to which key, in the order in which it happens: (message, op, key)."""
    shape = columns or SHAPE
    found = keyed(mirror(shape), relation(**shape), pa.array(messages, pa.binary()))
    rows = zip(found.rows.tolist(), found.late.tolist(), found.op.tolist(), found.key.to_pylist(), strict=True)
    return [(row, chr(op), value) for row, _, op, value in sorted(rows)]


@pytest.mark.parametrize(
    ("message", "does"),
    [
        (insert("1", "a", "1.00"), [("I", 1)]),
        (update("1", "b", "1.00"), [("U", 1)]),
        (update("1", "b", TOAST), [("U", 1)]),
        (delete("1", None, None), [("D", 1)]),
        (update("2", "a", None, key=("1", None, None)), [("D", 1), ("I", 2)]),
        (update("1", "a", None, key=("1", None, None)), [("U", 1)]),  # PostgreSQL tells an old key that is the same
        (update("2", "a", None, row=("1", "a", "1.00")), [("D", 1), ("I", 2)]),
        (update("1", "b", None, row=("1", "a", "1.00")), [("U", 1)]),
        (update("-1", "b", None, key=("2147483647", None, None)), [("D", 2147483647), ("I", -1)]),
    ],
)
def test_what_a_message_does_to_which_key(message: bytes, does: list[tuple[str, int]]) -> None:
    assert told([message]) == [(0, op, number(key)) for op, key in does]


def test_messages_keep_their_order_and_a_moved_row_leaves_before_it_arrives() -> None:
    messages = [
        update("2", "x", None, key=("1", None, None)),
        insert("1", "y", None),
        update("3", "x", None, key=("2", None, None)),
        delete("1", None, None),
        update("3", "z", None),
    ]
    assert told(messages) == [
        (0, "D", number(1)),
        (0, "I", number(2)),
        (1, "I", number(1)),
        (2, "D", number(2)),
        (2, "I", number(3)),
        (3, "D", number(1)),
        (4, "U", number(3)),
    ]


def test_no_messages_have_no_keys() -> None:
    assert told([]) == []


def test_a_key_of_several_columns_moves_when_any_of_them_does() -> None:
    shape = {"id_a": TEXT, "v": TEXT, "id_b": INT4}
    stay = update("x", "v", "1", key=("x", None, "1"))
    move = update("x", "v", "2", key=("x", None, "1"))
    x1 = (1).to_bytes(8, "big") + b"x" + number(1)
    x2 = (1).to_bytes(8, "big") + b"x" + number(2)
    assert told([stay, move], **shape) == [(0, "U", x1), (1, "D", x1), (1, "I", x2)]


def test_a_key_spelled_otherwise_but_equal_does_not_move() -> None:
    shape = {"id": (701, -1), "v": TEXT}  # double precision: PostgreSQL's index calls 0 and -0 equal
    assert [op for _, op, _ in told([update("-0", "v", key=("0", None))], **shape)] == ["U"]
    padded = {"id": (1042, 9), "v": TEXT}  # char(5)
    assert [op for _, op, _ in told([update("ab   ", "v", key=("ab", None))], **padded)] == ["U"]


def test_the_key_is_found_by_its_name_in_an_older_version_of_the_table() -> None:
    older = relation(price=NUMERIC_10_2, id=INT4)
    found = keyed(mirror(SHAPE), older, pa.array([insert("1.00", "7")], pa.binary()))
    assert found.key.to_pylist() == [number(7)]


def test_rows_are_decoded_by_column_onto_the_newest_shape() -> None:
    reordered = relation(price=NUMERIC_10_2, item=TEXT, id=INT4)
    messages = [insert("1.50", "a", "1"), update(None, None, "2"), update("3.25", "c", "3", key=(None, None, "9"))]
    rows = typed_rows(mirror(SHAPE), reordered, pa.array(messages, pa.binary()))
    assert rows.schema == mirror(SHAPE).schema
    assert rows.to_pylist() == [
        {"id": 1, "item": "a", "price": Decimal("1.50")},
        {"id": 2, "item": None, "price": None},
        {"id": 3, "item": "c", "price": Decimal("3.25")},
    ]


@pytest.mark.parametrize(
    ("version", "message", "complaint"),
    [
        (relation(**SHAPE, more=INT4), insert("1", "a", "1.00", "5"), r"has a column 'more' that its copy .* not have"),
        (relation(id=INT4, item=TEXT), insert("1", "a"), r"no longer has column 'price'"),
        (relation(**SHAPE | {"item": INT4}), insert("1", "2", "1.00"), r"column 'item' changed its type"),
        (relation(**SHAPE | {"price": (1700, -1)}), insert("1", "2", "1.00"), r"column 'price' changed its type"),
        (relation(**SHAPE), insert("1", "a", "NaN"), r"'price' holds 'NaN', which no decimal"),
        (relation(**SHAPE), insert("many", "a", "1.00"), r"'id' holds 'many', which no int32"),
        (relation(**SHAPE), update("1", TOAST, "1.00"), r"unchanged large value of column 'item'"),
        (relation(**SHAPE), insert("1", "a"), r"columns, its relation 3"),
        (relation(**SHAPE), insert("1", "a", "1.00")[:-1], r"cannot be read"),
    ],
)
def test_what_cannot_be_written_is_told_with_the_column_and_the_value(
    version: Relation, message: bytes, complaint: str
) -> None:
    good = insert(*["1"] * len(version.columns))
    with pytest.raises(TableError, match=complaint):
        typed_rows(mirror(SHAPE), version, pa.array([good, message], pa.binary()))


@pytest.mark.parametrize(
    ("version", "message", "complaint"),
    [
        (relation(item=TEXT), insert("a"), r"no longer has column 'id'"),
        (relation(id=TEXT, item=TEXT), insert("1", "a"), r"column 'id' changed its type"),
        (relation(id=INT4), insert("many"), r"'id' holds 'many'"),
        (relation(id=INT4), insert(None), r"NULL"),
    ],
)
def test_a_change_whose_key_cannot_be_read_is_told(version: Relation, message: bytes, complaint: str) -> None:
    with pytest.raises(TableError, match=complaint):
        keyed(mirror(SHAPE), version, pa.array([message], pa.binary()))


def test_no_hint_asks_for_what_the_checks_refuse() -> None:
    with pytest.raises(TableError) as refused:
        typed_rows(mirror(SHAPE), relation(**SHAPE), pa.array([update("1", TOAST, None)], pa.binary()))
    assert refused.value.hint
    assert "FULL" not in refused.value.hint  # a replica identity that `check` does not accept yet
