"""Values of partitions, computed by column, are those that PyIceberg computes one by one."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from headwater.change import TableName
from headwater.iceberg.partitions import new_spec, not_computable, partition_at, partition_values
from headwater.iceberg.snapshots import FileChanges
from headwater.iceberg.writing import write_data_file
from headwater.lake.partitioning import PartitionBy
from headwater.lake.reading import connect
from headwater.sink.iceberg.querying import QueriedIceberg
from tests.iceberg.icebench import IceBench

DUCKDB: dict[type[IcebergType], str] = {UUIDType: "UUID", TimestampType: "TIMESTAMP", DateType: "DATE"}
DAYS = [0, 1, -1, 364, 365, 20_000, -20_000, -719_162]
MOMENTS = [0, 1, -1, 3_600_000_000, -3_600_000_001, 1_767_225_600_000_000, -86_400_000_000 * 365 * 100]
DECIMALS = ["0.00", "0.01", "-0.01", "1.27", "1.28", "-1.28", "-1.29", "10.65", "99999999999999999999.99"]
TIMES = ["year", "month", "day", "hour"]

CASES: list[tuple[IcebergType, pa.DataType, list[Any], list[str]]] = [
    (IntegerType(), pa.int32(), [0, 1, -1, 9, 10, -10, -11, 2**31 - 1], ["bucket[16]", "truncate[10]", "identity"]),
    (LongType(), pa.int64(), [0, -1, 34, 2**63 - 1, 5 - 2**63], ["bucket[1000]", "truncate[3]", "identity"]),
    (DecimalType(22, 2), pa.decimal128(22, 2), DECIMALS, ["bucket[100]", "truncate[50]", "identity"]),
    (StringType(), pa.large_string(), ["", "a", "iceberg", "ü☃𝄞x"], ["bucket[16]", "truncate[3]", "identity"]),
    (BinaryType(), pa.large_binary(), [b"", b"\x00\xff", b"abcdef"], ["bucket[16]", "truncate[3]", "identity"]),
    (UUIDType(), pa.binary(16), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**128 - 1).bytes], ["bucket[16]", "identity"]),
    (DateType(), pa.date32(), DAYS, ["bucket[16]", *TIMES[:3], "identity"]),
    (TimestampType(), pa.timestamp("us"), MOMENTS, ["bucket[16]", *TIMES, "identity"]),
    (TimestamptzType(), pa.timestamp("us", "UTC"), MOMENTS, ["bucket[16]", *TIMES, "identity"]),
    (TimeType(), pa.time64("us"), [0, 45_296_789_000], ["bucket[16]", "identity"]),
    (BooleanType(), pa.bool_(), [True, False], ["identity"]),
]


@pytest.mark.parametrize(
    ("type_", "arrow", "values", "transform"),
    [(type_, arrow, values, each) for type_, arrow, values, transforms in CASES for each in transforms],
)
def test_a_partition_is_where_pyiceberg_would_put_the_row(
    type_: IcebergType, arrow: pa.DataType, values: list[Any], transform: str
) -> None:
    schema = Schema(NestedField(7, "c", type_))
    spec = PartitionSpec(PartitionField(7, 1000, parse_transform(transform), "p"))
    if isinstance(type_, DecimalType):
        values = [Decimal(each) for each in values]
    whole = {32: pa.int32(), 64: pa.int64()}.get(arrow.bit_width if pa.types.is_temporal(arrow) else 0)
    array = pa.array([*values, None], whole).view(arrow) if whole else pa.array([*values, None], arrow)
    found = partition_values(spec, schema, {"c": array})
    expected = [parse_transform(transform).transform(type_)(each) for each in values]
    if isinstance(type_, UUIDType) and transform == "identity":
        expected = [uuid.UUID(bytes=each) for each in values]
    assert [partition_at(spec, schema, found, row) for row in range(len(array))] == [
        *((each,) for each in expected),
        (None,),
    ]


def test_a_number_at_the_end_of_its_type_wraps_around_as_in_java() -> None:
    schema = Schema(NestedField(1, "c", IntegerType()))
    spec = new_spec([PartitionBy("truncate", "c", 10)], schema)
    found = partition_values(spec, schema, {"c": pa.array([-(2**31)], pa.int32())})
    assert partition_at(spec, schema, found, 0) == (-(2**31) - 2 + 2**32,)


def test_fields_are_named_as_other_clients_name_them_and_never_as_another_column() -> None:
    schema = Schema(NestedField(1, "created", DateType()), NestedField(2, "created_day", StringType()))
    wanted = ["day(created)", "bucket(4, created)", "truncate(2, created_day)", "created_day"]
    spec = new_spec([PartitionBy.parse(each) for each in wanted], schema)
    assert [(field.field_id, field.source_id, field.name) for field in spec.fields] == [
        (1000, 1, "created_day_partition"),
        (1001, 1, "created_bucket_4"),
        (1002, 2, "created_day_trunc_2"),
        (1003, 2, "created_day"),
    ]


@pytest.mark.parametrize(
    ("transform", "type_", "computable"),
    [
        ("identity", StringType(), True),
        ("void", DoubleType(), True),
        ("identity", DoubleType(), False),
        ("zorder", StringType(), False),
        ("day", StringType(), False),
    ],
)
def test_what_another_client_made_of_a_spec_is_looked_at_first(
    transform: str, type_: IcebergType, computable: bool
) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, parse_transform(transform), "p"))
    assert (not_computable(spec, Schema(NestedField(1, "c", type_))) is None) == computable
    assert not_computable(spec, Schema(NestedField(2, "c", type_))) == (None if transform == "void" else "p")


def test_days_before_the_epoch_are_negative() -> None:
    schema = Schema(NestedField(1, "c", DateType()))
    spec = new_spec([PartitionBy("day", "c")], schema)
    found = partition_values(spec, schema, {"c": pa.array([datetime.date(1969, 12, 31)])})
    assert partition_at(spec, schema, found, 0) == (-1,)


HUGE, UUID = Decimal("99999999999999999999.99"), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


@pytest.mark.parametrize(
    ("type_", "arrow", "value", "by", "misread"),
    [
        (UUIDType(), pa.uuid(), UUID.bytes, PartitionBy("bucket", "c", 16), True),
        (TimestampType(), pa.timestamp("us"), datetime.datetime(1969, 12, 31, 21), PartitionBy("day", "c"), True),
        (TimestampType(), pa.timestamp("us"), datetime.datetime(1900, 5, 5), PartitionBy("month", "c"), True),
        (DecimalType(22, 2), pa.decimal128(22, 2), HUGE, PartitionBy("truncate", "c", 50), True),
        (UUIDType(), pa.uuid(), UUID.bytes, PartitionBy("identity", "c"), False),
        (TimestampType(), pa.timestamp("us"), datetime.datetime(2026, 7, 1), PartitionBy("day", "c"), False),
        (DateType(), pa.date32(), datetime.date(1969, 12, 31), PartitionBy("day", "c"), False),
        (DecimalType(12, 2), pa.decimal128(12, 2), Decimal("-1.29"), PartitionBy("truncate", "c", 50), False),
    ],
    ids=str,
)
def test_a_query_finds_rows_that_duckdb_looks_for_in_another_partition(
    ice: IceBench, type_: IcebergType, arrow: pa.DataType, value: Any, by: PartitionBy, misread: bool
) -> None:
    schema = Schema(NestedField(1, "c", type_, required=False))
    name, spec, order = TableName("db", "p"), new_spec([by], schema), UNSORTED_SORT_ORDER
    ice.table = ice.catalog.create(ice.catalog.stage(name, schema, spec, order, {"format-version": "2"}))
    rows = pa.table({"c": pa.array([value], arrow)})
    values = partition_values(spec, schema, {"c": rows["c"].combine_chunks()})
    at = partition_at(spec, schema, values, 0)
    ice.commit(FileChanges([write_data_file(ice.folder, rows, schema, spec.spec_id, at)]))
    text = f"'{UUID if isinstance(type_, UUIDType) else value}'::{DUCKDB.get(type(type_), type_)}"

    def found(optimizers: str | None = None) -> set[int]:
        queried = QueriedIceberg(ice.properties, frozenset())
        with connect() as con:
            queried.prepare(con)
            queried.attach(con, "lake")
            if optimizers is not None:
                con.execute(f"SET disabled_optimizers = '{optimizers}'")
            con.execute(f"CREATE TEMP TABLE sought AS SELECT {text} AS c")
            return {con.sql(f"SELECT count(*) FROM lake.db.p {by}").fetchall()[0][0] for by in ways}

    ways = (f"WHERE c = {text}", "JOIN sought USING (c)")
    assert found() == {1}
    assert found("") == {0 if misread else 1}  # 1 everywhere: DuckDB is mended, and we need do nothing any more
