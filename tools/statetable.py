"""The table of docs/operations.md that says what each event makes of each state, from the function that decides it.

`python -m tools.statetable` writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headwater.state.rows import TableState
from headwater.state.transitions import (
    TRANSITIONS,
    CaughtUp,
    Copied,
    CopyBegun,
    Displaced,
    Event,
    Failed,
    Paused,
    RecopyRequested,
    Removed,
    Repositioned,
    Resumed,
    Retried,
    Stopped,
    TableDropped,
    TookOver,
)

__all__ = ["state_table", "with_state_table"]

BEGIN, END = "<!-- states: python -m tools.statetable writes this table -->", "<!-- /states -->"
STATES: tuple[TableState, ...] = ("PENDING", "SNAPSHOT", "CATCHUP", "STREAMING", "ERRORED", "PAUSED", "REMOVED")

_WORDS: dict[type[Event], str] = {
    CopyBegun: "a copy begins",
    Copied: "the copy is in the lake",
    CaughtUp: "it has come up to the others",
    Repositioned: "the lake has it elsewhere than was noted",
    Failed: "it fails, and is tried again later",
    Stopped: "it cannot go on without help",
    Retried: "its waiting time is over",
    Resumed: "`table resume`, or it is wanted again",
    Paused: "`table pause`",
    Removed: "`table remove`, or the config has it no longer",
    RecopyRequested: "`table resync`, or only a copy helps",
    TableDropped: "the source drops it",
    TookOver: "it takes the place of another table",
    Displaced: "another table has taken its mirror",
}


def state_table() -> str:
    """A row for each event: the state that follows each, `·` where it stays, blank where the event cannot happen."""
    lines = [f"| | {' | '.join(f'`{state}`' for state in STATES)} |", "|---" * (len(STATES) + 1) + "|"]
    for event, words in _WORDS.items():
        lines.append(f"| {words} | {' | '.join(_cell(event, state) for state in STATES)} |")
    return "\n".join(lines)


def _cell(event: type[Event], state: TableState) -> str:
    becomes = TRANSITIONS[event].get(state)
    return "" if becomes is None else "·" if becomes == state else f"`{becomes}`"


def with_state_table(page: str) -> str:
    """The page with the table in it as it should be."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{state_table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or ["docs/operations.md"]):
        path.write_text(with_state_table(path.read_text()))
