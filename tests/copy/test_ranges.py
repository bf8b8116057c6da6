"""What is left to read of a table of which some pages are done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.change import TableName
from headwater.copy.reading import _cut, _Leaf


@given(
    pages=st.integers(0, 40),
    size=st.integers(1, 9),
    done=st.lists(st.integers(0, 45), max_size=8, unique=True),
    to_end=st.booleans(),
)
def test_what_is_done_and_what_is_left_of_a_table_are_all_of_its_pages_once(
    pages: int, size: int, done: list[int], to_end: bool
) -> None:
    edges = sorted(done)
    finished: list[tuple[int, int | None]] = list(zip(edges[::2], edges[1::2], strict=False))
    if to_end and edges:
        finished.append((edges[-1], None))
    left = _cut(_Leaf(1, TableName("public", "t"), pages, 2.5), size, finished)
    found = sorted([*finished, *((each.first_page, each.end_page) for each in left)], key=lambda each: each[0])
    assert found[0][0] == 0
    assert [end for _, end in found[:-1]] == [first for first, _ in found[1:]]
    assert found[-1][1] is None  # however far it goes
