"""Tables find their buckets: all of them, none twice in one, the work shared out evenly."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headwater.merge.spread import BYTES_PER_BUCKET, ROWS_PER_BUCKET, SPLIT_FROM, Size, buckets_for, spread

rows = st.one_of(st.integers(1, 50), st.integers(1, SPLIT_FROM), st.integers(SPLIT_FROM, 5_000_000))
sizes = st.builds(Size, rows, st.one_of(st.integers(1, 1 << 20), st.integers(1, 1 << 36)))
batches = st.dictionaries(st.integers(1, 10_000), sizes, min_size=1, max_size=60)


@given(batches, st.integers(1, 40))
def test_every_table_has_buckets_and_all_of_them_are_different_ones(batch: dict[int, Size], buckets: int) -> None:
    placed = spread(batch, buckets)
    assert placed.keys() == batch.keys()
    for chosen in placed.values():
        assert 1 <= len(chosen) <= buckets
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= set(range(buckets))


@given(batches, st.integers(1, 40))
def test_a_small_table_is_never_split_into_two_files(batch: dict[int, Size], buckets: int) -> None:
    placed = spread(batch, buckets)
    assert all(len(placed[table]) == 1 for table, size in batch.items() if size.small(SPLIT_FROM))


@given(batches, st.integers(1, 16))
def test_no_bucket_has_much_more_to_do_than_its_share(batch: dict[int, Size], cores: int) -> None:
    buckets = buckets_for(batch.values(), cores)
    taken: Counter[int] = Counter()
    held: Counter[int] = Counter()
    for table, chosen in spread(batch, buckets).items():
        for bucket in chosen:
            taken[bucket] += batch[table].rows // len(chosen)
            held[bucket] += batch[table].bytes // len(chosen)
    if buckets > cores:
        assert max(taken.values()) <= 5 * ROWS_PER_BUCKET
        assert max(held.values()) <= 5 * BYTES_PER_BUCKET


@given(batches, st.integers(1, 40))
def test_the_same_batch_is_always_placed_the_same(batch: dict[int, Size], buckets: int) -> None:
    """A task that Spark tries again must send a key to the bucket where the first attempt sent it."""
    assert spread(dict(reversed(batch.items())), buckets) == spread(batch, buckets)


def test_many_equal_small_tables_are_dealt_out_evenly() -> None:
    load = Counter(bucket for (bucket,) in spread(dict.fromkeys(range(200), Size(50, 5_000)), 8).values())
    assert set(load.values()) == {25}


def test_a_table_alone_uses_every_bucket_if_it_is_large() -> None:
    assert sorted(spread({1: Size(1_000_000, 1 << 20)}, 8)[1]) == list(range(8))


def test_few_rows_are_split_if_they_are_huge_whatever_is_beside_them() -> None:
    batch = {1: Size(990, 10 * BYTES_PER_BUCKET), 2: Size(10, 1_000), 3: Size(2_500_000, BYTES_PER_BUCKET)}
    buckets = buckets_for(batch.values(), 2)
    placed = spread(batch, buckets)
    assert buckets == 12
    assert (len(placed[1]), len(placed[2]), len(placed[3])) == (6, 1, 6)


@given(batches, st.integers(1, 64))
def test_a_large_batch_keeps_all_cores_busy_and_no_worker_holds_too_much(batch: dict[int, Size], cores: int) -> None:
    buckets = buckets_for(batch.values(), cores)
    total = Size(sum(each.rows for each in batch.values()), sum(each.bytes for each in batch.values()))
    if total.small(SPLIT_FROM):
        assert 1 <= buckets <= cores
        return
    assert buckets % cores == 0
    assert total.rows <= buckets * ROWS_PER_BUCKET
    assert total.bytes <= buckets * BYTES_PER_BUCKET
    fewer = buckets - cores
    assert fewer == 0 or total.rows > fewer * ROWS_PER_BUCKET or total.bytes > fewer * BYTES_PER_BUCKET


def test_a_small_batch_is_one_task_unless_it_is_of_many_tables() -> None:
    assert buckets_for([Size(1_000, 1 << 20)], 8) == 1
    assert buckets_for([Size(5, 1 << 10)] * 200, 8) == 8
