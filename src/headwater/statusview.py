"""The status on a terminal, once or again and again, and as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headwater import render
from headwater.status import GroupStatus, Status, TableStatus

__all__ = ["json_of", "show"]

_NUMBERS = ("rows", "inserted", "updated", "deleted", "quarantined")
_TABLE = ("table", "state", *_NUMBERS, "position", "lake table", "note")
_STYLES = {"STREAMING": "green", "ERRORED": "bold red", "PAUSED": "yellow"}


def show(ask: Callable[[], Status], *, as_json: bool, watch: bool) -> bool:
    """Print the status; with `watch` every second until interrupted. Whether everything was well, the last time."""
    console = Console()
    now = ask()
    if watch and console.is_terminal and not as_json:
        with Live(_rendered(now), console=console, auto_refresh=False) as live:
            try:
                while True:
                    time.sleep(1)
                    now = ask()
                    live.update(_rendered(now), refresh=True)
            except KeyboardInterrupt:
                return now.healthy
    while True:
        if as_json:
            click.echo(json_of(now, indent=None if watch else 2))
        else:
            _print(now, console)
        if not watch:
            return now.healthy
        try:
            time.sleep(1)
        except KeyboardInterrupt:
            return now.healthy
        now = ask()


def json_of(status: Status, indent: int | None = 2) -> str:
    return json.dumps(asdict(status) | {"healthy": status.healthy}, default=str, indent=indent)


def _print(status: Status, console: Console) -> None:
    if console.is_terminal:
        console.print(_rendered(status))
        return
    for group in status.groups:
        print(_headline(group), file=console.file)
        if group.tables:
            print(render.as_text(_TABLE, _rows(group)), file=console.file)
    for each in status.leftovers:
        print(each, file=console.file)


def _rendered(status: Status) -> RenderableType:
    parts: list[RenderableType] = []
    for group in status.groups:
        table = Table(title=_headline(group), title_justify="left", title_style="")
        for column in _TABLE:
            table.add_column(column, justify="right" if column in _NUMBERS else "left")
        for row in _rows(group):
            table.add_row(*(Text(str(cell), style=_STYLES.get(str(cell), "")) for cell in row))
        parts.append(table)
    parts += [Text(str(each), style="yellow") for each in status.leftovers]
    return Group(*parts) if parts else Text("no group has run yet")


def _headline(group: GroupStatus) -> str:
    slot = {True: "read", False: "not being read", None: "MISSING"}[group.slot_active]
    parts = [
        f"group {group.name} → lake {group.lake}",
        f"snapshot {group.snapshot_id} is the source at {group.delivered_lsn}",
        f"slot {slot}, {_size(group.capture_lag_bytes)} of WAL behind",
        f"{group.staged_rows} changes staged, the oldest for {group.lag_seconds:.1f} s",
    ]
    return "; ".join(parts) + (f"\nERROR: {group.error}" if group.error else "")


def _rows(group: GroupStatus) -> list[tuple[Any, ...]]:
    rows = []
    for table in group.tables:
        counts = (table.rows, table.inserted, table.updated, table.deleted, table.quarantined)
        rows.append((table.table, table.state, *counts, table.position or "", table.lake_table, _note(table)))
    return rows


def _note(table: TableStatus) -> str:
    notes = []
    if table.resync:
        notes.append(f"copied again, because {table.resync}")
    if table.state == "SNAPSHOT":
        total = f" of about {table.copy_total}" if table.copy_total else ""
        notes.append(f"copied {table.copied_rows}{total} rows")
    elif table.error:
        notes.append(table.error + (f" (tried again at {table.retry_at:%H:%M:%S})" if table.retry_at else ""))
    return "; ".join(notes)


def _size(size: int | None) -> str:
    if size is None:
        return "?"
    for unit in ("B", "kB", "MB"):
        if size < 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GB"
