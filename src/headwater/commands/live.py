"""What live pages on a terminal are made of: those of the demo and of `run` look alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

__all__ = ["clock", "facts", "listing", "panel", "state_text"]

_STATES = {
    **{"STREAMING": "green", "RUNNING": "green", "ERRORED": "bold red", "STOPPED": "bold red", "PENDING": "dim"},
    **{"healthy": "green", "buffering": "green", "flushing": "green", "error": "bold red"},
}


def panel(headline: str, seconds: float, parts: Sequence[RenderableType]) -> Panel:
    """The page: what is going on, for how long, and below it these parts with a line between them."""
    spaced = [each for part in parts for each in (part, Text())]
    title = Text(f"headwater · {headline} · {clock(seconds)}")
    return Panel(Group(*spaced[:-1]), title=title, title_align="left", padding=(1, 2))


def facts(rows: Iterable[Sequence[str]]) -> Table:
    """Lines of a name and what there is to know of it."""
    grid = Table.grid(padding=(0, 3))
    for row in rows:
        grid.add_row(*map(Text, row))
    return grid


def listing(titles: Sequence[str], lines: Iterable[Sequence[str | Text]], right: Iterable[str] = ()) -> Table:
    """A line for each of something, with the columns named `right` to the right."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", no_wrap=True)
    for line in lines:
        table.add_row(*(Text(each) if isinstance(each, str) else each for each in line))
    return table


def state_text(state: str, more: str = "") -> Text:
    """A state in its colour."""
    return Text(state + more, style=_STATES.get(state, "yellow"))


def clock(seconds: float) -> str:
    """`01:15`, in minutes and seconds."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
