"""How far a copy is, in words."""

from __future__ import annotations

import pytest

from headwater.words import progress


@pytest.mark.parametrize(
    ("copied", "total", "rate", "said"),
    [
        (0, 10_000_000, 0.0, "copied 0 of about 10,000,000 rows so far"),
        (
            1_200_000,
            10_000_000,
            100_000.0,
            "copied 1,200,000 of about 10,000,000 rows so far: 100,000 rows/s, about 1 min 28 s left",
        ),
        (7, 7, 3.5, "copied 7 of about 7 rows so far: 4 rows/s"),  # never analyzed: how many there are is not known
    ],
)
def test_it_says_how_fast_it_is_and_how_long_it_will_take(copied: int, total: int, rate: float, said: str) -> None:
    assert progress(copied, total, rate) == said
