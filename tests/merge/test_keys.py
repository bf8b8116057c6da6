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

from headwater.errors import TableError
from headwater.merge.keys import key_bucket, key_bytes
from headwater.types import LakeType, lake_type

SMALLINT, INTEGER, BIGINT, TEXT, CHAR, BYTEA = (lake_type(oid, -1) for oid in (21, 23, 20, 25, 1042, 17))
REAL, DOUBLE, BOOLEAN, UUID, DATE, TIME = (lake_type(oid, -1) for oid in (700, 701, 16, 2950, 1082, 1083))
TIMESTAMP, TIMESTAMPTZ = lake_type(1114, -1), lake_type(1184, -1)
MONEY = lake_type(1700, (12 << 16 | 2) + 4)


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
    wider = lake_type(1700, (20 << 16 | 4) + 4)
    assert one(wider, Decimal("1.5000")) == key_bytes([pa.array([Decimal("1.50")])], [wider]).to_pylist()


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
