"""PostgreSQL's text → Arrow, compared with what PostgreSQL itself, psycopg and DuckDB make of the same values."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal, localcontext
from pathlib import Path
from time import process_time_ns as time_ns
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.change import BaseType, Column
from headwater.postgres.settings import TEXT_SETTINGS
from headwater.testing.postgres import EmbeddedPostgres
from headwater.values.decode import Bad, Decoded, decode
from headwater.values.types import LakeType, lake_type

OIDS = {
    "bool": 16,
    "bytea": 17,
    "int8": 20,
    "int2": 21,
    "int4": 23,
    "text": 25,
    "oid": 26,
    "json": 114,
    "float4": 700,
    "box": 603,
    "float8": 701,
    "bpchar": 1042,
    "date": 1082,
    "time": 1083,
    "timestamp": 1114,
    "timestamptz": 1184,
    "numeric": 1700,
    "uuid": 2950,
    "jsonb": 3802,
    "xid8": 5069,
    "interval": 1186,
}
SOME_UUID = "f1cae8f4-d86f-4965-94dc-5feb35ade4aa"
EXAMPLES = settings(max_examples=40, deadline=None)


def kind_of(name: str, asked: str | None = None) -> LakeType:
    """The type of a column declared so: `numeric(12,2)[]`."""
    scalar, typmod = name.replace("[]", ""), -1
    if scalar.startswith("numeric("):
        precision, scale = map(int, scalar[8:-1].split(","))
        scalar, typmod = "numeric", (precision << 16 | scale) + 4
    base = BaseType(OIDS[scalar], typmod, name.count("[]"), name)
    return lake_type(Column("x", 0, typmod, key=False, base=base), asked)


def read(name: str, *texts: str | None, asked: str | None = None) -> Decoded:
    return decode(pa.array(texts, pa.large_string()), kind_of(name, asked))


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
        ("oid", ["0", "4294967295"], [0, 2**32 - 1]),
        ("xid8", ["18446744073709551615"], [2**64 - 1]),
        ("numeric", ["1.5", "-0." + "0" * 17 + "1", "9" * 20], [Decimal("1.5"), Decimal("-1e-18"), Decimal("9" * 20)]),
        ("numeric", ["1." + "0" * 60, "-2.50" + "0" * 300], [Decimal(1), Decimal("-2.5")]),
        ("interval", ["1 year 2 mons -3 days", "-infinity"], ["1 year 2 mons -3 days", "-infinity"]),
        ("text", ["x" * 1_000_000, "\U0010ffff"], ["x" * 1_000_000, "\U0010ffff"]),
        ("int4[]", ["{1,NULL,-3}", "{}", "{NULL}"], [[1, None, -3], [], [None]]),
        ("int4[][]", ["{{1,2},{NULL,4}}", "{}", "{{5}}"], [[[1, 2], [None, 4]], [], [[5]]]),
        ("int4[][][]", ["{{{1},{2}}}"], [[[[1], [2]]]]),
        ("bool[]", ["{t,f,NULL}"], [[True, False, None]]),
        ("float8[]", ["{Infinity,-1.5e-300}"], [[math.inf, -1.5e-300]]),
        ("numeric(12,2)[]", ["{1.50,NULL}"], [[Decimal("1.50"), None]]),
        ("text[]", ['{"a b",NULL,"NULL",null,"",ü,"{,}"}'], [["a b", None, "NULL", "null", "", "ü", "{,}"]]),
        ("text[]", [r'{"\"","\\","\\\"x\\"}'], [['"', "\\", '\\"x\\']]),
        ("text[][]", ['{{"}",b},{NULL,"\\"{"}}'], [[["}", "b"], [None, '"{']]]),
        ("bpchar[]", ['{"ab  "}'], [["ab  "]]),
        ("bytea[]", [r'{"\\x00ff","\\x"}'], [[b"\x00\xff", b""]]),
        ("uuid[]", ["{" + SOME_UUID + "}"], [[uuid.UUID(SOME_UUID).bytes]]),
        ("date[]", ["{2024-02-29}"], [[date(2024, 2, 29)]]),
        ("timestamp[]", ['{"2024-02-29 23:59:59.1"}'], [[datetime(2024, 2, 29, 23, 59, 59, 100000)]]),
        ("jsonb[]", [r'{"{\"a\": [1, null]}",1}'], [['{"a": [1, null]}', "1"]]),
        ("box[]", ["{(1,1),(0,0);(2,2),(0,0)}"], [["(1,1),(0,0)", "(2,2),(0,0)"]]),
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
        ("numeric(12,2)", "12345678901.00"),
        ("numeric(12,2)", "1.005"),
        ("numeric", "NaN"),
        ("numeric", "0." + "3" * 19),
        ("numeric", "1" + "0" * 20),
        ("numeric", "9" * 131_072),
        ("date", "5881580-07-11"),
        ("timestamp", "294276-12-31 23:59:59.999999"),
        ("timestamp", "294247-01-10 04:00:54.775807"),
        ("timestamp", "294247-01-10 04:00:54.775809"),
        ("timestamptz", "294276-12-31 23:59:59.999999+00"),
        ("time", "24:00:01"),
        ("int4[]", "{{1},{2}}"),
        ("int4[]", "[2:3]={7,8}"),
        ("int4[]", "[0:0]={7}"),
        ("int4[]", "{1,99999999999}"),
        ("int4[]", "{1"),
        ("int4[]", "{1}}"),
        ("int4[]", '{"1}'),
        ("int4[]", ""),
        ("int4[]", "\\"),
        ("int4[][]", "{1,2}"),
        ("int4[][]", "{{{1}}}"),
        ("int4[][]", "[0:0][1:1]={{7}}"),
        ("int4[][]", "{{1},2}"),
        ("numeric[]", "{1.5,NaN}"),
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
def test_a_value_that_does_not_fit_is_returned_with_its_row_and_affects_no_other(name: str, text: str) -> None:
    good = {"numeric(12,2)": "1.50", "time": "12:00:00", "int2": "7", "bool": "t", "bytea": r"\x01"}
    good |= {"date": "2024-01-01", "timestamp": "2024-01-01 00:00:00", "timestamptz": "2024-01-01 00:00:00+00"}
    good |= {"uuid": str(uuid.UUID(int=7)), "numeric": "7", "int4[]": "{7}", "int4[][]": "{{7}}", "numeric[]": "{7}"}
    decoded = read(name, good[name], None, text, good[name], text)
    assert decoded.bad == (Bad(2, text), Bad(4, text))
    one = read(name, good[name]).array.to_pylist()[0]
    assert one is not None
    assert decoded.array.to_pylist() == [one, None, None, one, None]
    decoded.array.validate(full=True)


def test_text_that_is_not_utf8_does_not_fit() -> None:
    decoded = decode(pa.array([b"fine", b"\xe9t\xe9"], pa.large_binary()), kind_of("text"))
    assert decoded.bad == (Bad(1, "\\xe9t\\xe9"),)
    assert decoded.array.to_pylist() == ["fine", None]


@pytest.mark.parametrize("name", [*OIDS, "numeric(12,2)", "int4[]", "text[][]"])
def test_an_empty_column_and_one_of_nulls_are_columns_too(name: str) -> None:
    for texts in ([], [None, None]):
        decoded = decode(pa.array(texts, pa.large_binary()), kind_of(name))
        assert decoded == Decoded(pa.nulls(len(texts), kind_of(name).arrow))
        decoded.array.validate(full=True)


@pytest.mark.parametrize("to", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("int4", "5"),
        ("int4[]", "{5,NULL}"),
        ("uuid", str(uuid.UUID(int=5))),
        ("bytea", r"\x0506"),
        ("bool", "t"),
        ("text", "é"),
    ],
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
    "numeric": st.decimals(-(10**20) + 1, 10**20 - 1, places=18).map(lambda value: f"{value:f}"),
    "oid": st.integers(0, 2**32 - 1).map(str),
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


@pytest.mark.parametrize("name", ["numeric", "numeric(12,2)", "numeric(38,0)", "numeric(38,38)"])
def test_a_number_of_any_length_is_read_exactly_or_returned_as_bad(name: str) -> None:
    to = kind_of(name).arrow
    whole, fine = st.integers(0, 45), st.integers(0, 45)
    digits = st.tuples(st.sampled_from(["", "-"]), whole, fine, st.integers(1, 9)).map(
        lambda made: f"{made[0]}{str(made[3]) * made[1] or '0'}" + (f".{str(made[3]) * made[2]}" if made[2] else "")
    )

    def fits(number: Decimal) -> bool:
        return bool(abs(number) * 10**to.scale < 10**to.precision and number == round(number, to.scale))

    @settings(EXAMPLES, max_examples=25)
    @given(st.lists(digits, min_size=1, max_size=20))
    def check(texts: list[str]) -> None:
        numbers = [Decimal(text) for text in texts]
        decoded = read(name, *texts)
        assert decoded.array.to_pylist() == [number if fits(number) else None for number in numbers]
        assert decoded.bad == tuple(Bad(row, text) for row, text in enumerate(texts) if not fits(numbers[row]))

    with localcontext(prec=200):
        check()


def test_not_a_number_is_a_float_like_any_other() -> None:
    decoded = read("float8", "NaN", "1")
    assert decoded.bad == ()
    assert math.isnan(decoded.array[0].as_py())


WORDS = st.text(st.one_of(st.sampled_from('ab,;{}"\\ \tNUL'), st.characters(exclude_characters="\0", codec="utf-8")))


@pytest.mark.parametrize(
    ("name", "elements"),
    [("text", WORDS), ("int8", st.integers(-(2**63), 2**63 - 1)), ("bool", st.booleans()), ("bytea", st.binary())],
)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_arrays_are_read_as_psycopg_reads_them(
    conn: psycopg.Connection, name: str, elements: st.SearchStrategy[Any], depth: int
) -> None:
    @st.composite
    def arrays(draw: st.DrawFn) -> list[Any]:
        """One with the same length in each list of a depth, as PostgreSQL wants it; or empty."""
        lengths = draw(st.lists(st.integers(1, 3), min_size=depth, max_size=depth))

        def filled(rest: list[int]) -> Any:
            return [filled(rest[1:]) for _ in range(rest[0])] if rest else draw(st.none() | elements)

        return draw(st.just([])) if draw(st.integers(0, 9)) == 0 else filled(lengths)

    @settings(EXAMPLES, max_examples=15)
    @given(st.lists(st.none() | arrays(), min_size=1, max_size=4))
    def check(values: list[Any]) -> None:
        query = f"SELECT CASE WHEN x IS NOT NULL THEN format('%%s', x) END, x FROM (SELECT %s::{name}[] AS x) v"
        rows = [conn.execute(query, (value,)).fetchone() or () for value in values]
        decoded = read(name + "[]" * depth, *(row[0] for row in rows))
        assert decoded.bad == ()
        decoded.array.validate(full=True)
        assert decoded.array.to_pylist() == [row[1] for row in rows]

    check()


@pytest.mark.parametrize(
    ("name", "asked", "texts", "values"),
    [
        ("numeric", "varchar", ["1.500", "NaN"], ["1.500", "NaN"]),
        ("numeric", "double", ["1.500", "NaN", "Infinity", "1e-400"], [1.5, math.nan, math.inf, 0.0]),
        ("numeric", "decimal(4,1)", ["1.500", "-999.9"], [Decimal("1.5"), Decimal("-999.9")]),
        ("int8", "double", ["9007199254740993"], [9007199254740992.0]),
        ("int8", "decimal(20,1)", ["9007199254740993"], [Decimal("9007199254740993.0")]),
        (
            "text",
            "json",
            ['{"a": 1e999, "a": null}', " [1]", "7" * 6000],
            ['{"a": 1e999, "a": null}', " [1]", "7" * 6000],
        ),
        ("int4[]", "varchar", ["[0:1]={1,2}"], ["[0:1]={1,2}"]),
        ("numeric[]", "varchar[]", ["{1.50,NaN}"], [["1.50", "NaN"]]),
    ],
)
def test_a_type_the_user_asks_for_is_read_into(name: str, asked: str, texts: list[str], values: list[Any]) -> None:
    decoded = read(name, *texts, asked=asked)
    assert decoded.bad == ()
    assert decoded.array.type == kind_of(name, asked).arrow
    assert repr(decoded.array.to_pylist()) == repr(values)


@pytest.mark.parametrize(
    ("name", "asked", "text"),
    [
        ("numeric", "double", "1" + "0" * 400),
        ("numeric", "double", "-1" + "0" * 400),
        ("numeric", "decimal(4,1)", "1.55"),
        ("text", "json", "no json"),
        ("text", "json", "NaN"),
        ("text", "json", ""),
        ("text", "json", "[" * 100_000),
    ],
)
def test_what_does_not_fit_the_type_asked_for_is_returned_as_bad(name: str, asked: str, text: str) -> None:
    decoded = read(name, "1", text, None, asked=asked)
    assert decoded.bad == (Bad(1, text),)
    assert decoded.array.is_valid().to_pylist() == [True, False, False]


# Texts that PostgreSQL and DuckDB spell alike, but for the years before Christ.
ALIKE = {
    "bool": ["true", "false"],
    "int2": ["-32768", "32767"],
    "int8": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["0", "4294967295"],
    "xid8": ["0", "18446744073709551615"],
    "float4": ["3.4028235e+38", "1e-45", "-0.0", "0.1"],
    "float8": ["1.7976931348623157e+308", "5e-324", "-0.0", "0.1"],
    "numeric(12,2)": ["9999999999.99", "-0.01", "0.00"],
    "numeric": ["1.500000000000000000", "-99999999999999999999.999999999999999999"],
    "text": ["", " ", "ünïcödé 🦆", "line\nline", "NULL"],
    "json": ['{"b":  1, "b": [1e999]}', "null"],
    "date": ["4714-11-24 BC", "0001-12-31 BC", "0001-01-01", "9999-12-31", "5874897-12-31", "infinity", "-infinity"],
    "time": ["00:00:00", "23:59:59.999999", "12:00:00.5", "24:00:00"],
    "timestamp": [
        *("4714-11-24 00:00:00 BC", "1969-12-31 23:59:59.999999", "2024-02-29 12:00:00"),
        *("294247-01-10 04:00:54.775806", "infinity", "-infinity"),
    ],
    "timestamptz": ["2024-02-29 12:00:00+00", "1890-01-01 00:00:00.5+00", "infinity", "-infinity"],
    "uuid": [SOME_UUID],
    "interval": ["1 year 2 mons -3 days +04:05:06.7"],
}
IN_PARQUET = {"uuid": pa.uuid(), "json": pa.json_()}


def in_duckdb(folder: Path, kind: LakeType, array: pa.Array, ask: str) -> list[Any]:
    """What DuckDB makes of the column, read from Parquet."""
    to = IN_PARQUET.get(kind.logical)
    if to is not None:
        array = array.cast(to.storage_type).cast(to)
    path = folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(pa.table({"x": array}), path, store_schema=False)
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        return [value for (value,) in duck.execute(f"SELECT {ask} FROM '{path}'").fetchall()]


@pytest.mark.parametrize("name", list(ALIKE))
def test_duckdb_prints_from_parquet_what_postgresql_printed(
    conn: psycopg.Connection, tmp_path: Path, name: str
) -> None:
    texts, _ = printed(conn, name, ALIKE[name], "x::text")
    kind, spelled = kind_of(name), {"t": "true", "f": "false", "-0": "-0.0"}
    decoded = read(name, *texts, None)
    assert decoded.bad == ()
    alike = [re.sub(r"^(\S+)(.*) BC$", r"\1 (BC)\2", spelled.get(text, text)) for text in texts]
    assert in_duckdb(tmp_path, kind, decoded.array, "x::VARCHAR") == [*alike, None]


def test_duckdb_reads_lists_from_parquet(tmp_path: Path) -> None:
    for name, text, shown in [
        ("int4[]", "{1,NULL,3}", "[1, NULL, 3]"),
        ("int4[][]", "{{1,NULL},{3,4}}", "[[1, NULL], [3, 4]]"),
        ("text[]", '{a,NULL,""}', "[a, NULL, '']"),
        ("numeric(12,2)[]", "{1.50}", "[1.50]"),
        ("date[]", "{infinity,2024-01-01}", "[infinity, 2024-01-01]"),
        ("timestamp[]", '{-infinity,"0044-03-15 12:00:00 BC"}', "[-infinity, '0044-03-15 (BC) 12:00:00']"),
    ]:
        decoded = read(name, text, None, "{}")
        assert decoded.bad == ()
        assert in_duckdb(tmp_path, kind_of(name), decoded.array, "x::VARCHAR") == [shown, None, "[]"]


@pytest.mark.parametrize("name", ["date", "timestamp", "timestamptz", "numeric", "time"])
@pytest.mark.parametrize("calendar_only", [False, True])
def test_odd_values_in_every_row_are_read_quickly(name: str, calendar_only: bool) -> None:
    """A column that is often infinity, or always too fine, must not fall back to a crawl."""
    odd = {"date": "infinity", "numeric": "NaN", "time": "24:00:00"}.get(name, "-infinity")
    texts = pa.array([odd] * 50_000, pa.large_string())
    kind = replace(kind_of(name), calendar_only=calendar_only)
    started = time_ns()
    decode(texts, kind)
    assert time_ns() - started < 1.5e9
