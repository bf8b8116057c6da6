"""`partition_by` as the config has it: what it means, what is refused, and how rows are divided."""

from __future__ import annotations

import mmh3
import numpy as np
import pyarrow as pa
import pytest

from headwater.ducklake.partitions import SUPPORT as DUCKLAKE
from headwater.iceberg.partitions import SUPPORT as ICEBERG
from headwater.lake.hashing import hashed_binaries, hashed_numbers, hashed_texts
from headwater.lake.partitioning import PartitionBy, PartitionSupport, divided, parts
from headwater.values.types import LakeType

TEXT = LakeType("text", pa.large_string(), "string")
MOMENT = LakeType("timestamptz", pa.timestamp("us", "UTC"), "timestamptz")
NUMBER = LakeType("bigint", pa.int64(), "int64")
FLOAT = LakeType("double precision", pa.float64(), "float64")
KINDS = {"id": NUMBER, "created": MOMENT, "name": TEXT, "ratio": FLOAT}


@pytest.mark.parametrize(
    ("text", "meaning", "spelled"),
    [
        ("region", PartitionBy("identity", "region"), "region"),
        ("identity(region)", PartitionBy("identity", "region"), "region"),
        ("day(created)", PartitionBy("day", "created"), "day(created)"),
        (" Day ( created ) ", PartitionBy("day", "created"), "day(created)"),
        ("year(c)", PartitionBy("year", "c"), "year(c)"),
        ("month(c)", PartitionBy("month", "c"), "month(c)"),
        ("hour(c)", PartitionBy("hour", "c"), "hour(c)"),
        ("bucket(16,id)", PartitionBy("bucket", "id", 16), "bucket(16, id)"),
        ("truncate( 4 , name )", PartitionBy("truncate", "name", 4), "truncate(4, name)"),
        ('day("Order ""Day""")', PartitionBy("day", 'Order "Day"'), 'day("Order ""Day""")'),
        ('"a b"', PartitionBy("identity", "a b"), '"a b"'),
        ("größe", PartitionBy("identity", "größe"), "größe"),
    ],
)
def test_an_expression_has_one_meaning_and_one_spelling(text: str, meaning: PartitionBy, spelled: str) -> None:
    assert PartitionBy.parse(text) == meaning
    assert str(meaning) == spelled
    assert PartitionBy.parse(spelled) == meaning


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no way to partition"),
        ("day(created", "is no way to partition"),
        ("created)", "is no way to partition"),
        ("day()", "is no way to partition"),
        ("a b", "is no way to partition"),
        ("bucket(id, 16)", "is no way to partition"),
        ("minute(created)", "no partition transform 'minute'"),
        ("void(created)", "no partition transform 'void'"),
        ("day(2, created)", r"has a number \(write day\(c\)\)"),
        ("bucket(id)", r"has no number \(write bucket\(N, c\)\)"),
        ("bucket(0, id)", "is not from 1 to 2147483647"),
        ("truncate(-1, id)", "is not from 1 to 2147483647"),
    ],
)
def test_what_is_no_expression_is_refused_with_what_would_be_one(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        PartitionBy.parse(text)
    if "from 1" not in said:
        assert "write" in str(refused.value)


def problems(support: PartitionSupport, *texts: str) -> list[tuple[str, str]]:
    return [tuple(each) for each in support.problems(tuple(map(PartitionBy.parse, texts)), KINDS)]  # type: ignore[misc]


def test_a_lake_refuses_what_it_cannot_do_and_says_what_it_can() -> None:
    assert problems(ICEBERG, "day(created)", "bucket(16, id)", "truncate(3, name)", "name") == []
    assert problems(DUCKLAKE, "year(created)", "day(created)", "bucket(16, id)", "name") == []
    ((message, hint),) = problems(DUCKLAKE, "truncate(3, name)")
    assert message == "DuckLake has no partition transform 'truncate', which `truncate(3, name)` asks for"
    assert hint == "write a column's name, year(c), month(c), day(c), hour(c) or bucket(N, c)"
    ((message, hint),) = problems(ICEBERG, "day(name)")
    assert message == "Iceberg does not partition by `day(name)`: 'name' is of type string"
    assert hint == "it takes a column's name, bucket(N, c) or truncate(W, c)"
    ((message, hint),) = problems(ICEBERG, "ratio")
    assert (message[-6:], hint) == ("loat64", "partition by another column")
    ((message, hint),) = problems(DUCKLAKE, "day(gone)")
    assert message == "`partition_by` names the column 'gone', which is not mirrored"
    assert hint == "it has: id, created, name, ratio"
    ((message, _),) = problems(ICEBERG, "year(created)", "day(created)")
    assert message.startswith("Iceberg takes only one of year, month, day and hour of a column")


def test_rows_are_divided_by_all_their_values_and_nulls_are_a_value() -> None:
    values = [pa.array([1, 2, 1, None, None, 1]), pa.array(["a", "a", "b", "a", "a", "a"])]
    assert sorted(each.tolist() for each in divided(values)) == [[0, 5], [1], [2], [3, 4]]
    assert divided([pa.array([], pa.int32())]) == []


def test_the_parts_of_rows_are_in_their_order_and_never_larger_than_asked() -> None:
    rows = pa.table({"n": np.arange(10)})
    found = list(parts(rows, [pa.array([0, 1] * 5)], most=3))
    assert [part["n"].to_pylist() for _, part in found] == [[0, 2, 4], [6, 8], [1, 3, 5], [7, 9]]
    assert [at.tolist() for at, _ in found] == [[0, 2, 4], [6, 8], [1, 3, 5], [7, 9]]


def test_hashes_are_those_of_murmur3() -> None:
    numbers = [0, 1, -1, 34, 2**63 - 1, -(2**63)]
    expected = [mmh3.hash(each.to_bytes(8, "little", signed=True), signed=False) for each in numbers]
    assert hashed_numbers(pa.array(numbers, pa.int64())).tolist() == expected
    assert hashed_numbers(pa.array([1, None], pa.int16()))[0] == expected[1]
    ids = [bytes(range(16)), bytes(16), b"\xff" * 16]
    assert hashed_binaries(pa.array(ids, pa.binary(16)).slice(1)).tolist() == [
        mmh3.hash(each, signed=False) for each in ids[1:]
    ]
    texts = ["iceberg", "", "ü", "iceberg"]
    assert hashed_texts(pa.array(texts, pa.large_string())).tolist() == [
        mmh3.hash(each, signed=False) for each in texts
    ]
