"""PostgreSQL's text → Arrow, compared with what PostgreSQL itself and psycopg make of the same values."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.decode import TEXT_SETTINGS, Bad, Decoded, decode
from headwater.errors import TableError
from headwater.testing.postgres import EmbeddedPostgres
from headwater.types import LakeType, lake_type

OIDS = {
    "bool": 16,
    "bytea": 17,
    "int8": 20,
    "int2": 21,
    "int4": 23,
    "text": 25,
    "json": 114,
    "float4": 700,
    "float8": 701,
    "bpchar": 1042,
    "date": 1082,
    "time": 1083,
    "timestamp": 1114,
    "timestamptz": 1184,
    "uuid": 2950,
    "jsonb": 3802,
}
SOME_UUID = "f1cae8f4-d86f-4965-94dc-5feb35ade4aa"
EXAMPLES = settings(max_examples=40, deadline=None)


def kind_of(name: str) -> LakeType:
    if name.startswith("numeric("):
        precision, scale = map(int, name[8:-1].split(","))
        return lake_type(1700, (precision << 16 | scale) + 4)
    return lake_type(OIDS[name], -1)


def read(name: str, *texts: str | None) -> Decoded:
    return decode(pa.array(texts, pa.large_string()), kind_of(name))


@pytest.fixture(scope="module")
def conn(postgres: EmbeddedPostgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.url(), autocommit=True) as conn:
        for name, value in TEXT_SETTINGS.items():
            conn.execute("SELECT set_config(%s, %s, false)", (name, value))
        yield conn


def printed(conn: psycopg.Connection, name: str, values: list[str], extra: str = "x") -> tuple[list[str], list[Any]]:
    """What PostgreSQL's output function prints for these values, and `extra` of each as psycopg reads it."""
    query = f"SELECT format('%%s', x), {extra} FROM (SELECT u::{name} AS x FROM unnest(%s::text[]) u) v"
    rows = conn.execute(query, (values,)).fetchall()
    return [row[0] for row in rows], [row[1] for row in rows]


