"""Routing values: every spelling of a value has the canonical text that the column's rows have."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.errors import ConfigError
from headwater.route.values import canonical, canonical_column, canonical_patterns

EXAMPLES = settings(max_examples=150, deadline=None)
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
DECIMALS = [
    pa.decimal128(1, 0),
    pa.decimal128(10, 2),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
    pa.decimal256(76, 20),
    pa.decimal32(5, 1),
    pa.decimal64(18, 6),
]
SOME = UUID("f1cae8f4-d86f-4965-94dc-5feb35ade4aa")


def in_column(value: Any, type_: pa.DataType) -> str:
    """The canonical text of the value in a row, between a NULL and itself."""
    first, null, second = canonical_column(pa.array([value, None, value], type_)).to_pylist()
    assert null is None
    assert first == second
    return str(first)


@EXAMPLES
@given(st.data(), st.sampled_from(INTEGERS), st.integers(0, 5), st.booleans())
def test_an_integer_in_any_spelling(data: st.DataObject, type_: pa.DataType, zeros: int, plus: bool) -> None:
    signed = pa.types.is_signed_integer(type_)
    bits = type_.bit_width - signed
    value = data.draw(st.integers(-(2**bits) if signed else 0, 2**bits - 1))
    sign = "-" if value < 0 else "+" if plus else ""
    assert canonical(f" {sign}{'0' * zeros}{abs(value)}", type_) == in_column(value, type_) == str(value)


@EXAMPLES
@given(st.data(), st.sampled_from(DECIMALS), st.integers(0, 90))
def test_a_decimal_in_any_spelling(data: st.DataObject, type_: pa.DataType, zeros: int) -> None:
    unscaled = data.draw(st.integers(-(10**type_.precision) + 1, 10**type_.precision - 1))
    value = Decimal(unscaled).scaleb(-type_.scale, Context(prec=100))
    found = in_column(value, type_)
    fixed = f"{value:f}"
    spellings = [fixed, f"{unscaled}e-{type_.scale}", f"{unscaled}{'0' * zeros}E-{type_.scale + zeros}"]
    spellings += [fixed + "0" * zeros if "." in fixed else f"{fixed}.{'0' * zeros}", fixed.replace("0.", ".", 1)]
    assert {canonical(each, type_) for each in spellings if Decimal(each) == value} == {found}
    assert Decimal(found) == value


@EXAMPLES
@given(st.floats(), st.sampled_from([pa.float32(), pa.float64()]))
@example(-0.0, pa.float64())
@example(0.0, pa.float32())
@example(-math.nan, pa.float64())
@example(math.inf, pa.float32())
@example(1e-45, pa.float32())
def test_a_float_in_any_spelling(value: float, type_: pa.DataType) -> None:
    if pa.types.is_float32(type_):
        (value,) = struct.unpack("f", struct.pack("f", value)) if abs(value) < 3.4e38 or value != value else (math.inf,)
    found = in_column(value, type_)
    spellings = [repr(value), f"{value:.17e}", repr(value).upper(), f" {value!r} "]
    if math.isfinite(value):
        spellings += [f"{Decimal(value):f}", f"{value:+.20e}"]
    assert {canonical(each, type_) for each in spellings} == {found}
    back = float(found)
    assert math.isnan(back) if math.isnan(value) else in_column(back, type_) == found


def test_both_zeros_and_all_nans_are_one_value() -> None:
    nans = [
        struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8 << 48, 0xFFF8 << 48, 0x7FF8000000000001)
    ]
    assert set(canonical_column(pa.array(nans)).to_pylist()) == {canonical("NaN", pa.float64())}
    assert set(canonical_column(pa.array([0.0, -0.0])).to_pylist()) == {canonical("-0", pa.float64())} == {"0"}


@EXAMPLES
@given(st.text(), st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.json_()]))
@example(" ", pa.string())
@example("", pa.large_string())
@example("a\0b", pa.large_string())
@example("e\u0301", pa.large_string())
def test_text_is_what_it_is(value: str, type_: pa.DataType) -> None:
    storage = pa.array([value], pa.string() if type_ == pa.json_() else type_)
    column = pa.ExtensionArray.from_storage(type_, storage) if type_ == pa.json_() else storage
    assert canonical(value, type_) == canonical_column(column)[0].as_py() == value


@EXAMPLES
@given(st.binary(), st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]))
def test_bytes_are_in_hex(value: bytes, type_: pa.DataType) -> None:
    assert canonical(rf"\x{value.hex().upper()}", type_) == in_column(value, type_) == rf"\x{value.hex()}"


def test_bytes_of_a_fixed_size() -> None:
    assert canonical(r"\x00FF", pa.binary(2)) == in_column(b"\x00\xff", pa.binary(2))
    with pytest.raises(ConfigError):
        canonical(r"\x00", pa.binary(2))


@EXAMPLES
@given(st.uuids(), st.sampled_from([pa.binary(16), pa.uuid()]))
def test_a_uuid_in_any_spelling(value: UUID, type_: pa.DataType) -> None:
    found = canonical_column(pa.array([value.bytes, None], type_)).to_pylist()
    assert found == [str(value), None]
    groups = "-".join(value.hex[at : at + 4] for at in range(0, 32, 4))
    for spelling in (str(value), str(value).upper(), value.hex, f"{{{value}}}", groups, f" {value}\n"):
        assert canonical(spelling, type_) == str(value)


@pytest.mark.parametrize(
    ("value", "spellings"),
    [(True, ["true", "t", "1", "yes", "y", "on", "TRUE", " t "]), (False, ["false", "F", "0", "no", "n", "off"])],
)
def test_a_boolean_in_any_spelling(value: bool, spellings: list[str]) -> None:
    assert {canonical(each, pa.bool_()) for each in spellings} == {in_column(value, pa.bool_())}


@EXAMPLES
@given(st.dates(), st.sampled_from([pa.date32(), pa.date64()]))
def test_a_date(value: date, type_: pa.DataType) -> None:
    assert canonical(value.isoformat(), type_) == in_column(value, type_) == value.isoformat()


@EXAMPLES
@given(st.times(), st.sampled_from([pa.time64("us"), pa.time64("ns")]))
def test_a_time(value: time, type_: pa.DataType) -> None:
    found = in_column(value, type_)
    for spelling in (value.isoformat(), f"{value:%H:%M:%S.%f}", f"{value:%H:%M:%S.%f}000"):
        assert canonical(spelling, type_) == found


_OFFSETS = st.integers(-15 * 60, 15 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@EXAMPLES
@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)), _OFFSETS)
def test_a_timestamp_with_time_zone_in_the_offset_of_any_place(value: datetime, zone: timezone) -> None:
    moment = value.replace(tzinfo=UTC)
    there = moment.astimezone(zone)
    for type_ in (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")):
        found = in_column(moment, type_)
        z = f"{there:%z}"
        spellings = [there.isoformat(), there.isoformat(sep=" "), f"{there.replace(tzinfo=None).isoformat()}{z}"]
        spellings += [f"{value.isoformat()}Z", value.isoformat(), f"{value.isoformat(' ')} UTC"]
        assert {canonical(each, type_) for each in spellings} == {found}
        assert found.endswith("+00")


@EXAMPLES
@given(st.datetimes(), st.sampled_from(["s", "ms", "us", "ns"]))
def test_a_timestamp_has_one_text_in_every_unit(value: datetime, unit: str) -> None:
    moment = value.replace(microsecond=0 if unit == "s" else value.microsecond // 1000 * 1000)
    if unit == "ns":
        moment = moment.replace(year=1700 + moment.year % 500, day=1)
    found = in_column(moment, pa.timestamp(unit))
    assert found == canonical(moment.isoformat(), pa.timestamp(unit)) == in_column(moment, pa.timestamp("us"))


@EXAMPLES
@given(st.integers(-(2**31), 2**31 - 1))
@example(2**31 - 1)
@example(-(2**31) + 1)
@example(-719_163)
def test_what_a_date_is_in_the_lake_is_read_back_whatever_its_year(number: int) -> None:
    found = canonical_column(pa.array([number], pa.int32()).view(pa.date32()))[0].as_py()
    assert canonical(found, pa.date32()) == found


@EXAMPLES
@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["s", "ms", "us", "ns"]), st.sampled_from([None, "UTC"]))
@example(2**63 - 1, "us", "UTC")
def test_what_a_timestamp_is_in_the_lake_is_read_back_whatever_its_year(number: int, unit: str, tz: str | None) -> None:
    type_ = pa.timestamp(unit, tz)
    found = canonical_column(pa.array([number], pa.int64()).view(type_))[0].as_py()
    assert canonical(found, type_) == found


@pytest.mark.parametrize(
    "moment",
    ["0044-03-15 (BC) 12:00:00", "infinity", "-infinity", "12024-01-01 00:00:00", "0001-12-31 (BC) 23:59:59.5"],
)
@pytest.mark.parametrize("kind", ["TIMESTAMP", "DATE"])
def test_unusual_moments_are_what_duckdb_makes_of_them(moment: str, kind: str) -> None:
    query = "SELECT CAST(CAST(? AS TIMESTAMP) AS DATE) AS x" if kind == "DATE" else "SELECT CAST(? AS TIMESTAMP) AS x"
    column = duckdb.execute(query, [moment]).to_arrow_table()["x"].chunk(0)
    day, _, clock = moment.partition(" ")
    era = " BC" if "BC" in clock else ""
    clock = clock.removeprefix("(BC) ")
    text = moment if "infinity" in moment else f"{day} {clock}{era}" if kind == "TIMESTAMP" else f"{day}{era}"
    assert canonical(text, column.type) == canonical_column(column)[0].as_py() == text


def test_a_widened_column_keeps_its_values() -> None:
    assert (
        in_column(7, pa.int16()) == in_column(7, pa.int64()) == in_column(Decimal("7.00"), pa.decimal128(9, 2)) == "7"
    )
    assert (
        in_column(Decimal("1.50"), pa.decimal128(9, 2)) == in_column(Decimal("1.5000"), pa.decimal128(20, 4)) == "1.5"
    )


def test_dictionaries_and_slices_of_a_column_are_read_as_it() -> None:
    column = pa.array(["b", "a", None, "a"]).dictionary_encode()
    assert canonical_column(column.slice(1)).to_pylist() == ["a", None, "a"]
    numbers = pa.array([Decimal(9), Decimal(1), None, Decimal(1)], pa.decimal128(9, 1)).slice(1)
    assert canonical_column(numbers).to_pylist() == ["1", None, "1"]


@pytest.mark.parametrize(
    "type_",
    [
        *(pa.string(), pa.int32(), pa.bool_(), pa.float32(), pa.date32(), pa.time64("us"), pa.timestamp("us", "UTC")),
        *(pa.decimal128(9, 2), pa.binary(16), pa.uuid(), pa.binary(3), pa.large_binary()),
    ],
    ids=str,
)
def test_a_column_without_rows_or_of_nulls_alone(type_: pa.DataType) -> None:
    for count in (0, 3):
        found = canonical_column(pa.nulls(count, type_))
        assert found.type == pa.large_string()
        assert found.to_pylist() == [None] * count


@pytest.mark.parametrize(
    ("text", "type_", "name"),
    [
        ("x", pa.int32(), "int32"),
        ("", pa.int32(), "int32"),
        ("1.0", pa.int32(), "int32"),
        ("1_0", pa.int64(), "int64"),
        ("٣", pa.int64(), "int64"),
        ("128", pa.int8(), "int8"),
        ("-1", pa.uint64(), "uint64"),
        ("9" * 5000, pa.int64(), "int64"),
        ("1.005", pa.decimal128(10, 2), "decimal(10,2)"),
        ("123456789", pa.decimal128(10, 2), "decimal(10,2)"),
        ("1e999999999", pa.decimal128(10, 2), "decimal(10,2)"),
        ("NaN", pa.decimal128(10, 2), "decimal(10,2)"),
        ("1e999", pa.float64(), "double"),
        ("1_0", pa.float64(), "double"),
        ("maybe", pa.bool_(), "bool"),
        ("f1cae8f4", pa.binary(16), "uuid"),
        (SOME.hex.replace("f", "g"), pa.uuid(), "uuid"),
        ("00ff", pa.binary(), "binary"),
        (r"\x0", pa.binary(), "binary"),
        ("2024-02-30", pa.date32(), "date32[day]"),
        ("2024-13-01", pa.date32(), "date32[day]"),
        ("0000-01-01", pa.date32(), "date32[day]"),
        ("2024-01-01 00:00:00", pa.date32(), "date32[day]"),
        ("5881580-07-11", pa.date32(), "date32[day]"),  # the number of infinity
        ("25:00:00", pa.time64("us"), "time64[us]"),
        ("12:60:00", pa.time64("us"), "time64[us]"),
        ("infinity", pa.time64("us"), "time64[us]"),
        ("2024-01-01 00:00:00+02", pa.timestamp("us"), "timestamp[us]"),
        ("2024-01-01 00:00:00.1234567", pa.timestamp("us"), "timestamp[us]"),
        ("9999-01-01 00:00:00", pa.timestamp("ns"), "timestamp[ns]"),
        ("2024-01-01 00:00:00+99", pa.timestamp("us", "UTC"), "timestamp[us, tz=UTC]"),
        ("today", pa.timestamp("us", "UTC"), "timestamp[us, tz=UTC]"),
    ],
)
def test_what_cannot_be_a_value_of_the_column_is_refused(text: str, type_: pa.DataType, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        canonical(text, type_)
    assert caught.value.message == f"{text[:100]!r} is no value of a column of type {name}"
    assert caught.value.hint.startswith("write ")


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.int32()),
        pa.struct({"a": pa.int32()}),
        pa.map_(pa.string(), pa.int32()),
        pa.duration("us"),
        pa.null(),
    ],
    ids=str,
)
def test_a_type_that_cannot_route_is_refused(type_: pa.DataType) -> None:
    asked: list[Callable[[], object]] = [lambda: canonical("1", type_), lambda: canonical_column(pa.nulls(2, type_))]
    for ask in asked:
        with pytest.raises(ConfigError, match="rows cannot be routed by a column of type"):
            ask()


def test_the_values_of_an_allow_list_are_canonical_and_its_patterns_are_not() -> None:
    assert canonical_patterns(["01", "2*"], pa.int32()) == ("1", "2*")
