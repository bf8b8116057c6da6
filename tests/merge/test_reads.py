"""Changes of several tables that were read at once, taken together and apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.change import Lsn, Relation
from headwater.merge import alike as bounds
from headwater.merge.alike import alike
from headwater.merge.mirror import Mirror
from headwater.merge.reader import Reads
from headwater.merge.staged import StagedChanges
from tests.merge.messages import INT4, TEXT, column, mirror, relation

SHAPE = relation(column("id", INT4, 1))
OTHER = relation(column("id", INT4, 1), column("v", TEXT, 2))


def table(oid: int, shape: Relation = SHAPE) -> Mirror:
    return replace(mirror(shape), oid=oid)


def reads(*tables: tuple[Mirror, int, list[int]]) -> Reads:
    """Each with its version, and rows that are known by a number."""
    of = np.repeat(np.arange(len(tables)), [len(rows) for *_, rows in tables])
    return Reads(
        tuple((mirror, version) for mirror, version, _ in tables),
        of,
        pa.table({"seq": pa.array([each for *_, rows in tables for each in rows], pa.int64())}),
    )


def shown(found: Reads) -> list[tuple[int, int, list[int]]]:
    return [(mirror.oid, version, rows["seq"].to_pylist()) for mirror, version, rows in found.each()]


def test_each_table_has_its_own_rows_and_one_without_rows_is_left_out() -> None:
    found = reads((table(7), 1, [1, 2]), (table(8), 2, []), (table(9), 3, [3]))
    assert shown(found) == [(7, 1, [1, 2]), (9, 3, [3])]
    assert shown(found.only([1, 2])) == [(9, 3, [3])]
    assert shown(found.only([0])) == [(7, 1, [1, 2])]
    assert found.only([0, 1, 2]) is found


def test_reads_that_are_joined_keep_their_tables_apart_though_these_are_the_same() -> None:
    one, two = reads((table(7), 1, [1]), (table(8), 2, [2])), reads((table(7), 1, [3, 4]))
    assert shown(Reads.joined([one, two])) == [(7, 1, [1]), (8, 2, [2]), (7, 1, [3, 4])]
    assert Reads.joined([one]) is one


def test_tables_that_are_alike_are_taken_together_over_all_that_is_read() -> None:
    relations = {1: replace(SHAPE, oid=7), 2: replace(OTHER, oid=8), 3: replace(SHAPE, oid=9)}
    reader = StagedChanges((), relations, Lsn(100))
    found = alike(
        reader,
        [
            reads((table(7), 1, [1]), (table(8, OTHER), 2, [2]), (table(9), 3, [3])),
            reads((table(9), 3, [4]), (table(8, OTHER), 2, [])),
        ],
        lambda _: True,
    )
    assert [shown(each) for each in found] == [[(7, 1, [1]), (9, 3, [3]), (9, 3, [4])], [(8, 2, [2])]]


@pytest.mark.parametrize("why", ["many rows", "many bytes", "several buckets"])
def test_a_table_that_is_large_or_divided_is_taken_alone_and_at_once(why: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(bounds, "FEW_ROWS", 2 if why == "many rows" else 100)
    monkeypatch.setattr(bounds, "FEW_BYTES", 20 if why == "many bytes" else 1 << 20)
    reader = StagedChanges((), {each: replace(SHAPE, oid=each) for each in (7, 8, 9)}, Lsn(100))
    read = reads((table(7), 7, [1]), (table(8), 8, [2, 3, 4]), (table(9), 9, [5]))
    found = alike(reader, [read, read], lambda mirror: why != "several buckets" or mirror.oid != 8)
    assert [shown(each) for each in found] == [
        [(8, 8, [2, 3, 4])],
        [(8, 8, [2, 3, 4])],
        [(7, 7, [1]), (9, 9, [5]), (7, 7, [1]), (9, 9, [5])],
    ]