@pytest.mark.parametrize(
    ("name", "texts", "values"),
    [
        ("bool", ["t", "f"], [True, False]),
        ("int2", ["-32768", "32767", "0"], [-32768, 32767, 0]),
        ("int4", ["-2147483648", "2147483647"], [-(2**31), 2**31 - 1]),
        ("int8", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
        ("float8", ["Infinity", "-Infinity"], [math.inf, -math.inf]),
        ("float8", ["5e-324", "1.7976931348623157e+308"], [5e-324, 1.7976931348623157e308]),
        ("float4", ["1e-45", "3.4028235e+38"], [1.401298464324817e-45, 3.4028234663852886e38]),
        ("float4", ["0.1"], [0.10000000149011612]),
        ("numeric(38,0)", ["9" * 38, "-" + "9" * 38], [Decimal("9" * 38), Decimal("-" + "9" * 38)]),
        ("numeric(38,38)", ["0." + "0" * 37 + "1", "-0." + "9" * 38], [Decimal("1e-38"), Decimal("-0." + "9" * 38)]),
        ("numeric(12,2)", ["0.00", "-0.01"], [Decimal("0.00"), Decimal("-0.01")]),
        ("text", ["", "naïve", "𝄞", "a\tb\\n"], ["", "naïve", "𝄞", "a\tb\\n"]),
        ("bpchar", ["ab   "], ["ab   "]),
        ("json", ['{"b":  1, "b": 2}'], ['{"b":  1, "b": 2}']),
        ("date", ["2024-02-29", "0001-01-01", "9999-12-31"], [date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31)]),
        ("time", ["00:00:00", "12:34:56.5"], [time(0), time(12, 34, 56, 500000)]),
        ("time", ["23:59:59.999999"], [time(23, 59, 59, 999999)]),
        ("timestamp", ["2024-02-29 23:59:59.1"], [datetime(2024, 2, 29, 23, 59, 59, 100000)]),
        ("timestamp", ["1969-12-31 23:59:59.999999"], [datetime(1969, 12, 31, 23, 59, 59, 999999)]),
        ("bytea", [r"\x", r"\x00ff", r"\x5c78"], [b"", b"\x00\xff", b"\\x"]),
        ("uuid", [str(uuid.UUID(int=0)), SOME_UUID], [bytes(16), uuid.UUID(SOME_UUID).bytes]),
    ],
)
def test_edge_values_are_read_exactly_beside_nulls(name: str, texts: list[str], values: list[Any]) -> None:
    for array in (read(name, *texts), read(name, None, *texts, None)):
        assert array.bad == ()
        assert array.array.type == kind_of(name).arrow
        array.array.validate(full=True)
    assert read(name, *texts).array.to_pylist() == values
    assert read(name, None, *texts, None).array.to_pylist() == [None, *values, None]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("numeric(12,2)", "NaN"),
        ("numeric(12,2)", "Infinity"),
        ("numeric(12,2)", "-Infinity"),
        ("date", "infinity"),
        ("date", "-infinity"),
        ("timestamp", "infinity"),
        ("timestamp", "-infinity"),
        ("timestamp", "294276-12-31 23:59:59.999999"),
        ("timestamp", "294247-01-10 04:00:54.775807"),
        ("timestamptz", "infinity"),
        ("time", "24:00:00"),
        ("int2", "99999"),
        ("bool", "yes"),
        ("uuid", "f1cae8f4-d86f-4965-94dc-5feb35ade4ag"),
        ("uuid", "f1cae8f4d86f496594dc5feb35ade4aa"),
        ("uuid", "f1cae8f4-d86f-4965-94dc+5feb35ade4aa"),
        ("bytea", r"\000"),
        ("bytea", r"\x0g"),
        ("bytea", r"\x0"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_row_and_hurts_no_other(name: str, text: str) -> None:
    good = {"numeric(12,2)": "1.50", "time": "12:00:00", "int2": "7", "bool": "t", "bytea": r"\x01"}
    good |= {"date": "2024-01-01", "timestamp": "2024-01-01 00:00:00", "timestamptz": "2024-01-01 00:00:00+00"}
    good |= {"uuid": str(uuid.UUID(int=7))}
    decoded = read(name, good[name], None, text, good[name], text)
    assert decoded.bad == (Bad(2, text), Bad(4, text))
    one = read(name, good[name]).array.to_pylist()[0]
    assert one is not None
    assert decoded.array.to_pylist() == [one, None, None, one, None]
    decoded.array.validate(full=True)


def test_text_that_is_not_utf8_is_told() -> None:
    decoded = decode(pa.array([b"fine", b"\xe9t\xe9"], pa.large_binary()), kind_of("text"))
    assert decoded.bad == (Bad(1, "\\xe9t\\xe9"),)
    assert decoded.array.to_pylist() == ["fine", None]


def test_a_table_that_must_be_whole_fails_on_a_bad_value_by_name() -> None:
    with pytest.raises(TableError, match="column 'price' holds 'NaN'"):
        read("numeric(12,2)", "NaN").intact("price")
    assert read("numeric(12,2)", "1.00").intact("price").to_pylist() == [Decimal("1.00")]


@pytest.mark.parametrize("name", [*OIDS, "numeric(12,2)"])
def test_an_empty_column_and_one_of_nulls_are_columns_too(name: str) -> None:
    for texts in ([], [None, None]):
        decoded = decode(pa.array(texts, pa.large_binary()), kind_of(name))
        assert decoded == Decoded(pa.nulls(len(texts), kind_of(name).arrow))
        decoded.array.validate(full=True)


@pytest.mark.parametrize("to", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
@pytest.mark.parametrize(
    ("name", "text"),
    [("int4", "5"), ("uuid", str(uuid.UUID(int=5))), ("bytea", r"\x0506"), ("bool", "t"), ("text", "é")],
)
def test_slices_of_every_text_type_are_read_where_they_lie(to: pa.DataType, name: str, text: str) -> None:
    column = pa.array(["?", None, text, text, "?"]).cast(to)
    assert decode(column.slice(1, 3), kind_of(name)).array.equals(read(name, None, text, text).array)


NUMBERS = {
    "int2": st.integers(-(2**15), 2**15 - 1).map(str),
    "int4": st.integers(-(2**31), 2**31 - 1).map(str),
    "int8": st.integers(-(2**63), 2**63 - 1).map(str),
    "bool": st.sampled_from(["t", "f"]),
    "float4": st.floats(width=32, allow_nan=False).map(repr),
    "float8": st.floats(allow_nan=False).map(repr),
    "numeric(12,2)": st.decimals(Decimal("-9999999999.99"), Decimal("9999999999.99"), places=2).map(str),
    "numeric(38,19)": st.decimals(-(10**18), 10**18, places=19).map(lambda value: f"{value:f}"),
    "date": st.dates().map(str),
    "time": st.times().map(str),
    "timestamp": st.datetimes().map(str),
    "timestamptz": st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)).map(str),
    "text": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    "bytea": st.binary().map(lambda value: "\\x" + value.hex()),
    "uuid": st.uuids().map(str),
}


