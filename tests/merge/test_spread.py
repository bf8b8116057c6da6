"""Tables find their slots: all of them, none twice in one, the work shared out evenly."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headwater.merge.spread import BYTES_PER_SLOT, ROWS_PER_SLOT, SPLIT_FROM, slots_for, spread

sizes = st.one_of(st.integers(1, 50), st.integers(1, SPLIT_FROM), st.integers(SPLIT_FROM, 5_000_000))
SMALL = BYTES_PER_SLOT - 1
batches = st.dictionaries(st.integers(1, 10_000), sizes, min_size=1, max_size=60)


@given(batches, st.integers(1, 40))
def test_every_table_has_slots_and_all_of_them_are_different_ones(rows: dict[int, int], slots: int) -> None:
    placed = spread(rows, SMALL, slots)
    assert placed.keys() == rows.keys()
    for chosen in placed.values():
        assert 1 <= len(chosen) <= slots
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= set(range(slots))


@given(batches, st.integers(1, 40))
def test_a_small_table_is_never_split_into_two_files(rows: dict[int, int], slots: int) -> None:
    placed = spread(rows, SMALL, slots)
    assert all(len(placed[table]) == 1 for table, count in rows.items() if count < SPLIT_FROM)


@given(batches, st.integers(1, 40))
def test_no_slot_has_much_more_to_do_than_its_share(rows: dict[int, int], slots: int) -> None:
    load: Counter[int] = Counter()
    for table, chosen in spread(rows, SMALL, slots).items():
        for slot in chosen:
            load[slot] += rows[table] // len(chosen)
    share = sum(rows.values()) / slots
    assert max(load.values()) <= 2.5 * share + SPLIT_FROM


@given(batches, st.integers(1, 40))
def test_the_same_batch_is_always_placed_the_same(rows: dict[int, int], slots: int) -> None:
    """A task that Spark tries again must send a key to the slot where the first attempt sent it."""
    assert spread(dict(reversed(rows.items())), SMALL, slots) == spread(rows, SMALL, slots)


def test_many_equal_small_tables_are_dealt_out_evenly() -> None:
    load = Counter(slot for (slot,) in spread(dict.fromkeys(range(200), 50), SMALL, 8).values())
    assert set(load.values()) == {25}


def test_a_table_alone_uses_every_slot_if_it_is_large() -> None:
    assert sorted(spread({1: 1_000_000}, SMALL, 8)[1]) == list(range(8))


def test_few_rows_are_split_if_they_are_huge() -> None:
    slots = slots_for(1_000, 10 * BYTES_PER_SLOT, 2, 2)
    placed = spread({1: 990, 2: 10}, 10 * BYTES_PER_SLOT, slots)
    assert (len(placed[1]), len(placed[2])) == (10, 1)


@given(st.integers(0, 50_000_000), st.integers(0, 1 << 36), st.integers(1, 5000), st.integers(1, 64))
def test_a_large_batch_keeps_all_cores_busy_and_no_worker_holds_too_much(
    rows: int, size: int, tables: int, cores: int
) -> None:
    slots = slots_for(rows, size, tables, cores)
    if rows < SPLIT_FROM and size <= SMALL:
        assert 1 <= slots <= cores
        return
    assert slots % cores == 0
    assert rows <= slots * ROWS_PER_SLOT
    assert size <= slots * BYTES_PER_SLOT
    fewer = slots - cores
    assert fewer == 0 or rows > fewer * ROWS_PER_SLOT or size > fewer * BYTES_PER_SLOT


def test_a_small_batch_is_one_task_unless_it_is_of_many_tables() -> None:
    assert slots_for(1_000, 1 << 20, 1, 8) == 1
    assert slots_for(1_000, 1 << 20, 200, 8) == 8
