"""What the demo shows while it runs: a live page on a terminal, a line every few seconds anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headwater.words import counted, size_text

__all__ = ["CountLine", "Frame", "View", "line", "page"]

_EVERY = 3.0  # seconds between two plain lines
_STATES = {
    **{"STREAMING": "green", "ERRORED": "bold red", "PENDING": "dim"},
    **{"healthy": "green", "buffering": "green", "flushing": "green", "error": "bold red"},
}


@dataclass(frozen=True, slots=True)
class CountLine:
    """Rows of a table, or orders of a company: in the source, and in the lake that they go to."""

    name: str
    state: str
    source_rows: int
    lake_rows: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One look at everything."""

    headline: str  # what is going on: starting, mirroring, draining
    elapsed: float
    written: float  # row changes a second in the source
    delivered: float  # net row changes a second into the lake
    lag_bytes: int
    lag_seconds: float
    staged_segments: int
    snapshot: int | None
    snapshot_lsn: str | None
    source_lsn: str
    tables: tuple[CountLine, ...]
    companies: tuple[CountLine, ...]


def page(frame: Frame) -> RenderableType:
    """The frame as a panel."""
    facts = Table.grid(padding=(0, 3))
    facts.add_row("source", f"{frame.written:,.0f} changes/s", f"WAL at {frame.source_lsn}")
    facts.add_row("lake", f"{frame.delivered:,.0f} changes/s", _snapshot(frame))
    facts.add_row(
        "lag",
        f"{frame.lag_seconds:.1f} s",
        f"{size_text(frame.lag_bytes)} of WAL, {counted(frame.staged_segments, 'segment')} staged",
    )
    tables = _counts(("table", "state", "rows in source", "rows in lake"), frame.tables)
    companies = _counts(("orders of", "status", "rows in source", "rows in its lake"), frame.companies)
    title = f"headwater · {frame.headline} · {_clock(frame.elapsed)}"
    return Panel(Group(facts, Text(), tables, Text(), companies), title=title, title_align="left", padding=(1, 2))


def _counts(titles: Iterable[str], lines: Iterable[CountLine]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, justify="right" if title.startswith("rows") else "left")
    for each in lines:
        state = Text(each.state, style=_STATES.get(each.state, "yellow"))
        table.add_row(Text(each.name), state, f"{each.source_rows:,}", f"{each.lake_rows:,}")
    return table


def line(frame: Frame) -> str:
    """The frame in one line of text."""
    source, lake = (sum(getattr(each, side) for each in frame.tables) for side in ("source_rows", "lake_rows"))
    return (
        f"{_clock(frame.elapsed)} {frame.headline}: {frame.written:,.0f} changes/s in, {frame.delivered:,.0f}/s out,"
        f" lag {frame.lag_seconds:.1f} s / {size_text(frame.lag_bytes)},"
        f" {counted(frame.staged_segments, 'segment')} staged,"
        f" rows {source:,} in source, {lake:,} in lake, {_snapshot(frame)};"
        f" orders routed: {_routed(frame)}"
    )


def _routed(frame: Frame) -> str:
    return ", ".join(f"{each.name} {each.lake_rows:,} of {each.source_rows:,}" for each in frame.companies)


class View(AbstractContextManager["View"]):
    """Shows frame after frame until it is left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._next = 0.0

    def __enter__(self) -> View:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def show(self, frame: Frame) -> None:
        if self._live:
            self._live.update(page(frame), refresh=True)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            print(line(frame), file=self._console.file, flush=True)


def _snapshot(frame: Frame) -> str:
    if frame.snapshot_lsn is None:
        return "no snapshot yet"
    return (
        f"at {frame.snapshot_lsn}" if frame.snapshot is None else f"snapshot {frame.snapshot} at {frame.snapshot_lsn}"
    )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
