"""Keys are found among others, whichever way they are searched."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hashed import alike

from headwater.change import BaseType, Column
from headwater.values.keys import key_bytes, key_hashes
from headwater.values.keyset import KeySet
from headwater.values.types import lake_type

keys = st.lists(st.binary(max_size=20) | st.integers(0, 99).map(lambda n: n.to_bytes(8)), max_size=40)


@given(st.sets(st.binary(max_size=3) | st.integers(0, 99).map(lambda n: n.to_bytes(8))), keys)
def test_both_ways_find_every_place_of_a_key_and_no_other(wanted: set[bytes], here: list[bytes]) -> None:
    there = pa.array(here, pa.binary())
    expected = [place for place, key in enumerate(here) if key in wanted]
    for hashed_from in (0, 10**6):
        found = KeySet(pa.array(sorted(wanted), pa.binary()), hashed_from).among(there)
        assert found.tolist() == expected


numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 20)


@given(st.sets(numbers), st.lists(numbers, max_size=60), st.booleans())
def test_numbers_are_found_in_any_order_and_as_often_as_they_are_there(
    wanted: set[int], here: list[int], in_order: bool
) -> None:
    here = sorted(here) if in_order else here
    for hashed_from in (0, 10**6):
        found = KeySet(_keys(sorted(wanted)), hashed_from).among(_keys(here))
        assert found.tolist() == [place for place, number in enumerate(here) if number in wanted]


def _keys(values: list[int]) -> pa.Array:
    return key_bytes(
        [pa.array(values, pa.int64())], [lake_type(Column("id", 20, -1, True, 1, BaseType(20, -1, 0, "int8")))]
    )


def test_two_keys_with_one_hash_are_reported_apart() -> None:
    long, short = alike()
    hashes = key_hashes(pa.array([long, short], pa.binary()))
    assert hashes[0] == hashes[1]
    assert long != short
    for wanted, found in (([long], [0, 2]), ([short], [1]), ([long, short], [0, 1, 2]), ([b"x"], [])):
        here = pa.array([long, short, long], pa.binary())
        assert KeySet(pa.array(wanted, pa.binary()), 0).among(here).tolist() == found


@pytest.mark.parametrize("count", [100, 50_000])
def test_many_keys_are_found_as_few_are(count: int) -> None:
    numbers = np.arange(0, 3 * count, 3)
    wanted = pa.array([int(n).to_bytes(8) for n in numbers], pa.binary())
    here = pa.array([n.to_bytes(8) for n in range(1000)], pa.binary())
    assert KeySet(wanted).among(here).tolist() == [n for n in range(1000) if n % 3 == 0 and n < 3 * count]
