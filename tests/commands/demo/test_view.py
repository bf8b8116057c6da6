"""The demo's page and its plain lines."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from headwater.commands.demo.view import CountLine, Frame, View, line, page

FRAME = Frame(
    headline="mirroring",
    elapsed=75.4,
    written=312.4,
    delivered=298.0,
    lag_bytes=1_234_567,
    lag_seconds=1.25,
    staged_segments=1,
    snapshot=42,
    snapshot_lsn="0/1A2B3C",
    source_lsn="0/1A2FFF",
    tables=(CountLine("orders", "STREAMING", 12_345, 12_300), CountLine("customers", "SNAPSHOT", 500, 0)),
    companies=(CountLine("acme", "healthy", 7_345, 7_340), CountLine("globex", "lagging", 5_000, 4_321)),
)


def test_the_page_shows_everything_there_is_to_know() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=110)
    with console.capture() as captured:
        console.print(page(FRAME), style=None)
    shown = captured.get()
    for fact in ("mirroring", "01:15", "312 changes/s", "298 changes/s", "1.2 s", "1 MB", "1 segment staged"):
        assert fact in shown
    for fact in ("snapshot 42 at 0/1A2B3C", "0/1A2FFF", "orders", "STREAMING", "12,345", "12,300", "SNAPSHOT"):
        assert fact in shown
    for fact in ("orders of", "rows in its lake", "acme", "healthy", "7,345", "7,340", "globex", "lagging", "4,321"):
        assert fact in shown


def test_the_line_says_the_same_shorter() -> None:
    assert line(FRAME) == (
        "01:15 mirroring: 312 changes/s in, 298/s out, lag 1.2 s / 1 MB, 1 segment staged,"
        " rows 12,845 in source, 12,300 in lake, snapshot 42 at 0/1A2B3C;"
        " orders routed: acme 7,340 of 7,345, globex 4,321 of 5,000"
    )


def test_before_the_first_delivery_there_is_no_snapshot() -> None:
    assert "no snapshot yet" in line(replace(FRAME, snapshot=None, snapshot_lsn=None))
    assert " in lake, at 0/1A2B3C" in line(replace(FRAME, snapshot=None))  # snapshots of single tables


def test_without_a_terminal_there_is_a_line_every_few_seconds() -> None:
    out = io.StringIO()
    with View(Console(file=out)) as view:
        for _ in range(50):
            view.show(FRAME)
    assert out.getvalue() == line(FRAME) + "\n"


def test_on_a_terminal_every_frame_is_drawn() -> None:
    out = io.StringIO()
    with View(Console(file=out, force_terminal=True, width=110)) as view:
        for snapshot in (1, 2, 3):
            view.show(replace(FRAME, snapshot=snapshot))
    assert all(f"snapshot {snapshot} at" in out.getvalue() for snapshot in (1, 2, 3))


@pytest.mark.parametrize(("size", "shown"), [(0, "0 B"), (999, "999 B"), (1500, "1 kB"), (5 << 30, "5 GB")])
def test_sizes_are_readable(size: int, shown: str) -> None:
    assert f" / {shown}," in line(replace(FRAME, lag_bytes=size))
