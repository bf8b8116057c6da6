"""The two ends where types are met, on messages made by hand: keys for the fold, typed rows to write."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.change import BaseType, Column, Relation
from headwater.errors import CannotFollow, TableError
from headwater.merge.net import UPSERT
from headwater.merge.reader import Typed
from headwater.merge.rows import first_value, keyed, typed_rows
from headwater.merge.tuples import UNCHANGED
from headwater.values.decode import Bad
from tests.merge.messages import (
    DOUBLE,
    INT4,
    INT4S,
    INT8,
    NUMERIC,
    TEXT,
    TOAST,
    column,
    delete,
    insert,
    mirror,
    number,
    relation,
    update,
)  # fmt: skip

ID, ITEM, PRICE = column("id", INT4, 1), column("item", TEXT, 2), column("price", NUMERIC, 3)
SHAPE = relation(ID, ITEM, PRICE)


def reported(messages: list[bytes], shape: Relation = SHAPE) -> list[tuple[int, str, bytes]]:
    """What each message does to which key, in the order in which it happens: (message, op, key)."""
    found = keyed(mirror(shape), shape, pa.array(messages, pa.binary()))
    rows = zip(found.rows.tolist(), found.late.tolist(), found.op.tolist(), found.key.to_pylist(), strict=True)
    return [(row, chr(op), value) for row, _, op, value in sorted(rows)]


@pytest.mark.parametrize(
    ("message", "does"),
    [
        (insert("1", "a", "1.00"), [("I", 1)]),
        (update("1", "b", "1.00"), [("U", 1)]),
        (update("1", "b", TOAST), [("U", 1)]),
        (delete("1", None, None), [("D", 1)]),
        (delete(row=("1", "a", "1.00")), [("D", 1)]),
        (update("2", "a", None, key=("1", None, None)), [("D", 1), ("I", 2)]),
        (update("1", "a", None, key=("1", None, None)), [("U", 1)]),  # PostgreSQL sends an old key that is the same
        (update("2", "a", None, row=("1", "a", "1.00")), [("D", 1), ("I", 2)]),
        (update("1", "b", None, row=("1", "a", "1.00")), [("U", 1)]),
        (update("-1", "b", None, key=("2147483647", None, None)), [("D", 2147483647), ("I", -1)]),
    ],
)
def test_what_a_message_does_to_which_key(message: bytes, does: list[tuple[str, int]]) -> None:
    assert reported([message]) == [(0, op, number(key)) for op, key in does]


def test_messages_keep_their_order_and_a_moved_row_leaves_before_it_arrives() -> None:
    messages = [
        update("2", "x", None, key=("1", None, None)),
        insert("1", "y", None),
        update("3", "x", None, key=("2", None, None)),
        delete("1", None, None),
        update("3", "z", None),
    ]
    assert reported(messages) == [
        (0, "D", number(1)),
        (0, "I", number(2)),
        (1, "I", number(1)),
        (2, "D", number(2)),
        (2, "I", number(3)),
        (3, "D", number(1)),
        (4, "U", number(3)),
    ]


@pytest.mark.parametrize("shape", [SHAPE, relation(ITEM, PRICE)])
def test_no_messages_have_no_keys(shape: Relation) -> None:
    assert reported([], shape) == []


def test_a_key_of_several_columns_moves_when_any_of_them_does() -> None:
    shape = relation(column("id_a", TEXT, 1), column("v", TEXT, 2), column("id_b", INT4, 3))
    stay = update("x", "v", "1", key=("x", None, "1"))
    move = update("x", "v", "2", key=("x", None, "1"))
    x1 = (1).to_bytes(8, "big") + b"x" + number(1)
    x2 = (1).to_bytes(8, "big") + b"x" + number(2)
    assert reported([stay, move], shape) == [(0, "U", x1), (1, "D", x1), (1, "I", x2)]


@pytest.mark.parametrize(
    ("type_", "old", "new"),
    [(DOUBLE, "0", "-0"), (BaseType(1042, 9, 0, "character(5)"), "ab", "ab   "), (INT4S, "{1,NULL}", "{1,NULL}")],
)
def test_a_key_spelled_otherwise_but_equal_does_not_move(type_: BaseType, old: str, new: str) -> None:
    shape = relation(column("id", type_, 1), ITEM)
    assert [op for _, op, _ in reported([update(new, "v", key=(old, None))], shape)] == ["U"]


def test_the_key_is_found_by_its_number_in_an_older_version_of_the_table() -> None:
    older = relation(PRICE, column("item", INT4, 1), column("id", TEXT, 2))  # since then the two swapped their names
    found = keyed(mirror(SHAPE), older, pa.array([insert("1.00", "7", "x")], pa.binary()))
    assert found.key.to_pylist() == [number(7)]


def test_a_key_widened_since_is_the_one_the_lake_has() -> None:
    older = relation(column("id", INT4, 1), ITEM)
    newest = relation(column("id", INT8, 1), ITEM)
    before = keyed(mirror(newest), older, pa.array([insert("-7", "x")], pa.binary()))
    after = keyed(mirror(newest), newest, pa.array([delete("-7", None)], pa.binary()))
    assert before.key.equals(after.key)


def test_a_large_key_that_was_left_alone_is_reported_by_the_old_key() -> None:
    shape = relation(column("big", TEXT, 1), column("id_a", TEXT, 2), column("v", TEXT, 3), column("id_b", INT4, 4))
    stay = update("x", TOAST, "v", "1", key=(None, "k", None, "1"))
    move = update("x", TOAST, "v", "2", key=(None, "k", None, "1"))
    found = keyed(mirror(shape), shape, pa.array([stay, move], pa.binary()))
    k1, k2 = ((1).to_bytes(8, "big") + b"k" + number(n) for n in (1, 2))
    assert list(zip(bytes(found.op).decode(), found.key.to_pylist(), strict=True)) == [("U", k1), ("I", k2), ("D", k1)]
    assert found.holes.tolist() == [False, False, False]
    rows = typed(shape, {1: shape}, {"message": stay}, {"message": move}).rows
    assert rows["id_a"].to_pylist() == ["k", "k"]


@pytest.mark.parametrize("place", [0, 2, 3])
def test_a_hole_is_seen_wherever_it_stands_and_a_moved_row_tells_its_origin(place: int) -> None:
    shape = relation(column("a", TEXT, 1), column("id", INT4, 2), column("b", TEXT, 3), column("c", TEXT, 4))

    def row(key: str, hole: object) -> list[Any]:
        return [key if at == 1 else hole if at == place else "x" for at in range(4)]

    messages = [
        insert(*row("1", "x")),
        update(*row("1", TOAST)),
        update(*row("2", TOAST), key=(None, "1", None, None)),
        update(*row("3", "x"), key=(None, "2", None, None)),
        update(*row("3", TOAST), key=(None, "3", None, None)),
        update(*row("4", TOAST), row=("a", "3", "b", "c")),
        delete(None, "4", None, None),
    ]
    found = keyed(mirror(shape), shape, pa.array(messages, pa.binary()))
    seen = zip(found.rows.tolist(), found.late.tolist(), found.holes.tolist(), found.origin.to_pylist(), strict=True)
    assert [each for each in sorted(seen, key=lambda each: each[:2]) if each[1]] == [
        (0, True, False, None),
        (1, True, True, None),
        (2, True, True, number(1)),
        (3, True, False, None),
        (4, True, True, None),
        (5, True, False, None),
    ]
    assert found.holes[~found.late].tolist() == [row == 2 for row in found.rows[~found.late].tolist()]


BAG = relation(ITEM, PRICE, identity="f")


def test_without_a_key_every_update_takes_one_row_out_and_puts_one_in() -> None:
    messages = [
        insert("a", "1.00"),
        update("b", "1.00", row=("a", "1.00")),
        update("b", TOAST, row=("b", "2.00")),
        delete(row=("b", None)),
    ]
    found = reported(messages, BAG)
    a1, b1, b2, b_null = (keyed(mirror(BAG), BAG, pa.array([insert(*row)])).key[0].as_py() for row in
                          (("a", "1.00"), ("b", "1.00"), ("b", "2.00"), ("b", None)))  # fmt: skip
    assert len({a1, b1, b2, b_null}) == 4
    assert found == [(0, "I", a1), (1, "D", a1), (1, "I", b1), (2, "U", b2), (3, "D", b_null)]


@pytest.mark.parametrize("message", [update("a", "1.00"), delete("a", None), update("a", "1.00", key=("b", None))])
def test_without_a_key_a_change_that_does_not_tell_the_whole_old_row_cannot_be_followed(message: bytes) -> None:
    with pytest.raises(CannotFollow, match="comes without the whole old row"):
        reported([message], BAG)


def test_without_a_key_rows_from_before_a_column_are_those_that_show_its_default() -> None:
    newest = relation(ITEM, column("more", TEXT, 9, ""), identity="f")
    older = relation(ITEM, identity="f")
    before = keyed(mirror(newest), older, pa.array([insert("a")], pa.binary()))
    after = keyed(mirror(newest), newest, pa.array([delete(row=("a", ""))], pa.binary()))
    assert before.key.equals(after.key)


def typed(newest: Relation, versions: dict[int, Relation], *upserts: dict[str, Any], lake: Any = None) -> Typed:
    """The rows of these upserts (of `net.UPSERT`; relation 1 unless given)."""
    table = pa.Table.from_pylist([{"relation": 1} | each for each in upserts], schema=UPSERT)
    return typed_rows(mirror(newest), versions, table, lake)


def test_rows_are_decoded_by_column_onto_the_newest_shape() -> None:
    reordered = relation(PRICE, ITEM, ID)
    messages = [insert("1.50", "a", "1"), update(None, None, "2"), update("3.25", "c", "3", key=(None, None, "9"))]
    found = typed(SHAPE, {1: reordered}, *({"message": each} for each in messages))
    assert found.rows.schema == mirror(SHAPE).schema
    assert found.bad == {}
    assert found.rows.to_pylist() == [
        {"id": 1, "item": "a", "price": Decimal("1.50")},
        {"id": 2, "item": None, "price": None},
        {"id": 3, "item": "c", "price": Decimal("3.25")},
    ]


def test_columns_renamed_dropped_added_and_widened_since_land_in_the_newest_shape() -> None:
    older = relation(ID, column("gone", TEXT, 4), column("was", INT4, 5))
    newest = relation(
        column("id", INT8, 1), column("now", INT8, 5), column("none", TEXT, 7),
        column("empty", TEXT, 8, ""), column("seven", INT4, 9, "7"),
    )  # fmt: skip
    found = typed(newest, {1: older}, {"message": insert("1", "x", "2")}, {"message": update("2", TOAST, "3")})
    assert found.rows.to_pylist() == [
        {"id": 1, "now": 2, "none": None, "empty": "", "seven": 7},
        {"id": 2, "now": 3, "none": None, "empty": "", "seven": 7},
    ]


@pytest.mark.parametrize(
    ("version", "message", "bad"),
    [
        (SHAPE, insert("1", "a", "NaN"), {"price": (Bad(1, "NaN"),)}),
        (SHAPE, insert("1", "a", "123456789.00"), {"price": (Bad(1, "123456789.00"),)}),
        (SHAPE, update("1", "a", "1e9", key=("2", None, None)), {"price": (Bad(1, "1e9"),)}),
        (SHAPE, insert("many", "a", "x"), {"id": (Bad(1, "many"),), "price": (Bad(1, "x"),)}),
    ],
)
def test_a_value_that_does_not_fit_is_null_and_reported(version: Relation, message: bytes, bad: Any) -> None:
    found = typed(SHAPE, {1: version}, {"message": insert("1", "a", "1.00")}, {"message": message})
    assert found.bad == bad
    assert [found.rows[name][1].as_py() for name in bad] == [None] * len(bad)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [(insert("1", "a"), r"columns, its relation 3"), (insert("1", "a", "1.00")[:-1], r"cannot be read")],
)
def test_a_message_of_another_shape_is_refused(message: bytes, complaint: str) -> None:
    with pytest.raises(TableError, match=complaint):
        typed(SHAPE, {1: SHAPE}, {"message": insert("1", "a", "1.00")}, {"message": message})


@pytest.mark.parametrize(
    ("version", "message", "complaint", "needs_recopy"),
    [
        (relation(ITEM), insert("a"), r"another key than before: 'id'", True),
        (relation(column("id", INT4, 0), ITEM), insert("1", "a"), r"which column is which", True),
        (
            relation(column("id", TEXT, 1)),
            insert("many"),
            r"holds 'many' in column 'id', which the lake.s int32 cannot hold",
            False,
        ),
        (relation(ID), insert(None), r"NULL", False),
    ],
)
def test_a_change_whose_key_cannot_be_read_is_reported(
    version: Relation, message: bytes, complaint: str, needs_recopy: bool
) -> None:
    with pytest.raises(TableError, match=complaint) as refused:
        keyed(mirror(SHAPE), version, pa.array([message], pa.binary()))
    assert isinstance(refused.value, CannotFollow) == needs_recopy


WIDE = relation(ID, ITEM, column("numbers", INT4S, 4), PRICE)
EARLIER = relation(ID, column("old_name", TEXT, 2), column("numbers", INT4S, 4), id=2)  # no price yet


def lake_rows(*rows: dict[str, Any]) -> pa.Table:
    schema = pa.schema(
        {"id": pa.int64(), "item": pa.string(), "numbers": pa.list_(pa.int32()), "price": pa.decimal128(10, 2),
         "key": pa.binary()}
    )  # fmt: skip
    return pa.Table.from_pylist([row | {"key": number(row["id"])} for row in rows], schema=schema)


def test_holes_are_filled_from_the_old_row_then_from_older_messages_then_from_the_lake() -> None:
    priced = relation(ID, ITEM, column("numbers", INT4S, 4), column("price", NUMERIC, 3, "9.90"))
    lake = lake_rows(
        {"id": 1, "item": "lake", "numbers": [1, None], "price": Decimal("1.00")},
        {"id": 2, "item": None, "numbers": None, "price": None},
    )
    of_one = {"relation": 1, "base": number(1)}
    found = typed(
        priced,
        {1: priced, 2: EARLIER},
        {"message": update("1", TOAST, TOAST, "2.00", row=("1", "old", "{5}", "1.00"))},
        of_one | {"message": update("1", TOAST, TOAST, TOAST)},
        of_one | {"message": update("1", "new", TOAST, "2.00"), "base": number(2)},
        of_one | {"message": update("7", TOAST, TOAST, TOAST, key=("1", None, None, None)),
                  "older": [update("1", TOAST, "{6,7}"), update("1", "chain", "{8}")], "older_relations": [2, 2]},
        of_one | {"message": update("1", TOAST, TOAST, "2.00"),
                  "older": [update("1", TOAST, TOAST, TOAST), insert("1", None, "{}", "NaN")],
                  "older_relations": [1, 1], "base": None},
        lake=lake,
    )  # fmt: skip
    assert found.bad == {}
    assert found.rows.drop_columns(["id"]).to_pylist() == [
        {"item": "old", "numbers": [5], "price": Decimal("2.00")},
        {"item": "lake", "numbers": [1, None], "price": Decimal("1.00")},
        {"item": "new", "numbers": None, "price": Decimal("2.00")},
        {"item": "chain", "numbers": [6, 7], "price": Decimal("9.90")},  # the chain is older than the price
        {"item": None, "numbers": [], "price": Decimal("2.00")},
    ]


def test_a_value_from_an_older_message_that_does_not_fit_is_reported_with_the_row_that_shows_it() -> None:
    upsert = {
        "message": update("1", "a", TOAST),
        "older": [insert("1", "b", "NaN")],
        "older_relations": [1],
    }
    found = typed(SHAPE, {1: SHAPE}, {"message": insert("2", "x", "1.00")}, upsert)
    assert found.bad == {"price": (Bad(1, "NaN"),)}
    assert found.rows["price"].to_pylist() == [Decimal("1.00"), None]


@pytest.mark.parametrize("lake", [None, lake_rows(), lake_rows({"id": 2, "item": "x", "numbers": [], "price": None})])
def test_a_hole_that_nothing_fills_needs_a_new_copy(lake: pa.Table | None) -> None:
    with pytest.raises(CannotFollow, match=r"left a large value of column 'item' alone"):
        typed(WIDE, {1: WIDE}, {"message": update("1", TOAST, "{}", None), "base": number(1)}, lake=lake)


@pytest.mark.parametrize(
    ("chain", "value"),
    [
        ([], UNCHANGED),
        ([(WIDE, update("1", TOAST, "{}", None))], UNCHANGED),
        ([(WIDE, update("1", TOAST, "{}", None)), (WIDE, update("1", None, "{}", None))], None),
        ([(WIDE, update("1", TOAST, "{}", None)), (EARLIER, insert("1", "x", "{}"))], b"x"),
        ([(WIDE, update("1", TOAST, "{}", None, row=("1", "o", "{}", None)))], b"o"),
        ([(relation(ID), insert("1"))], b"before"),
    ],
)
def test_the_newest_message_that_tells_a_value_tells_it(chain: list[tuple[Relation, bytes]], value: Any) -> None:
    newest = relation(ID, column("item", TEXT, 2, "before"), *WIDE.columns[2:])
    lake = mirror(newest)
    assert first_value(lake, lake.columns[1], chain) == value


def test_a_column_that_never_had_a_number_stops_the_table() -> None:
    nameless = relation(Column("id", 23, -1, True), ITEM)
    with pytest.raises(CannotFollow, match="altered several times"):
        typed(SHAPE, {1: nameless}, {"message": insert("1", "a")})
