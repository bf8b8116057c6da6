"""What the demo shows while it runs: a live page on a terminal, a line every few seconds anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from headwater.commands.live import clock, facts, listing, panel, state_text
from headwater.words import counted, size_text

__all__ = ["CountLine", "Frame", "View", "line", "page"]

_EVERY = 3.0  # seconds between two plain lines


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
    known = facts(
        [
            ("source", f"{frame.written:,.0f} changes/s", f"WAL at {frame.source_lsn}"),
            ("lake", f"{frame.delivered:,.0f} changes/s", _snapshot(frame)),
            ("lag", f"{frame.lag_seconds:.1f} s", f"{size_text(frame.lag_bytes)} of WAL, {_staged(frame)}"),
        ]
    )
    tables = _counts(("table", "state", "rows in source", "rows in lake"), frame.tables)
    companies = _counts(("orders of", "status", "rows in source", "rows in its lake"), frame.companies)
    return panel(frame.headline, frame.elapsed, (known, tables, companies))


def _counts(titles: Sequence[str], lines: Iterable[CountLine]) -> Table:
    rows = ((each.name, state_text(each.state), f"{each.source_rows:,}", f"{each.lake_rows:,}") for each in lines)
    return listing(titles, rows, right=titles[2:])


def _staged(frame: Frame) -> str:
    return f"{counted(frame.staged_segments, 'segment')} staged"


def line(frame: Frame) -> str:
    """The frame in one line of text."""
    source, lake = (sum(getattr(each, side) for each in frame.tables) for side in ("source_rows", "lake_rows"))
    return (
        f"{clock(frame.elapsed)} {frame.headline}: {frame.written:,.0f} changes/s in, {frame.delivered:,.0f}/s out,"
        f" lag {frame.lag_seconds:.1f} s / {size_text(frame.lag_bytes)},"
        f" {_staged(frame)},"
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
