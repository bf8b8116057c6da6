"""Values are printed as DuckDB prints them; in JSON nothing of them is lost."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headwater.commands.render import as_json, as_text
from headwater.config import Config
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import SqliteUrl
from headwater.query import query

# An expression, what DuckDB's shell prints for it, and what it is in JSON where that is not the same text.
SAME = object()
VALUES: list[tuple[str, str, Any]] = [
    ("true", "true", True),
    ("(-128)::TINYINT", "-128", -128),
    ("(-32768)::SMALLINT", "-32768", -32768),
    ("(-2147483648)::INTEGER", "-2147483648", -2147483648),
    ("(-9223372036854775808)::BIGINT", "-9223372036854775808", -9223372036854775808),
    ("(-170141183460469231731687303715884105728)::HUGEINT", "-170141183460469231731687303715884105728", -(2**127)),
    ("255::UTINYINT", "255", 255),
    ("65535::USMALLINT", "65535", 65535),
    ("4294967295::UINTEGER", "4294967295", 4294967295),
    ("18446744073709551615::UBIGINT", "18446744073709551615", 18446744073709551615),
    ("340282366920938463463374607431768211455::UHUGEINT", "340282366920938463463374607431768211455", 2**128 - 1),
    ("0.1::REAL", "0.1", 0.1),
    ("16777216::REAL", "16777216.0", 16777216.0),
    ("3.4028235e38::REAL", "3.4028235e+38", 3.4028235e38),
    ("'-inf'::REAL", "-inf", SAME),
    ("'-0.0'::DOUBLE", "-0.0", -0.0),
    ("0.1::DOUBLE + 0.2::DOUBLE", "0.30000000000000004", 0.30000000000000004),
    ("1e300::DOUBLE", "1e+300", 1e300),
    ("'nan'::DOUBLE", "nan", SAME),
    ("'inf'::DOUBLE", "inf", SAME),
    ("0::DECIMAL(38,18)", "0.000000000000000000", SAME),
    ("1.50::DECIMAL(12,2)", "1.50", SAME),
    ("(-99999999999999999999.999999999999999999)::DECIMAL(38,18)", "-99999999999999999999.999999999999999999", SAME),
    ("7::DECIMAL(7,0)", "7", SAME),
    ("'ü, ''quoted'' \\ text'", "ü, 'quoted' \\ text", SAME),
    ("''", "", SAME),
    ("""'{"a": 1.0, "a": null}'::JSON""", '{"a": 1.0, "a": null}', SAME),
    ("'\\x00\\xFFab\\x5C'::BLOB", "\\x00\\xFFab\\x5C", SAME),
    ("'8d8b30e3-de52-4f1c-a71c-9905a8043dac'::UUID", "8d8b30e3-de52-4f1c-a71c-9905a8043dac", SAME),
    ("'2024-02-29'::DATE", "2024-02-29", SAME),
    ("'infinity'::DATE", "infinity", SAME),
    ("'-infinity'::DATE", "-infinity", SAME),
    ("'4713-01-01 (BC)'::DATE", "4713-01-01 (BC)", SAME),
    ("'5874897-12-31'::DATE", "5874897-12-31", SAME),
    ("'24:00:00'::TIME", "24:00:00", SAME),
    ("'01:02:03.000004'::TIME", "01:02:03.000004", SAME),
    ("'12:00:00+05:30'::TIMETZ", "12:00:00+05:30", SAME),
    ("'2024-02-29 12:00:00.5'::TIMESTAMP", "2024-02-29 12:00:00.5", SAME),
    ("'infinity'::TIMESTAMP", "infinity", SAME),
    ("'-infinity'::TIMESTAMP", "-infinity", SAME),
    ("'294247-01-10 04:00:54.775806'::TIMESTAMP", "294247-01-10 04:00:54.775806", SAME),
    ("'4713-01-01 (BC) 00:00:00'::TIMESTAMP", "4713-01-01 (BC) 00:00:00", SAME),
    ("'2024-02-29 12:00:00+02'::TIMESTAMPTZ", "2024-02-29 10:00:00+00", SAME),
    ("'infinity'::TIMESTAMPTZ", "infinity", SAME),
    ("'-infinity'::TIMESTAMPTZ", "-infinity", SAME),
    ("'2024-02-29 12:00:00.123456789'::TIMESTAMP_NS", "2024-02-29 12:00:00.123456789", SAME),
    ("INTERVAL '1 year 2 months 3 days 04:05:06.7'", "1 year 2 months 3 days 04:05:06.7", SAME),
    ("'101'::BIT", "101", SAME),
    ("'a'::ENUM('a', 'b')", "a", SAME),
    ("[1, NULL, -3]", "[1, NULL, -3]", [1, None, -3]),
    ("[[0.1::REAL, 'nan'::REAL], []]", "[[0.1, nan], []]", [[0.1, "nan"], []]),
    ("['infinity'::TIMESTAMP, NULL]", "[infinity, NULL]", ["infinity", None]),
    ("[0.50::DECIMAL(12,2)]", "[0.50]", ["0.50"]),
    ("[['a, b', 'NULL'], NULL, ['']]", "[['a, b', 'NULL'], NULL, ['']]", [["a, b", "NULL"], None, [""]]),
    ("[true]", "[true]", [True]),
    ("[1, 2]::INTEGER[2]", "[1, 2]", [1, 2]),
    ("['\\xFF'::BLOB]", "[\\xFF]", ["\\xFF"]),
    (
        """{'a b': 1, 'q"': [DATE 'infinity'], 'n': {'d': 1.5::DECIMAL(3,1)}}""",
        """{'a b': 1, 'q"': [infinity], 'n': {'d': 1.5}}""",
        {"a b": 1, 'q"': ["infinity"], "n": {"d": "1.5"}},
    ),
    ("MAP {DATE '2024-01-01': 0.1::REAL}", "{2024-01-01=0.1}", {"2024-01-01": 0.1}),
    ("row(1, 'x')", "(1, x)", SAME),
    ("union_value(k := 1)", "1", SAME),
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("lake")
    with connect() as con:
        attach(con, SqliteUrl(f"{folder}/lake.sqlite"), "lake", data_path=f"{folder}/lake")
        con.execute("CREATE SCHEMA lake.public")
        con.execute(f"CREATE TABLE lake.public.edges AS SELECT {', '.join(_stored())}")
        con.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        con.execute("INSERT INTO lake.public.edges FROM lake.public.edges")  # one row in a file, one in the catalog
    lake = "{ducklake: 'sqlite:///lake.sqlite', data_path: lake}"
    (folder / "headwater.yaml").write_text(f"source: postgresql://db\nlog: log\nlakes: {{main: {lake}}}\n")
    return Config.load(folder / "headwater.yaml", {})


def _stored() -> list[str]:
    """The values of types that a DuckLake holds."""
    foreign = ("::BIT", "::ENUM", "::INTEGER[2]", "MAP", "row(", "union_value", "_NS", "HUGEINT", "TIMETZ", "{'a b'")
    kept = [expression for expression, _, _ in VALUES if not any(part in expression for part in foreign)]
    return [f"{expression} AS v{index}" for index, expression in enumerate(kept)]


@pytest.fixture(scope="module")
def plain() -> duckdb.DuckDBPyConnection:
    """DuckDB itself, with nothing of ours."""
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    return con


ALL = "SELECT " + ", ".join(f"{expression} AS v{index}" for index, (expression, _, _) in enumerate(VALUES))


@pytest.fixture(scope="module")
def texts(config: Config) -> tuple[str, ...]:
    (row,) = query(config, ALL, {}, as_text=True).rows
    return row


@pytest.fixture(scope="module")
def exact(config: Config) -> dict[str, Any]:
    answer = query(config, ALL, {})
    (row,) = json.loads(as_json(answer.columns, answer.rows))
    return row  # type: ignore[no-any-return]


@pytest.mark.parametrize("index", range(len(VALUES)), ids=lambda index: VALUES[index][0][:40])
def test_a_value_is_printed_as_duckdb_prints_it(
    plain: duckdb.DuckDBPyConnection, texts: tuple[str, ...], exact: dict[str, Any], index: int
) -> None:
    expression, text, value = VALUES[index]
    assert plain.execute(f"SELECT CAST({expression} AS VARCHAR)").fetchall() == [(text,)]
    assert texts[index] == text
    expected = text if value is SAME else value
    assert json.dumps(exact[f"v{index}"]) == json.dumps(expected)  # distinguishes 0.0 and -0.0, 1, 1.0 and true


def test_null_is_null(config: Config) -> None:
    sql = "SELECT NULL AS n, NULL::DECIMAL(5,2) AS d, NULL::INTEGER[] AS l, [NULL] AS e"
    assert query(config, sql, {}).rows == [(None, None, None, [None])]
    assert query(config, sql, {}, as_text=True).rows == [(None, None, None, "[NULL]")]


def test_a_value_from_the_lake_is_printed_as_duckdb_prints_it(config: Config, plain: duckdb.DuckDBPyConnection) -> None:
    (expected,) = plain.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (SELECT {', '.join(_stored())})").fetchall()
    answer = query(config, "FROM public.edges", {}, as_text=True)
    assert len(expected) > 40
    assert answer.rows == [expected, expected]


def test_every_type_of_the_lake_is_among_them(plain: duckdb.DuckDBPyConnection) -> None:
    types = (Path(__file__).parents[2] / "docs/types.md").read_text().split("<!-- made by")[1].split("<!-- end")[0]
    names = {
        re.sub(r"\(.*?\)|\[\]", "", cell) for cell in re.findall(r"^\| [^|]+ \| `([^`]+)` \|", types, re.MULTILINE)
    }
    assert {"decimal", "int64", "timestamptz"} <= names
    spelled = {"int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "uint32": "UINTEGER", "uint64": "UBIGINT"}
    spelled |= {"float32": "FLOAT", "float64": "DOUBLE", "timestamptz": "TIMESTAMP WITH TIME ZONE"}
    tried = {
        re.sub(r"\(.*", "", plain.execute(f"SELECT typeof({expression})").fetchall()[0][0])
        for expression, _, _ in VALUES
    }
    assert {spelled.get(name, name.upper()) for name in names} - tried == set()


def test_columns_of_the_same_name_are_all_there(config: Config) -> None:
    answer = query(config, "SELECT 1 AS a, 2 AS a, 3 AS a", {})
    assert answer.columns == ("a", "a", "a")
    assert json.loads(as_json(answer.columns, answer.rows)) == [{"a": 1, "a_1": 2, "a_2": 3}]


def test_rows_come_in_the_order_that_was_asked_for(config: Config) -> None:
    answer = query(config, "SELECT i FROM range(5000) r(i) ORDER BY i % 7, i DESC; -- the end", {})
    assert [i for (i,) in answer.rows] == sorted(range(5000), key=lambda i: (i % 7, -i))


def test_numbers_are_aligned_to_the_right_and_text_to_the_left(config: Config) -> None:
    sql = "SELECT * FROM (VALUES (1.50, 'a', '7'), (100.25, NULL, '10')) t(amount, name, code)"
    answer = query(config, sql, {}, as_text=True)
    assert as_text(*answer) == "amount  name  code\n------  ----  ----\n  1.50  a     7\n100.25  NULL  10"


def test_text_is_aligned_and_one_line_per_row() -> None:
    text = as_text(("id", "name"), [(1, "a\nb"), (100, None)])
    assert text == " id  name\n---  ----\n  1  a\\nb\n100  NULL"


def test_text_without_rows_is_its_header() -> None:
    assert as_text(("id",), []) == "id\n--"
