"""History mode on messages made by hand: every change is a row, with what the source sends of the one before."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headwater.change import Relation
from headwater.lake import history
from headwater.merge.history import history_rows
from headwater.merge.reader import Typed
from headwater.values.decode import Bad
from tests.merge.messages import (
    INT4,
    INT8,
    NUMERIC,
    TEXT,
    TOAST,
    column,
    delete,
    insert,
    mirror,
    relation,
    update,
)  # fmt: skip

SHAPE = relation(column("id", INT4, 1), column("item", TEXT, 2), column("price", NUMERIC, 3))
MOMENT = datetime(2024, 5, 6, 7, 8, 9, 10, UTC)
TRUNCATE = b"T" + bytes(9)


def rows_of(*messages: bytes, shape: Relation = SHAPE, newest: Relation = SHAPE) -> Typed:
    changes = pa.table(
        {
            "commit_lsn": pa.array([100 + at for at in range(len(messages))], pa.int64()),
            "seq": pa.array(range(len(messages)), pa.int64()),
            "op": pa.array([each[0] for each in messages], pa.uint8()),
            "message": pa.array(messages, pa.binary()),
            "xid": pa.array([7] * len(messages), pa.int64()),
            "commit_ts": pa.array([MOMENT] * len(messages), pa.timestamp("us", "UTC")),
        }
    )
    return history_rows(mirror(newest, history=True), shape, changes)


def shown(typed: Typed, *names: str) -> list[tuple[Any, ...]]:
    rows = typed.rows.to_pylist()
    return [
        tuple(json.loads(row[n]) if row[n] and n in ("_old", "_unchanged") else row[n] for n in names) for row in rows
    ]


@pytest.mark.parametrize(
    ("message", "op", "row", "old", "unchanged"),
    [
        (insert("1", "a", "1.00"), "insert", (1, "a"), None, None),
        (insert("1", None, "1.00"), "insert", (1, None), None, None),
        (update("1", "b", "1.00"), "update", (1, "b"), None, None),
        (update("1", TOAST, "1.00"), "update", (1, None), None, ["item"]),
        (update("2", "b", "1.00", key=("1", None, None)), "update", (2, "b"), {"id": "1"}, None),
        (update("2", TOAST, "1.00", key=("1", None, None)), "update", (2, None), {"id": "1"}, ["item"]),
        (update(TOAST, TOAST, "1.00", key=("1", None, None)), "update", (1, None), {"id": "1"}, ["item"]),
        (
            update("2", TOAST, "1.00", row=("1", "a", None)),
            "update",
            (2, "a"),
            {"id": "1", "item": "a", "price": None},
            None,
        ),
        (delete("1", None, None), "delete", (1, None), {"id": "1"}, None),
        (delete(row=("1", "a", None)), "delete", (1, "a"), {"id": "1", "item": "a", "price": None}, None),
        (TRUNCATE, "truncate", (None, None), None, None),
    ],
)
def test_what_a_change_becomes_in_the_history(message: bytes, op: str, row: Any, old: Any, unchanged: Any) -> None:
    around = (insert("8", "x", "8.00"), message, TRUNCATE, delete("9", None, None))
    for messages in ((message,), around):
        found = rows_of(*messages)
        assert shown(found, "_op", "id", "item", "_old", "_unchanged")[len(messages) > 1] == (op, *row, old, unchanged)
        assert found.rows.schema == pa.schema([*history.SCHEMA, *mirror(SHAPE).schema])
        assert found.bad == {}


def test_every_row_knows_its_place_in_the_order_of_all_changes() -> None:
    found = rows_of(insert("1", "a", None), TRUNCATE, delete("1", None, None))
    assert shown(found, "_commit_lsn", "_seq", "_xid", "_commit_ts") == [
        (100, 0, 7, MOMENT),
        (101, 1, 7, MOMENT),
        (102, 2, 7, MOMENT),
    ]


def test_a_value_that_does_not_fit_is_reported_with_its_row_also_behind_a_truncate() -> None:
    found = rows_of(TRUNCATE, insert("1", "a", "NaN"), TRUNCATE, delete(row=("1", "a", "Infinity")))
    assert found.bad == {"price": (Bad(1, "NaN"), Bad(3, "Infinity"))}
    assert found.rows["price"].null_count == 4
    assert shown(found, "_old")[3] == ({"id": "1", "item": "a", "price": "Infinity"},)


def test_only_truncates_are_rows_too() -> None:
    assert shown(rows_of(TRUNCATE, TRUNCATE), "_op", "id") == [("truncate", None), ("truncate", None)]


def test_changes_under_an_older_shape_land_in_the_newest() -> None:
    older = relation(column("old_name", TEXT, 2), column("id", INT4, 1), column("gone", TEXT, 4), column("n", INT4, 6))
    newest = relation(*SHAPE.columns[:2], column("flag", TEXT, 5, ""), column("n", INT8, 6))
    found = rows_of(
        insert("a", "1", "x", "3"), update(TOAST, "1", TOAST, None), delete(None, "1", None, None),
        shape=older, newest=newest,
    )  # fmt: skip
    assert shown(found, "id", "item", "flag", "n", "_old", "_unchanged") == [
        (1, "a", "", 3, None, None),
        (1, None, "", None, None, ["item"]),
        (1, None, "", None, {"id": "1"}, None),
    ]


def test_a_table_without_a_key_has_a_history() -> None:
    bag = relation(column("item", TEXT, 2), identity="f")
    found = rows_of(insert("a"), update(TOAST, row=("a",)), delete(row=("a",)), shape=bag, newest=bag)
    assert shown(found, "_op", "item", "_old", "_unchanged") == [
        ("insert", "a", None, None),
        ("update", "a", {"item": "a"}, None),
        ("delete", "a", {"item": "a"}, None),
    ]
