"""What one job's tasks have for the buckets of the next arrives there, in order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.merge.exchange import HELD_BYTES, Outgoing, Piece, by_bucket, incoming
from headwater.merge.scratch import Scratch

ROWS = pa.schema([("bucket", pa.int32()), ("row", pa.int64()), ("message", pa.binary())])

tasks = st.lists(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=4), max_size=3)  # batches of buckets


def sent(room: Scratch, batches: Sequence[pa.RecordBatch], hold: int) -> list[Piece]:
    outgoing = Outgoing(room, hold)
    return [*chain.from_iterable(map(outgoing.add, batches)), *outgoing.flush()]


@pytest.mark.parametrize("hold", [0, 40, HELD_BYTES])
@given(tasks=tasks)
def test_each_bucket_gets_its_rows_in_the_order_of_each_task(
    tasks: list[list[list[int]]], hold: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    number, pieces, expected = 0, list[Piece](), dict[int, list[int]]()
    with Scratch.opened(str(tmp_path_factory.getbasetemp())) as room:
        for batches in tasks:
            found = []
            for buckets in batches:
                numbers = list(range(number, number + len(buckets)))
                number += len(buckets)
                found.append(pa.record_batch([buckets, numbers, [b"m" * each for each in numbers]], schema=ROWS))
                for bucket, row in zip(buckets, numbers, strict=True):
                    expected.setdefault(bucket, []).append(row)
            pieces += sent(room, found, hold)
        arrived = {bucket: incoming(room, mine, ROWS) for bucket, mine in by_bucket(pieces).items()}
    assert {bucket: rows["row"].to_pylist() for bucket, rows in arrived.items()} == expected
    for bucket, rows in arrived.items():
        assert set(rows["bucket"].to_pylist()) == {bucket}
        assert rows["message"].to_pylist() == [b"m" * row for row in rows["row"].to_pylist()]


def test_a_bucket_that_nothing_is_for_gets_an_empty_table(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Scratch.opened(str(tmp_path_factory.getbasetemp())) as room:
        assert incoming(room, (), ROWS).num_rows == 0
