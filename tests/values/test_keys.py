"""Canonical key bytes: equal exactly when PostgreSQL calls the keys equal."""

from __future__ import annotations

import uuid
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.merge.messages import kind_of

from headwater.change import BaseType
from headwater.errors import TableError
from headwater.values.keys import key_bucket, key_bytes, key_values, leading_bounds, row_bytes, row_keys
from headwater.values.types import LakeType


def kind(oid: int, typmod: int = -1, dims: int = 0) -> LakeType:
    return kind_of(BaseType(oid, typmod, dims, ""))


SMALLINT, INTEGER, BIGINT, TEXT, CHAR, BYTEA = (kind(oid) for oid in (21, 23, 20, 25, 1042, 17))
REAL, DOUBLE, BOOLEAN, UUID, DATE, TIME = (kind(oid) for oid in (700, 701, 16, 2950, 1082, 1083))
TIMESTAMP, TIMESTAMPTZ, OID, XID8 = (kind(oid) for oid in (1114, 1184, 26, 5069))
MONEY = kind(1700, (12 << 16 | 2) + 4)
LATEST = 9223371331199999999  # 294276-12-31 23:59:59.999999, in µs since 1970


def one(kind: LakeType, *values: Any) -> list[bytes]:
    found: list[bytes] = key_bytes([pa.array(values, kind.arrow)], [kind]).to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "same", "other"),
    [
        (DOUBLE, (0.0, -0.0), 1.0),
        (REAL, (0.0, -0.0), 1.0),
        (CHAR, ("ab   ", "ab", "ab "), "ab\t"),
        (TEXT, ("ab", "ab"), "ab "),
        (MONEY, (Decimal("1.50"), Decimal("1.5")), Decimal("-1.50")),
        (kind(701, dims=1), ([0.0, None], [-0.0, None]), [None, 0.0]),
        (kind(1042, dims=2), ([["a "], ["b"]], [["a"], ["b  "]]), [["a", "b"]]),
    ],
)
def test_values_that_postgresql_calls_equal_have_equal_bytes(kind: LakeType, same: tuple[Any, ...], other: Any) -> None:
    *equal, different = one(kind, *same, other)
    assert len(set(equal)) == 1
    assert different not in equal


def test_every_not_a_number_is_the_same_key() -> None:
    odd = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    assert len(set(key_bytes([pa.array(odd)], [DOUBLE]).to_pylist())) == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (SMALLINT, [-1, 0, 1, 32767]),
        (BIGINT, [-(2**63), -1, 0, 2**63 - 1]),
        (BOOLEAN, [True, False]),
        (DOUBLE, [0.1, -0.1, float("inf"), -float("inf")]),
        (MONEY, [Decimal("0.01"), Decimal("-0.01"), Decimal("9999999999.99")]),
        (TEXT, ["", "a", "A", "é"]),
        (BYTEA, [b"", b"\0", b"\0\0"]),
        (UUID, [uuid.UUID(int=n).bytes for n in (0, 1, 2**127)]),
        (DATE, [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
        (TIME, [time(0), time(23, 59, 59, 999999)]),
        (TIMESTAMP, [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
        (TIMESTAMPTZ, [datetime(1, 1, 1), datetime(2024, 1, 1)]),
        (OID, [0, 1, 2**31, 2**32 - 1]),
        (XID8, [0, 1, 2**63, 2**64 - 1]),
        (kind(23, dims=1), [[], [None], [1], [1, None], [None, 1], [0, 1]]),
        (kind(25, dims=2), [[], [[None]], [["a"], ["b"]], [["a", "b"]], [["ab", ""]], [["", "ab"]]]),
    ],
)
def test_a_key_read_back_from_parquet_has_the_same_bytes(kind: LakeType, values: list[Any], tmp_path: Any) -> None:
    column = pa.array(values, kind.arrow)
    stored = pa.ExtensionArray.from_storage(pa.uuid(), column) if kind is UUID else column
    pq.write_table(pa.table({"key": stored}), tmp_path / "f.parquet", store_schema=False)
    back = pq.read_table(tmp_path / "f.parquet")["key"].combine_chunks()
    keys = key_bytes([column], [kind])
    assert key_bytes([back], [kind]).equals(keys)
    assert len(set(keys.to_pylist())) == len(values)
    padded = pa.concat_arrays([column, column]).slice(len(values))
    assert key_bytes([padded], [kind]).equals(keys)
    assert keys.type == pa.binary()


def test_a_widened_column_keeps_its_keys() -> None:
    narrow = pa.array([-7, 0, 7], pa.int16())
    assert len({tuple(key_bytes([narrow], [kind]).to_pylist()) for kind in (SMALLINT, INTEGER, BIGINT)}) == 1
    assert one(OID, 2**32 - 1) == one(BIGINT, 2**32 - 1)
    wider = kind(1700, (20 << 16 | 4) + 4)
    assert one(wider, Decimal("1.5000")) == key_bytes([pa.array([Decimal("1.50")])], [wider]).to_pylist()


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        (SMALLINT, [3, -7], (-7, 3)),
        (BIGINT, [2**63 - 1, -(2**63)], (-(2**63), 2**63 - 1)),
        (OID, [1, 2**32 - 1], (1, 2**32 - 1)),
        (DATE, [date(1970, 1, 3), date(1969, 12, 31)], (-1, 2)),
        (XID8, [1, 2**64 - 1], None),  # its numbers do not fit
        (TEXT, ["a"], None),
        (DOUBLE, [1.0], None),
        (BIGINT, [], None),
    ],
)
def test_the_bounds_of_the_first_key_column_are_its_own_numbers(
    kind: LakeType, values: list[Any], bounds: tuple[int, int] | None
) -> None:
    columns = [pa.array(values, kind.arrow), pa.array(["x"] * len(values))]
    assert leading_bounds(key_bytes(columns, [kind, TEXT]), kind) == bounds
    assert leading_bounds(key_bytes(columns[:1], [kind]), kind) == bounds


