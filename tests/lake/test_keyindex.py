"""A key index finds the rows that reading all keys finds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hashed import alike

from headwater.lake.keyindex import KeyIndex, index_parts, index_schema
from headwater.values.keyset import KeySet

few = st.binary(max_size=2) | st.sampled_from(alike()) | st.integers(0, 30).map(lambda n: n.to_bytes(16))
numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 20)
eight = numbers.map(lambda n: n.to_bytes(8, signed=True))


@given(st.sets(few), st.lists(st.lists(few, max_size=20)), st.booleans())
def test_a_key_is_found_wherever_it_is_even_if_others_have_its_hash(
    wanted: set[bytes], here: list[list[bytes]], with_ids: bool
) -> None:
    compare(wanted, here, numbers=False, with_ids=with_ids)


@given(st.sets(eight), st.lists(st.lists(eight, max_size=20)), st.booleans())
def test_numbers_are_found_without_a_hash(wanted: set[bytes], here: list[list[bytes]], with_ids: bool) -> None:
    compare(wanted, here, numbers=True, with_ids=with_ids)


def compare(wanted: set[bytes], here: Sequence[Sequence[bytes]], *, numbers: bool, with_ids: bool) -> None:
    """An index of parts that are closed after ten rows, of a file in which every third row has no key."""
    keys = KeySet(pa.array(sorted(wanted), pa.binary()))
    every = [key for piece in here for key in piece]
    firsts = np.cumsum([0, *map(len, here)])
    ids = pa.array(range(1000, 1000 - 3 * len(every), -1), pa.int64()) if with_ids else None
    pieces = [
        (np.arange(first, first + len(piece)) * 3, pa.array(piece, pa.binary()))
        for first, piece in zip(firsts[:-1].tolist(), here, strict=True)
    ]
    schema = index_schema(numbers=numbers, row_ids=with_ids)
    found = KeyIndex(list(index_parts(pieces, ids, schema, part_rows=10))).among(keys)
    expected = [place for place, key in enumerate(every) if key in wanted]
    assert found.at.tolist() == [place * 3 for place in expected]
    assert found.keys.to_pylist() == [every[place] for place in expected]
    assert (found.row_ids is None) == (not with_ids or not here)
    if found.row_ids is not None:
        assert found.row_ids.to_pylist() == [1000 - place * 3 for place in expected]


@pytest.mark.parametrize("width", [16, 17])
def test_a_search_in_many_keys_of_one_width_finds_each(width: int) -> None:
    keys = [number.to_bytes(8, "little") * (width // 8) + b"x" * (width % 8) for number in range(5000)]
    there = pa.array(keys, pa.binary())
    index = KeyIndex(list(index_parts([(np.arange(5000), there)], None, index_schema(numbers=False, row_ids=False))))
    found = index.among(KeySet(there.take(pa.array(range(0, 5000, 7)))))
    assert found.at.tolist() == list(range(0, 5000, 7))
