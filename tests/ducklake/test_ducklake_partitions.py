"""The partitions of our files are those that DuckDB's extension gives its own: values, buckets and folders alike."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from lakebench import Bench

from headwater.change import TableName
from headwater.ducklake.contents import read_columns
from headwater.ducklake.model import Field, PartitionKey
from headwater.ducklake.partitions import (
    check_kept,
    hive_folder,
    not_computable,
    partition_at,
    partition_values,
)
from headwater.errors import CannotFollow

MOMENTS = ["year", "month", "day", "hour", "identity", "bucket(1000)"]
CASES = {
    "boolean": (["true", "false"], ["identity", "bucket(1000)"]),
    "int16": (["5", "-5"], ["identity", "bucket(1000)"]),
    "int32": (["-7", "2147483647"], ["identity", "bucket(1000)"]),
    "int64": (["99999999999", "-9223372036854775808"], ["identity", "bucket(1000)"]),
    "uint32": (["4000000000"], ["identity", "bucket(1000)"]),
    "uint64": (["18446744073709551615"], ["identity", "bucket(1000)"]),
    "decimal(12,2)": (["12.5", "-0.01", "0"], ["identity", "bucket(1000)"]),
    "decimal(18,3)": (["999999999999999.999", "-1"], ["identity", "bucket(1000)"]),
    "decimal(19,3)": (["999999999999999.999", "-1"], ["identity", "bucket(1000)"]),
    "decimal(38,18)": (["12345678901234567890.123456789012345678"], ["identity", "bucket(1000)"]),
    "varchar": (["''", "'a b/ü=%:\"#?\\.~_-'", "'NULL'", "'+&,;'"], ["identity", "bucket(1000)"]),
    "json": (["'{\"a\": 1}'"], ["identity", "bucket(1000)"]),
    "blob": (["'\\xAA\\x01b'::blob"], ["bucket(1000)"]),
    "uuid": (["'ff1d1c2e-0000-4000-8000-000000000001'"], ["identity", "bucket(1000)"]),
    "date": (["'1969-12-31'", "'0044-03-15 (BC)'", "'infinity'", "'2024-02-29'"], [*MOMENTS[:3], *MOMENTS[4:]]),
    "time": (["'12:34:56.789'"], ["identity", "bucket(1000)"]),
    "timestamp": (["'1969-12-31 23:59:59.5'", "'-infinity'", "'0044-03-15 (BC) 01:02:03'"], MOMENTS),
    "timestamptz": (["'2026-03-04 05:06:07.8+00'", "'infinity'"], MOMENTS),
}
SQL = {"blob": "BLOB", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "uint32": "UINTEGER",
       "uint64": "UBIGINT"}  # fmt: skip


@pytest.mark.parametrize("type_", CASES)
def test_a_partition_is_where_the_extension_puts_the_row(bench: Bench, type_: str) -> None:
    values, transforms = CASES[type_]
    for transform in transforms:
        name = TableName("main", f"t_{transform.rstrip(')').replace('(', '_')}")
        expression = {"identity": "c", "bucket(1000)": "bucket(1000, c)"}.get(transform, f"{transform}(c)")
        bench.sql(f"CREATE TABLE {{l}}.{name} (id BIGINT, c {SQL.get(type_, type_)})")
        bench.sql(f"ALTER TABLE {{l}}.{name} SET PARTITIONED BY ({expression})")
        rows = ", ".join(f"({at}, {each})" for at, each in enumerate([*values, "NULL"]))
        bench.sql(f"INSERT INTO {{l}}.{name} VALUES {rows}")
        table = bench.table(name)
        assert [key.transform for key in table.partition_keys] == [transform]
        assert not_computable(table.partition_keys, table.columns) is None
        for file in bench.lake.files([table.id], bench.lake.snapshot(), partitions_of=[table.id]):
            assert table.partitioning is not None
            assert file.partition_id == table.partitioning.id
            inside = file.path.removeprefix(table.path).rpartition("/")[0] + "/"
            ((_, (array,)),) = read_columns(bench.files, file, table.columns[1:])
            found = partition_values(table.partition_keys, table.columns, {"c": array})
            for row in range(len(array)):
                partition = partition_at(table.partition_keys, table.columns, found, row)
                assert partition == file.partition
                assert hive_folder(table.partition_keys, table.columns, partition) == inside


def test_the_folders_of_several_keys_are_named_as_the_extension_names_them(bench: Bench) -> None:
    bench.sql('CREATE TABLE {l}.main.m ("a b" TIMESTAMP, b TIMESTAMP, "Ü/x" VARCHAR, i INTEGER)')
    keys = 'year("a b"), year(b), month(b), bucket(4, i), bucket(8, i), "Ü/x", "a b"'
    bench.sql(f"ALTER TABLE {{l}}.main.m SET PARTITIONED BY ({keys})")
    bench.sql("INSERT INTO {l}.main.m VALUES ('2026-01-02', '2025-01-01', ' x', 2)")
    table = bench.table(TableName("main", "m"))
    (file,) = bench.lake.files([table.id], bench.lake.snapshot(), partitions_of=[table.id])
    folder = hive_folder(table.partition_keys, table.columns, file.partition)
    assert file.path.removeprefix(table.path).rpartition("/")[0] + "/" == folder
    assert folder.startswith("year=2026/year_b=2025/month=1/bucket=")


def test_a_folder_for_a_value_too_long_for_a_name_is_always_the_same_one() -> None:
    fields = (Field(1, "c", "varchar"),)
    folder = hive_folder((PartitionKey(1, "identity"),), fields, ("x" * 300,))
    assert len(folder) == 65
    assert folder == hive_folder((PartitionKey(1, "identity"),), fields, ("x" * 300,))


@pytest.mark.parametrize(
    ("transform", "before", "after", "follows"),
    [
        ("bucket(4)", "int16", "int64", True),
        ("bucket(4)", "decimal(12,2)", "decimal(18,2)", True),
        ("bucket(4)", "decimal(12,2)", "decimal(20,2)", False),
        ("bucket(4)", "uint32", "int64", False),
        ("bucket(4)", "int32", "decimal(10,0)", True),
        ("bucket(4)", "int64", "decimal(19,0)", False),
        ("identity", "int32", "decimal(10,0)", True),
        ("identity", "uint32", "int64", True),
    ],
)
def test_a_column_follows_only_into_types_whose_partitions_are_the_same(
    transform: str, before: str, after: str, follows: bool
) -> None:
    keys = (PartitionKey(1, transform),)
    refused: Any = nullcontext() if follows else pytest.raises(CannotFollow, match="buckets of column 'd'")
    with refused:
        check_kept("public.t", keys, (Field(1, "c", before),), (Field(1, "d", after),))
    with pytest.raises(CannotFollow, match="partitioned by column 'c', which is dropped"):
        check_kept("public.t", keys, (Field(1, "c", before),), ())


@pytest.mark.parametrize(("type_", "transform"), [("float64", "identity"), ("blob", "identity"), ("time", "hour"),
                                                  ("varchar", "truncate(3)")])  # fmt: skip
def test_keys_of_others_that_we_would_not_spell_alike_are_not_computed(type_: str, transform: str) -> None:
    said = not_computable((PartitionKey(1, transform),), (Field(1, "c", type_),))
    assert said == f"{transform} of column c"