pairs = st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3), st.integers(-2, 2)), min_size=2, max_size=8)


@given(pairs)
def test_keys_of_several_columns_cannot_run_together(rows: list[tuple[str, str, int]]) -> None:
    first, second, third = zip(*rows, strict=True)
    columns = [pa.array(first), pa.array(second), pa.array(third)]
    keys = key_bytes(columns, [TEXT, TEXT, INTEGER]).to_pylist()
    assert len(set(keys)) == len(set(rows))
    sliced = key_bytes([column.slice(1) for column in columns], [TEXT, TEXT, INTEGER])
    assert sliced.to_pylist() == keys[1:]


def test_several_fixed_columns_stand_side_by_side() -> None:
    columns = [pa.array([1, 2, 3]), pa.array([uuid.UUID(int=n).bytes for n in range(3)], pa.binary(16))]
    keys = key_bytes([column.slice(1) for column in columns], [BIGINT, UUID])
    assert keys.to_pylist() == [bytes(7) + b"\2" + bytes(15) + b"\1", bytes(7) + b"\3" + bytes(15) + b"\2"]


def test_no_rows_have_no_keys() -> None:
    assert len(key_bytes([pa.array([], pa.int32())], [INTEGER])) == 0
    assert len(key_bytes([pa.array([], pa.int32()), pa.array([], pa.string())], [INTEGER, TEXT])) == 0
    assert len(key_bucket(pa.array([], pa.binary()), 4)) == 0


def test_a_null_in_a_key_is_refused() -> None:
    with pytest.raises(TableError, match="NULL"):
        key_bytes([pa.array([1, None])], [BIGINT])


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30), st.integers(1, 9), st.data())
def test_a_key_falls_into_the_same_bucket_wherever_it_stands(
    keys: list[bytes], buckets: int, data: st.DataObject
) -> None:
    whole = key_bucket(pa.array(keys, pa.binary()), buckets)
    start = data.draw(st.integers(0, len(keys) - 1))
    assert key_bucket(pa.array(keys, pa.binary()).slice(start), buckets).tolist() == whole[start:].tolist()
    alone = [key_bucket(pa.array([key], pa.large_binary()), buckets)[0] for key in keys]
    assert alone == whole.tolist()
    assert ((whole >= 0) & (whole < buckets)).all()


