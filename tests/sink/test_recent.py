"""What was read is not read again, as long as there is room for it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.lake.recent import Recent


class Reads:
    """Arrays of some size by name, and how often each was read."""

    def __init__(self, limit: int) -> None:
        self.done: list[str] = []
        self.recent: Recent[pa.Array] = Recent(limit, lambda array: [array])

    def get(self, name: str, size: int = 10_000) -> int:
        def read() -> pa.Array:
            self.done.append(name)
            return pa.array(np.full(size, ord(name), np.uint8))

        array = self.recent.get(name, read)
        assert (array[0].as_py(), len(array)) == (ord(name), size)
        return len(self.done)


def test_what_was_read_is_read_once() -> None:
    reads = Reads(100_000)
    for name in "abacab":
        reads.get(name)
    assert reads.done == list("abc")


def test_what_was_asked_for_longest_ago_is_forgotten_first() -> None:
    reads = Reads(25_000)  # room for two
    for name in "abacbc":
        reads.get(name)
    assert reads.done == list("abcb")  # at `c`, `b` had to go; then `a`


def test_what_is_larger_than_all_the_room_is_not_kept_and_throws_nothing_out() -> None:
    reads = Reads(25_000)
    for name, size in (("a", 10_000), ("z", 30_000), ("a", 10_000), ("z", 30_000)):
        reads.get(name, size)
    assert reads.done == list("azz")
