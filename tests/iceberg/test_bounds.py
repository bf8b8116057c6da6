"""The bounds that a manifest has of a file's columns: no reader that skips files by them misses a row."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import EqualTo
from pyiceberg.expressions.literals import literal as iceberg_literal
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    NestedField,
    PrimitiveType,
    StringType,
)

from headwater.change import Column, TableName
from headwater.iceberg.catalog import IcebergCatalog, open_catalog
from headwater.iceberg.manifests import ManifestCache
from headwater.iceberg.metrics import Metrics, MetricsCollector
from headwater.iceberg.snapshots import FileChanges, next_snapshot
from headwater.iceberg.types import field_type, plain_type
from headwater.iceberg.writing import DataFolder, write_data_file
from headwater.lake import reading
from headwater.lake.casting import fitted
from headwater.lake.sqltext import literal
from headwater.sink.iceberg.reader import ReadTable, load_iceberg, scan
from headwater.values.decode import decode
from headwater.values.types import LakeType, lake_type

# PostgreSQL's OID and type modifier, DuckDB's name for the Iceberg type → values as PostgreSQL prints them.
VALUES: dict[tuple[int, int, str], list[str]] = {
    (16, -1, "BOOLEAN"): ["t", "f"],
    (21, -1, "INTEGER"): ["-32768", "0", "32767"],
    (23, -1, "INTEGER"): ["-2147483648", "0", "2147483647"],
    (20, -1, "BIGINT"): ["-9223372036854775808", "-1", "9223372036854775807"],
    (26, -1, "BIGINT"): ["0", "4294967295"],
    (5069, -1, "DECIMAL(20,0)"): ["0", "18446744073709551615", "9223372036854775808"],
    (700, -1, "FLOAT"): ["-0", "0", "0.1", "1e-45", "3.4028235e38", "-3.4028235e38", "Infinity", "-Infinity", "NaN"],
    (701, -1, "DOUBLE"): ["-0", "0", "0.1", "5e-324", "1.7976931348623157e308", "Infinity", "-Infinity", "NaN"],
    (1700, (12 << 16 | 2) + 4, "DECIMAL(12,2)"): ["0.00", "-0.01", "1.28", "-1.28", "-1.29", "9999999999.99"],
    (1700, -1, "DECIMAL(38,18)"): ["0", "0.000000000000000001", "-99999999999999999999.999999999999999999"],
    (1700, (38 << 16) + 4, "DECIMAL(38,0)"): ["9" * 38, "-" + "9" * 38, "0"],
    (25, -1, "VARCHAR"): [
        *("", " ", "a", "ä", "🦆", "sixteen letters.", "sixteen letters. and more", "sixteen letters., and more"),
        *("fifteen letters\ud7ff", "fifteen letters\ud7ffz", "\ud7ff" * 17, "\U0010ffff" * 16, "\U0010ffff" * 17),
        *("a" * 15 + "\U0010ffff" * 9, "\uffff" * 40, "ü" * 16 + "\x01", "x" * 100_000, "\x01" * 20),
    ],
    (17, -1, "BLOB"): [r"\x", r"\x00", r"\xff", r"\x" + "ff" * 16, r"\x" + "ff" * 17, r"\x" + "00" * 40, r"\x61ff"],
    (2950, -1, "UUID"): [
        *("00000000-0000-0000-0000-000000000000", "7fffffff-ffff-ffff-ffff-ffffffffffff"),
        *("80000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ],
    (1082, -1, "DATE"): ["4714-11-24 BC", "0001-01-01", "1969-12-31", "9999-12-31", "10000-01-01", "5874897-12-31"],
    (1083, -1, "TIME"): ["00:00:00", "23:59:59.999999", "12:00:00.000001"],
    (1114, -1, "TIMESTAMP"): [
        *("4714-11-24 00:00:00 BC", "0001-01-01 00:00:00", "1969-12-31 23:59:59.999999"),
        *("9999-12-31 23:59:59.999999", "294247-01-10 04:00:54.775806"),
    ],
    (1184, -1, "TIMESTAMPTZ"): ["4714-11-24 00:00:00+00 BC", "2026-01-01 00:00:00+05:30", "20000-01-01 00:00:00+00"],
}
NAMES = {key: f"c{index}" for index, key in enumerate(VALUES)}
ROWS = max(map(len, VALUES.values()))


def kind_of(key: tuple[int, int, str]) -> LakeType:
    return lake_type(Column("x", key[0], key[1], key=False), calendar_only=True)


def type_of(key: tuple[int, int, str]) -> PrimitiveType:
    found = field_type(kind_of(key), iter(()))
    assert isinstance(found, PrimitiveType)
    return found


def column_of(key: tuple[int, int, str]) -> pa.Array:
    decoded = decode(pa.array(VALUES[key], pa.large_string()), kind_of(key))
    assert decoded.bad == ()
    return decoded.array


def metrics_of(key: tuple[int, int, str], parts: list[pa.Array]) -> Metrics:
    type_ = type_of(key)
    collector = MetricsCollector(Schema(NestedField(7, "x", type_, required=False)))
    for part in parts:
        collector.add(pa.table({"x": fitted(part, plain_type(type_))}))
    return collector.finish()


def comparable(type_: PrimitiveType, array: pa.Array) -> list[Any]:
    """The values as Iceberg orders them; NaN is in no order."""
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    values = array.drop_null().to_pylist()
    if isinstance(type_, FloatType | DoubleType):
        return [ordered(value) for value in values if not math.isnan(value)]
    return [value.encode() for value in values] if isinstance(type_, StringType) else values


def ordered(value: float) -> tuple[float, float]:
    return value, math.copysign(1, value)  # -0.0 comes before 0.0


def bound(type_: PrimitiveType, raw: bytes) -> Any:
    if isinstance(type_, StringType):
        raw.decode()
        return raw
    value: Any = from_bytes(type_, raw)
    return ordered(value) if isinstance(type_, FloatType | DoubleType) else value


@pytest.mark.parametrize("key", VALUES, ids=[key[2] for key in VALUES])
def test_bounds_are_never_too_narrow(key: tuple[int, int, str]) -> None:
    column, type_ = column_of(key), type_of(key)
    each = [column.slice(at, 1) for at in range(len(column))]
    neighbours = [column.slice(at, 2) for at in range(len(column))]
    for parts in ([column], each, [pa.nulls(3, column.type), *each], *([one] for one in (*each, *neighbours))):
        found = metrics_of(key, parts)
        values = comparable(type_, pa.concat_arrays(parts))
        assert (found.values[7], found.nulls[7]) == (sum(map(len, parts)), sum(part.null_count for part in parts))
        if not values:
            assert found.lower == found.upper == {}
            continue
        assert bound(type_, found.lower[7]) <= min(values)
        if 7 in found.upper:
            assert bound(type_, found.upper[7]) >= max(values)


def test_a_column_without_values_has_no_bounds() -> None:
    for key in VALUES:
        found = metrics_of(key, [pa.nulls(3, column_of(key).type)])
        assert (found.values, found.nulls, found.lower, found.upper) == ({7: 3}, {7: 3}, {}, {})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[IcebergCatalog]:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/ice.sqlite", "warehouse": str(tmp_path / "lake")}
    with closing(open_catalog(properties, frozenset(), create=True)) as opened:
        yield opened


def a_file_for_each_row(catalog: IcebergCatalog) -> Table:
    """A table with a column for each type, in which each file has one row, so that its bounds are the tightest."""
    fields = [NestedField(at, NAMES[key], type_of(key), required=False) for at, key in enumerate(VALUES, 2)]
    schema = Schema(NestedField(1, "id", IntegerType(), required=False), *fields)
    staged = catalog.stage(
        TableName("public", "t"), schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, {"format-version": "2"}
    )
    table = catalog.create(staged)
    where = DataFolder(fs.LocalFileSystem(), table.metadata.location, "0" * 32)
    columns = {key: column_of(key) for key in VALUES}
    files = []
    for row in range(ROWS):
        cells = {NAMES[key]: array.slice(row, 1) for key, array in columns.items()}
        full = {name: each if len(each) else pa.nulls(1, each.type) for name, each in cells.items()}
        files.append(write_data_file(where, pa.table({"id": pa.array([row], pa.int32()), **full}), table.schema()))
    new = next_snapshot(table, table.schema(), FileChanges(files), {}, ManifestCache())
    return catalog.commit(table, new.requirements, new.updates)


def for_duckdb(text: str, type_: str) -> str:
    """The value as DuckDB reads it; it puts the mark of years before Christ in parentheses, after the date."""
    if type_ == "BLOB":
        return f"unhex('{text[2:]}')"
    text = {"t": "true", "f": "false"}.get(text, text) if type_ == "BOOLEAN" else text
    if text.endswith(" BC"):
        text = re.sub(r"^(\S+)(.*) BC$", r"\1 (BC)\2", text)
    return f"CAST({literal(text)} AS {type_})"


def test_duckdb_finds_every_value_by_itself(catalog: IcebergCatalog) -> None:
    table = a_file_for_each_row(catalog)
    place = scan(ReadTable(table.metadata_location, None))
    lost = []
    with reading.connect() as con:
        load_iceberg(con)
        for key, texts in VALUES.items():
            for row, text in enumerate(texts):
                found = con.execute(
                    f"SELECT list(id) FROM {place} WHERE {NAMES[key]} = {for_duckdb(text, key[2])}"
                ).fetchall()
                if row not in (found[0][0] or []):
                    lost.append((key[2], text[:40], found))
    assert lost == []


def test_pyiceberg_plans_the_file_of_every_value(catalog: IcebergCatalog) -> None:
    table = a_file_for_each_row(catalog)
    lost = []
    for key, texts in VALUES.items():
        type_ = type_of(key)
        for row, value in enumerate(native(type_, column_of(key))):
            if isinstance(value, float) and not math.isfinite(value):  # PyIceberg knows no such literal of a float
                continue
            equal = EqualTo(term=NAMES[key], value=iceberg_literal(value).to(type_))
            planned = table.scan(row_filter=equal).plan_files()
            if not any(row == ids(each.file.lower_bounds[1]) for each in planned):
                lost.append((key[2], texts[row][:40]))
    assert lost == []


def native(type_: PrimitiveType, array: pa.Array) -> list[Any]:
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    if isinstance(type_, DecimalType) and not pa.types.is_decimal(array.type):
        array = array.cast(pa.decimal128(20, 0))
    return list(array.to_pylist())


def ids(raw: bytes) -> int:
    return int.from_bytes(raw, "little")