def test_a_bucket_is_the_same_for_ever() -> None:
    keys = pa.array([b"", b"a", b"12345678", b"123456789", bytes(8)])
    assert key_bucket(keys, 1000).tolist() == [535, 102, 875, 402, 366]


@pytest.mark.parametrize("kind", [BIGINT, TEXT])
def test_keys_in_sequence_spread_evenly(kind: LakeType) -> None:
    values = pa.array(range(20_000)).cast(kind.arrow)
    counts = np.bincount(key_bucket(key_bytes([values], [kind]), 16), minlength=16)
    assert counts.min() > 1100
    assert counts.max() < 1400


NANS = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
DISTINCT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int16(), [0, 1, -1, 32767]),
    (pa.int32(), [0, 1, -1, 2**31 - 1]),
    (pa.int64(), [0, 1, -1, 2**63 - 1]),
    (pa.uint32(), [0, 1, 2**32 - 1]),
    (pa.uint64(), [0, 1, 2**64 - 1]),
    (pa.float32(), [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf")]),
    (pa.float64(), [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf")]),
    (pa.decimal128(38, 18), [Decimal(0), Decimal("1.5"), Decimal("-1.5"), Decimal(10) ** 19]),
    (pa.large_string(), ["", "a", "A", " a", "a ", "é", "\0"]),
    (pa.large_binary(), [b"", b"\0", b"\0\0", b"a"]),
    (pa.binary(16), [bytes(16), bytes(15) + b"\1"]),
    (pa.date32(), [0, 1, -1, 2**31 - 1]),
    (pa.time64("us"), [0, 1, 86_400_000_000]),  # 24:00:00 is not 00:00:00
    (pa.timestamp("us"), [0, 1, -(2**62), LATEST]),
    (pa.timestamp("us", "UTC"), [0, 1, -(2**62), LATEST]),
]
LISTS: list[tuple[pa.DataType, list[Any]]] = [
    (
        pa.list_(pa.field("element", kind)),
        [[], [None], [None, None], *([value] for value in values), values, values * 2],
    )
    for kind, values in DISTINCT
]
DEEP: list[tuple[pa.DataType, list[Any]]] = [
    (pa.list_(pa.list_(pa.int32())), [[], [[]], [None], [[None]], [[1], [2]], [[1, 2]], [[], [1, 2]], [[1, 2], []]]),
    (pa.list_(pa.list_(pa.large_string())), [[["a", "b"]], [["a"], ["b"]], [["ab"]], [["ab", ""]], [["", "ab"]]]),
]


@pytest.mark.parametrize(("type_", "values"), [*DISTINCT, *LISTS, *DEEP], ids=lambda each: str(each)[:30])
def test_entire_rows_have_the_same_bytes_exactly_when_their_values_are_the_same(
    type_: pa.DataType, values: list[Any]
) -> None:
    if pa.types.is_temporal(type_):
        whole = pa.array([*values, None], pa.int32() if pa.types.is_date(type_) else pa.int64()).view(type_)
    elif pa.types.is_list(type_) and pa.types.is_temporal(type_.value_type):
        numbers = pa.int32() if pa.types.is_date(type_.value_type) else pa.int64()
        whole = pa.array([*values, None], pa.list_(numbers)).view(type_)
    else:
        whole = pa.array([*values, None], type_)
    rows = row_bytes([whole])
    assert rows.type == pa.binary()
    assert len(set(rows.to_pylist())) == len(values) + 1
    for first in range(len(whole)):  # wherever a value stands, and whether or not a null is among the others
        assert row_bytes([whole.slice(first, 1)]).to_pylist() == rows.slice(first, 1).to_pylist()
    assert row_bytes([pa.concat_arrays([whole.slice(1), whole])]).to_pylist() == [
        *rows.to_pylist()[1:],
        *rows.to_pylist(),
    ]
    beside = row_bytes([whole, whole.take(pa.array(range(len(whole))[::-1]))]).to_pylist()
    assert len(set(beside)) == len(whole)


def test_whatever_a_nan_is_made_of_it_is_the_same_row() -> None:
    assert len(set(row_bytes([pa.array(NANS)]).to_pylist())) == 1
    assert len(set(row_bytes([pa.array([[value] for value in NANS])]).to_pylist())) == 1
    narrow = np.array([0x7FC00000, 0xFFC00001, 0x7F800001], np.uint32).view(np.float32)
    assert len(set(row_bytes([pa.array(narrow)]).to_pylist())) == 1


def test_what_lies_hidden_under_a_null_does_not_count() -> None:
    hidden = pa.Array.from_buffers(pa.int32(), 2, [pa.py_buffer(b"\0"), pa.array([1, 2], pa.int32()).buffers()[1]])
    assert row_bytes([hidden]).equals(row_bytes([pa.nulls(2, pa.int32())]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), pa.array([1, 2]), mask=pa.array([True, False]))
    assert row_bytes([lists]).equals(row_bytes([pa.array([None, [2]], lists.type)]))


cells = st.one_of(st.none(), st.text(max_size=2))


@given(st.lists(st.tuples(cells, cells, st.one_of(st.none(), st.lists(cells, max_size=3))), min_size=1, max_size=8))
def test_columns_of_entire_rows_cannot_run_together(rows: list[tuple[Any, ...]]) -> None:
    types = (pa.string(), pa.string(), pa.list_(pa.string()))
    columns = [pa.array(values, type_) for values, type_ in zip(zip(*rows, strict=True), types, strict=True)]
    found = row_bytes(columns).to_pylist()
    assert len(set(found)) == len({repr(row) for row in rows})
    assert row_bytes([column.slice(1) for column in columns]).to_pylist() == found[1:]


def test_a_row_is_reported_apart_by_its_key_or_else_by_all_it_holds() -> None:
    rows = pa.table({"a": pa.chunked_array([[1], [2]]), "b": ["x", "y"]})
    assert row_keys(rows, {"a": BIGINT}).to_pylist() == [bytes(7) + b"\1", bytes(7) + b"\2"]
    assert row_keys(rows, {}).equals(row_bytes([pa.array([1, 2]), pa.array(["x", "y"])]))
    assert len(row_bytes([pa.array([], pa.int32()), pa.array([], pa.list_(pa.string()))])) == 0


VALUES: list[tuple[LakeType, list[Any]]] = [
    (SMALLINT, [-5, 7]),
    (BIGINT, [-(2**63), 2**63 - 1]),
    (OID, [0, 2**32 - 1]),
    (XID8, [0, 2**64 - 1]),
    (TEXT, ["", "ü/"]),
    (BYTEA, [b"\x00\xff", b""]),
    (BOOLEAN, [True, False]),
    (UUID, [bytes(16), bytes(range(16))]),
    (DATE, [date(1, 1, 1), date(2026, 1, 2)]),
    (TIME, [time(0), time(23, 59, 59, 1)]),
    (TIMESTAMP, [datetime(1969, 12, 31, 23), datetime(2026, 1, 1)]),
    (MONEY, [Decimal("-0.01"), Decimal("12.50")]),
]


@pytest.mark.parametrize(("first", "values"), VALUES, ids=lambda each: str(each)[:30])
def test_the_columns_of_a_key_follow_from_its_bytes(first: LakeType, values: list[Any]) -> None:
    column = pa.array(values, first.arrow)
    assert key_values(key_bytes([column], [first]), [first]) == [column]
    for second, others in VALUES:
        other = pa.array(others, second.arrow)
        keys = key_bytes([column, other, column], [first, second, first])
        assert key_values(keys, [first, second, first]) == [column, other, column]
        assert key_values(keys.slice(1), [first, second, first])[1] == other.slice(1)


def test_columns_whose_keys_have_lost_something_do_not_follow() -> None:
    kinds = [CHAR, DOUBLE, kind(23, dims=1), INTEGER]
    columns = [pa.array(["a  "], CHAR.arrow), pa.array([-0.0]), pa.array([[1, 2]], kinds[2].arrow), pa.array([3])]
    *lost, kept = key_values(key_bytes(columns, kinds), kinds)
    assert lost == [None, None, None]
    assert kept == pa.array([3], pa.int32())