@pytest.mark.parametrize("name", list(NUMBERS))
def test_what_postgresql_prints_is_read_as_psycopg_reads_it(conn: psycopg.Connection, name: str) -> None:
    @EXAMPLES
    @given(st.lists(NUMBERS[name], min_size=1))
    def check(values: list[str]) -> None:
        # psycopg reads the shortest text of a float4 as a double: let PostgreSQL say which float4 it is.
        texts, expected = printed(conn, name, values, "x::float8" if name == "float4" else "x")
        decoded = read(name, *texts)
        assert decoded.bad == ()
        assert decoded.array.to_pylist() == [value.bytes if name == "uuid" else value for value in expected]

    check()


MOMENTS = st.builds(
    "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}{}".format,
    st.one_of(st.integers(1, 4700), st.integers(1, 294200)),
    st.integers(1, 12),
    st.integers(1, 28),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 59),
    st.one_of(st.just(0), st.integers(0, 999_999)),
    st.just(""),
) | st.builds("{:04}-{:02}-{:02} 12:00:00.5 BC".format, st.integers(1, 4712), st.integers(1, 12), st.integers(1, 28))


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns", "Asia/Kolkata", "Europe/Amsterdam"])
@pytest.mark.parametrize("name", ["timestamp", "timestamptz", "date"])
def test_the_whole_calendar_in_any_zone_is_the_moment_postgresql_means(
    conn: psycopg.Connection, name: str, zone: str
) -> None:
    @settings(EXAMPLES, max_examples=15)
    @given(st.lists(MOMENTS, min_size=1))
    def check(values: list[str]) -> None:
        unit, storage = (
            ("x - date '1970-01-01'", pa.int32()) if name == "date" else ("extract(epoch FROM x)", pa.int64())
        )
        texts, expected = printed(conn, name, values, unit)
        decoded = read(name, *texts)
        assert decoded.bad == ()
        assert decoded.array.view(storage).to_pylist() == [
            int(n if name == "date" else n * 1_000_000) for n in expected
        ]

    conn.execute("SELECT set_config('TimeZone', %s, false)", (zone,))
    try:
        check()
    finally:
        conn.execute("SET TimeZone = 'UTC'")


def test_the_first_and_last_day_of_postgresql_are_read() -> None:
    days = read("date", "4714-11-24 BC", "5874897-12-31").array.view(pa.int32()).to_pylist()
    assert days == [-2_440_588, 2_145_042_905]
    assert read("timestamp", "294247-01-10 04:00:54.775806").array.view(pa.int64()).to_pylist() == [2**63 - 2]
    assert read("timestamp", "4714-11-24 00:00:00 BC").array.view(pa.int64()).to_pylist() == [
        -2_440_588 * 86_400_000_000
    ]


def test_not_a_number_is_a_float_like_any_other() -> None:
    decoded = read("float8", "NaN", "1")
    assert decoded.bad == ()
    assert math.isnan(decoded.array[0].as_py())
