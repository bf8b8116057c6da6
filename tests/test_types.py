"""Which Arrow and DuckLake type carries a PostgreSQL type."""

from __future__ import annotations

import psycopg
import pyarrow as pa
import pytest

from headwater.testing.postgres import EmbeddedPostgres
from headwater.types import lake_type

CARRIED = [
    ("smallint", pa.int16(), "int16"),
    ("integer", pa.int32(), "int32"),
    ("bigint", pa.int64(), "int64"),
    ("boolean", pa.bool_(), "boolean"),
    ("real", pa.float32(), "float32"),
    ("double precision", pa.float64(), "float64"),
    ("numeric(12,2)", pa.decimal128(12, 2), "decimal(12,2)"),
    ("numeric(38,38)", pa.decimal128(38, 38), "decimal(38,38)"),
    ("numeric(1)", pa.decimal128(1, 0), "decimal(1,0)"),
    ("text", pa.large_string(), "varchar"),
    ("varchar", pa.large_string(), "varchar"),
    ("varchar(7)", pa.large_string(), "varchar"),
    ("char(7)", pa.large_string(), "varchar"),
    ("date", pa.date32(), "date"),
    ("time", pa.time64("us"), "time"),
    ("time(3)", pa.time64("us"), "time"),
    ("timestamp", pa.timestamp("us"), "timestamp"),
    ("timestamptz(0)", pa.timestamp("us", "UTC"), "timestamptz"),
    ("uuid", pa.binary(16), "uuid"),
    ("bytea", pa.large_binary(), "blob"),
    ("json", pa.large_string(), "json"),
    ("jsonb", pa.large_string(), "json"),
]
AS_TEXT = [
    "numeric",
    "numeric(39,2)",
    "numeric(5,-2)",
    "numeric(2,4)",
    "inet",
    "integer[]",
    "interval",
    "name",
    "timetz",
]


def typed(postgres: EmbeddedPostgres, declared: str) -> tuple[int, int]:
    """The OID and modifier PostgreSQL itself gives a column declared so."""
    with psycopg.connect(postgres.url()) as conn:
        conn.execute(f"CREATE TEMP TABLE t (x {declared})")
        query = "SELECT atttypid::int, atttypmod FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum = 1"
        row = conn.execute(query).fetchone()
        assert row is not None
        return row


@pytest.mark.parametrize(("declared", "arrow", "ducklake"), CARRIED)
def test_a_type_the_lake_knows_is_carried_as_itself(
    postgres: EmbeddedPostgres, declared: str, arrow: pa.DataType, ducklake: str
) -> None:
    kind = lake_type(*typed(postgres, declared))
    assert (kind.arrow, kind.ducklake, kind.as_text) == (arrow, ducklake, False)


@pytest.mark.parametrize("declared", AS_TEXT)
def test_any_other_type_is_carried_as_postgresql_prints_it(postgres: EmbeddedPostgres, declared: str) -> None:
    kind = lake_type(*typed(postgres, declared))
    assert (kind.arrow, kind.ducklake, kind.as_text) == (pa.large_string(), "varchar", True)
