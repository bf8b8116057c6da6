"""The table of states in the documentation is the one that decides."""

from __future__ import annotations

from pathlib import Path

from tools.statetable import STATES, state_table, with_state_table

from headwater.state.transitions import TRANSITIONS

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def test_the_documentation_has_every_event_and_what_it_makes_of_each_state() -> None:
    assert PAGE.read_text() == with_state_table(PAGE.read_text()), "run python -m tools.statetable"
    assert len(state_table().splitlines()) == len(TRANSITIONS) + 2
    assert {state for each in TRANSITIONS.values() for state in each} == set(STATES)
