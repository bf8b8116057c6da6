"""Where two histories of a server's WAL part."""

from __future__ import annotations

import pytest

from headwater.change import Lsn
from headwater.postgres.timeline import Timeline

HISTORY = """
# written by a server
1\t0/3000060\tno recovery target specified

2\t0/5000110\tbefore 2026-01-01 12:00:00+00
"""


def test_a_history_file_is_read() -> None:
    assert str(Timeline.read(3, HISTORY)) == "1@0/3000060 2@0/5000110 3"
    assert str(Timeline.read(1, "")) == "1"


@pytest.mark.parametrize("text", ["1", "1@0/3000060 2", "1@0/3000060 2@A/5000110 7"])
def test_a_timeline_is_read_as_it_was_written(text: str) -> None:
    assert str(Timeline.parse(text)) == text


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        pytest.param("1", "1", None, id="the same"),
        pytest.param("1@0/10 2", "1@0/10 2", None, id="the same after a promotion"),
        pytest.param("1", "1@0/10 2", "0/10", id="promoted once"),
        pytest.param("1", "1@0/10 2@0/20 3", "0/10", id="promoted twice"),
        pytest.param("1@0/10 2", "1@0/10 2@0/20 3", "0/20", id="promoted once more"),
        pytest.param("1@0/10 2", "1@0/30 3", "0/10", id="another standby, which had more"),
        pytest.param("1@0/30 2", "1@0/10 3", "0/10", id="another standby, which had less"),
        pytest.param("1@0/10 2", "1@0/30 2", "0/10", id="two standbys, promoted to the same number"),
        pytest.param("1@0/10 2@0/20 4", "1@0/10 3", "0/10", id="two branches of the same beginning"),
        pytest.param("2", "3", "0/0", id="nothing in common"),
    ],
)
def test_two_timelines_have_the_wal_before_the_first_fork_in_common(one: str, other: str, common: str | None) -> None:
    expected = None if common is None else Lsn.parse(common)
    assert Timeline.parse(one).common(Timeline.parse(other)) == expected
    assert Timeline.parse(other).common(Timeline.parse(one)) == expected
