"""A mirror that is left alone for some minutes: a short run of `make soak ARGS="--hours 1"`, with its own verdicts.

These are about live files, the table whose rows change all the time, and every row in the end. Memory, the times of
deliveries and of a scan are printed, and judged in runs of a quarter of an hour and more.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from soak.endurance import endure

MINUTES, RATE = 4.0, 350.0


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_in_some_minutes_no_files_pile_up_and_all_rows_arrive(tmp_path: Path) -> None:
    assert endure(tmp_path, MINUTES / 60, RATE) == []
