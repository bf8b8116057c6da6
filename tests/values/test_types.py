"""Which Arrow and DuckLake type carries a PostgreSQL type, asked of a real catalog; and what docs/types.md says."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from tests.typed_columns import column_of
from tools.typetable import with_type_table

from headwater.change import Column
from headwater.ducklake.types import ducklake_type
from headwater.errors import ConfigError
from headwater.iceberg.types import iceberg_type
from headwater.testing.postgres import EmbeddedPostgres
from headwater.values.types import lake_type

PAGE = Path(__file__).parents[2] / "docs" / "types.md"
TEXT = pa.large_string()

CARRIED = [
    ("smallint", pa.int16(), "int16", "int"),
    ("integer", pa.int32(), "int32", "int"),
    ("bigint", pa.int64(), "int64", "long"),
    ("oid", pa.uint32(), "uint32", "long"),
    ("xid", pa.uint32(), "uint32", "long"),
    ("xid8", pa.uint64(), "uint64", "decimal(20,0)"),
    ("boolean", pa.bool_(), "boolean", "boolean"),
    ("real", pa.float32(), "float32", "float"),
    ("double precision", pa.float64(), "float64", "double"),
    ("numeric", pa.decimal128(38, 18), "decimal(38,18)", "decimal(38,18)"),
    ("numeric(12,2)", pa.decimal128(12, 2), "decimal(12,2)", "decimal(12,2)"),
    ("numeric(38,38)", pa.decimal128(38, 38), "decimal(38,38)", "decimal(38,38)"),
    ("numeric(1)", pa.decimal128(1, 0), "decimal(1,0)", "decimal(1,0)"),
    ("numeric(5,-2)", pa.decimal128(7, 0), "decimal(7,0)", "decimal(7,0)"),
    ("numeric(2,4)", pa.decimal128(4, 4), "decimal(4,4)", "decimal(4,4)"),
    ("numeric(39,2)", TEXT, "varchar", "string"),
    ("numeric(30,-9)", TEXT, "varchar", "string"),
    ("numeric(3,39)", TEXT, "varchar", "string"),
    ("text", TEXT, "varchar", "string"),
    ("varchar", TEXT, "varchar", "string"),
    ("varchar(7)", TEXT, "varchar", "string"),
    ("char(7)", TEXT, "varchar", "string"),
    ("date", pa.date32(), "date", "date"),
    ("time", pa.time64("us"), "time", "time"),
    ("time(3)", pa.time64("us"), "time", "time"),
    ("timestamp", pa.timestamp("us"), "timestamp", "timestamp"),
    ("timestamptz(0)", pa.timestamp("us", "UTC"), "timestamptz", "timestamptz"),
    ("uuid", pa.binary(16), "uuid", "uuid"),
    ("bytea", pa.large_binary(), "blob", "binary"),
    ("json", TEXT, "json", "string"),
    ("jsonb", TEXT, "json", "string"),
    ("typed.mood", TEXT, "varchar", "string"),
    ("typed.positive", pa.int32(), "int32", "int"),
    ("typed.small", pa.int32(), "int32", "int"),
    ("typed.price", pa.decimal128(9, 3), "decimal(9,3)", "decimal(9,3)"),
    ("int2vector", TEXT, "varchar", "string"),
    ("oidvector", TEXT, "varchar", "string"),
    ("regclass", TEXT, "varchar", "string"),
    *((name, TEXT, "varchar", "string") for name in ("inet", "interval", "name", "timetz", "money", '"char"', "xml")),
]
LISTS = [
    ("integer[]", pa.int32(), 1, "int32"),
    ("integer[3]", pa.int32(), 1, "int32"),
    ("numeric(12,2)[][]", pa.decimal128(12, 2), 2, "decimal(12,2)"),
    ("numeric[]", pa.decimal128(38, 18), 1, "decimal(38,18)"),
    ("varchar(7)[][][]", TEXT, 3, "varchar"),
    ("typed.mood[]", TEXT, 1, "varchar"),
    ("typed.price[]", pa.decimal128(9, 3), 1, "decimal(9,3)"),
    ("typed.small[]", pa.int32(), 1, "int32"),
    ("typed.points", pa.int32(), 1, "int32"),
    ("typed.points[]", TEXT, 1, "varchar"),  # arrays in an array that is no matrix: each inner one is text
    ("uuid[]", pa.binary(16), 1, "uuid"),
    ("jsonb[]", TEXT, 1, "json"),
]


@pytest.fixture(scope="module")
def conn(postgres: EmbeddedPostgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.url(), autocommit=True) as conn:
        conn.execute("DROP SCHEMA IF EXISTS typed CASCADE")
        conn.execute("CREATE SCHEMA typed")
        conn.execute("CREATE TYPE typed.mood AS ENUM ('fair', 'foul')")
        conn.execute("CREATE DOMAIN typed.positive AS int CHECK (VALUE > 0)")
        conn.execute("CREATE DOMAIN typed.small AS typed.positive CHECK (VALUE < 10)")
        conn.execute("CREATE DOMAIN typed.price AS numeric(9,3)")
        conn.execute("CREATE DOMAIN typed.points AS int[]")
        yield conn
        conn.execute("DROP SCHEMA typed CASCADE")


@pytest.mark.parametrize(("declared", "arrow", "ducklake", "iceberg"), CARRIED)
def test_a_type_is_carried_as_itself_or_as_postgresql_prints_it(
    conn: psycopg.Connection, declared: str, arrow: pa.DataType, ducklake: str, iceberg: str
) -> None:
    kind = lake_type(column_of(conn, declared))
    assert (kind.arrow, ducklake_type(kind), iceberg_type(kind), kind.element) == (arrow, ducklake, iceberg, None)


@pytest.mark.parametrize(("declared", "element", "depth", "ducklake"), LISTS)
def test_an_array_is_a_list_of_what_its_elements_are(
    conn: psycopg.Connection, declared: str, element: pa.DataType, depth: int, ducklake: str
) -> None:
    kind = lake_type(column_of(conn, declared))
    assert (ducklake_type(kind), kind.depth, kind.leaf.arrow, ducklake_type(kind.leaf)) == (
        "list",
        depth,
        element,
        ducklake,
    )
    expected = element
    for _ in range(depth):
        expected = pa.list_(expected)
    assert kind.arrow == expected
    assert pickle.loads(pickle.dumps(kind)) == kind


def test_a_box_is_the_one_type_whose_arrays_are_parted_otherwise(conn: psycopg.Connection) -> None:
    found = conn.execute(
        "SELECT typname FROM pg_type WHERE typdelim <> ',' AND typcategory <> 'A' AND oid < 16384"
    ).fetchall()
    assert found == [("box",)]
    assert lake_type(column_of(conn, "box[]")).delimiter == ";"
    assert lake_type(column_of(conn, "point[]")).delimiter == ","


def test_without_the_catalog_a_type_is_known_by_its_number() -> None:
    assert ducklake_type(lake_type(Column("x", 23, -1, key=False))) == "int32"
    assert ducklake_type(lake_type(Column("x", 1700, (12 << 16 | 2) + 4, key=False))) == "decimal(12,2)"
    assert ducklake_type(lake_type(Column("x", 999_999, -1, key=False))) == "varchar"


@pytest.mark.parametrize(
    ("declared", "asked", "ducklake"),
    [
        ("numeric", "varchar", "varchar"),
        ("numeric", "decimal(20,4)", "decimal(20,4)"),
        ("numeric(50,2)", "decimal(38, 2)", "decimal(38,2)"),
        ("bigint", "decimal(20)", "decimal(20,0)"),
        ("numeric", "double", "float64"),
        ("integer", "double", "float64"),
        ("real", "double", "float64"),
        ("text", "json", "json"),
        ("typed.price", "double", "float64"),
        ("inet", "varchar", "varchar"),
        ("date", "varchar", "varchar"),
        ("integer[]", "varchar", "varchar"),
        ("numeric[]", "decimal(20,4)[]", "decimal(20,4)[]"),
        ("integer[][]", "double[][]", "float64[][]"),
        ("date[]", "varchar[]", "varchar[]"),
    ],
)
def test_a_column_may_be_asked_for_in_another_type(
    conn: psycopg.Connection, declared: str, asked: str, ducklake: str
) -> None:
    kind = lake_type(column_of(conn, declared), asked)
    assert ducklake_type(kind.leaf) + "[]" * kind.depth == ducklake


@pytest.mark.parametrize(
    ("declared", "asked", "why"),
    [
        ("numeric", "decimal(39,2)", "at most 38 digits"),
        ("numeric", "decimal(4,5)", "at most 38 digits"),
        ("numeric", "decimal", "no such type"),
        ("numeric", "money", "no such type"),
        ("text", "double", "not of that sort"),
        ("date", "decimal(20,4)", "not of that sort"),
        ("integer", "json", "not of that sort"),
        ("integer", "double[]", "it is not an array"),
        ("integer[]", "double", "it is an array"),
        ("integer[][]", "double[]", "it is an array"),
        ("integer[]", "double[][]", "it is an array"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_by_name(
    conn: psycopg.Connection, declared: str, asked: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        lake_type(column_of(conn, declared), asked)
    spelled = declared.replace("[][]", "[]")  # PostgreSQL does not tell the dimensions
    assert f"column 'x' ({spelled}) cannot be {asked!r}" in refused.value.message
    assert "varchar" in refused.value.hint


def test_the_page_of_types_is_made_from_the_mapping() -> None:
    assert PAGE.read_text() == with_type_table(PAGE.read_text()), "run python -m tools.typetable"


def test_every_built_in_type_is_on_the_page_and_is_what_it_says(conn: psycopg.Connection) -> None:
    documented: dict[str, str] = {}
    for line in re.findall(r"^\| (`.*)$", PAGE.read_text().split("\n## ")[0], re.MULTILINE):
        names, ducklake, *_ = line.split(" | ")
        documented |= {re.sub(r"\(.*", "", name): ducklake.strip("`") for name in re.findall(r"`([^`]+)`", names)}
    documented["numeric"] = "decimal(38,18)"  # of its several lines, the one without limits
    built_in = conn.execute(
        "SELECT oid::bigint, typname, format_type(oid, NULL) FROM pg_type"
        " WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'r', 'm')"
        " AND typsubscript::text <> 'array_subscript_handler'"
        " OR typname IN ('int2vector', 'oidvector')"
    ).fetchall()
    assert len(built_in) > 70
    wrong = {}
    for oid, name, spelled in built_in:
        said = documented.get(name) or documented.get(spelled)
        if said != ducklake_type(lake_type(Column("x", oid, -1, key=False))):
            wrong[name] = said
    assert wrong == {}
