"""The status on a terminal, once or again and again, and as JSON."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from headwater.commands.maintainview import chores_text
from headwater.commands.render import fitting, wrapped
from headwater.commands.routeview import route_lines
from headwater.status import STALE_SECONDS, GroupStatus, PartStatus, Status, TableStatus, plain
from headwater.words import counted, duration_text, progress, short_duration, size_text

__all__ = ["coloured", "how_far", "json_of", "show"]

_WIDTH = 80  # of a pipe; a terminal has its own
_BAR = 20  # characters of a whole copy

_STYLES = {
    "RUNNING": "green",
    "STREAMING": "green",
    "healthy": "green",
    "STARTING": "yellow",
    "PAUSED": "yellow",
    "REMOVED": "yellow",
    "lagging": "yellow",
    "paused": "yellow",
    "STOPPED": "bold red",
    "ERRORED": "bold red",
    "ERROR": "bold red",
    "WARNING": "yellow",
}


def show(ask: Callable[[], Status], *, as_json: bool, watch: bool) -> Status:
    """Print the status; with `watch` every second until interrupted. Returns the last one."""
    console = Console()
    now = ask()
    if watch and console.is_terminal and not as_json:
        with Live(coloured(now, console.width), console=console, auto_refresh=False) as live:
            try:
                while True:
                    time.sleep(1)
                    now = ask()
                    live.update(coloured(now, console.width), refresh=True)
            except KeyboardInterrupt:
                return now
    while True:
        if as_json:
            click.echo(json_of(now, indent=None if watch else 2))
        else:
            _print(now, console)
        if not watch:
            return now
        try:
            time.sleep(1)
        except KeyboardInterrupt:
            return now
        now = ask()


def json_of(status: Status, indent: int | None = 2) -> str:
    return json.dumps(plain(status), default=str, ensure_ascii=False, indent=indent)


def _print(status: Status, console: Console) -> None:
    if console.is_terminal:
        console.print(coloured(status, console.width), soft_wrap=True)
    else:
        print("\n".join(_lines(status, _WIDTH)), file=console.file)


def coloured(status: Status, width: int = _WIDTH) -> Text:
    """As a terminal shows it."""
    text = Text("\n".join(_lines(status, width)))
    for word, style in _STYLES.items():
        text.highlight_regex(rf"\b{word}\b", style)
    return text


def _lines(status: Status, width: int) -> Iterator[str]:
    if status.source_error:
        yield f"ERROR: the source is unreachable: {status.source_error}"
    yield from (f"page {address}" for address in status.servers)
    for group in status.groups:
        yield from wrapped(_facts(group, known=status.source_error is None), width)
        yield from (f"  ERROR: {part.error}" for part in (group.capture, group.delivery) if part.error)
        yield from wrapped((f"  WARNING: {each}" for each in group.warnings), width)
        if group.tables:
            yield ""
            yield from _table(group, width)
        yield from (f"{each.table}: {note}" for each in group.tables for note in _notes(each))
        yield from (f"{each.table} is not mirrored: {each.reason}\n  hint: {each.hint}" for each in group.skipped)
        yield ""
    for route in status.routes:
        yield from route_lines(route, width)
        yield ""
    yield from map(str, status.leftovers)


def _facts(group: GroupStatus, *, known: bool) -> Iterator[str]:
    yield f"group {group.name} → lake {group.lake}: {group.state}, {how_far(group)}"
    yield f"  capture {_part(group.capture)}{_slot(group, known=known)}"
    yield f"  delivery {_part(group.delivery)}{_staged(group)}"
    if kept := _log(group):
        yield f"  log {kept}"
    if group.schema_changes:
        verb = "reported by" if group.schema_changes == "event triggers" else "read from the"
        yield f"  schema changes are {verb} {group.schema_changes}"
    if group.tables:
        yield f"  {_states(group.tables)}"
    if last := _last_maintenance(group):
        yield f"  {last}"


def _last_maintenance(group: GroupStatus) -> str:
    found = [(each.last_maintenance, each) for each in group.tables if each.last_maintenance]
    if not found:
        return ""
    last, table = max(found, key=lambda pair: pair[0].at)
    return f"last maintenance {last.at:%Y-%m-%d %H:%M:%S}: {table.lake_table}, {chores_text(last.done)}"


def how_far(group: GroupStatus) -> str:
    """A group's lag, and what its lake shows."""
    if group.delivered_lsn is None:
        return "no snapshot yet"
    snapshot = "" if group.snapshot_id is None else f"snapshot {group.snapshot_id} "
    return f"{_lag(group)}, {snapshot}at {group.delivered_lsn}"


def _states(tables: Sequence[TableStatus]) -> str:
    """`3 tables STREAMING`, or how many are in which state."""
    states = Counter(each.state for each in tables)
    if len(states) == 1:
        return f"{counted(len(tables), 'table')} {tables[0].state}"
    return f"{counted(len(tables), 'table')}: " + ", ".join(f"{n:,} {state}" for state, n in states.most_common())


def _lag(of: GroupStatus | TableStatus) -> str:
    if of.lag_seconds is None or of.lag_bytes is None:
        return "lag not known"
    return f"lag {duration_text(of.lag_seconds)}" + (f" ({size_text(of.lag_bytes)})" if of.lag_bytes else "")


def _part(part: PartStatus) -> str:
    if part.state == "STARTING":
        return part.state
    if part.pid is None:
        return f"{part.state}, has never run"
    who = f"pid {part.pid} on {part.host}"
    if part.state == "RUNNING":
        silent = part.heartbeat_seconds or 0.0
        return f"{part.state}, {who}" + (
            f", no heartbeat for {duration_text(silent)}" if silent > STALE_SECONDS else ""
        )
    if part.stopped_at is not None:
        return f"{part.state} since {part.stopped_at:%Y-%m-%d %H:%M:%S}"
    return f"{part.state}, {who} was killed"


def _slot(group: GroupStatus, *, known: bool) -> str:
    if not known or group.slot is None:
        return ""
    if group.slot_active is None:
        return f"; slot {group.slot} is MISSING"
    limit = f" (at most {size_text(group.wal_limit_bytes)})" if group.wal_limit_bytes is not None else ""
    return f"; slot keeps {size_text(group.wal_bytes or 0)} of WAL{limit}"


def _log(group: GroupStatus) -> str:
    """Its size, and who is furthest behind in it."""
    size = size_text(group.log_bytes) if group.log_bytes else ""
    if group.log_max_bytes is not None:
        size = f"{size_text(group.log_bytes)} of at most {size_text(group.log_max_bytes)}"
    oldest = group.oldest_change
    if oldest is None:
        return size
    state = f" ({oldest.state})" if oldest.state else ""
    age = duration_text(oldest.seconds)
    return f"{size}; its oldest change, {age} old at {oldest.lsn}, waits for {oldest.held_by}{state}"


def _staged(group: GroupStatus) -> str:
    return f"; {counted(group.staged_rows, 'change')} staged" if group.staged_rows else ""


def _table(group: GroupStatus, width: int) -> list[str]:
    """The tables, with as many columns as there is room for: counts of changes go first, --json always has them."""
    made_of = ("files", "small", "size", "dead rows", "in catalog")
    return fitting(_columns(group), width, (made_of, ("inserted", "updated", "deleted"), ("position",)))


def _columns(group: GroupStatus) -> dict[str, list[str]]:
    """What is worth a column: not what is empty, or the same for all and said above."""
    tables = group.tables
    columns = {"table": [each.table for each in tables]}
    if len({each.state for each in tables}) > 1:
        columns["state"] = [each.state for each in tables]
    columns["rows"] = [f"{each.rows:,}" for each in tables]
    for name in ("inserted", "updated", "deleted", "quarantined"):
        if any(getattr(each, name) for each in tables):
            columns[name] = [f"{getattr(each, name):,}" for each in tables]
    if any(each.lag_seconds is not None for each in tables):
        columns["lag"] = ["" if each.lag_seconds is None else short_duration(each.lag_seconds) for each in tables]
    if any(each.position not in (None, group.delivered_lsn) for each in tables):
        columns["position"] = [each.position or "" for each in tables]
    columns |= _made_of(tables)
    if any(each.lake_table != each.table for each in tables):
        columns["lake table"] = ["" if each.lake_table == each.table else each.lake_table for each in tables]
    return columns


def _made_of(tables: Sequence[TableStatus]) -> dict[str, list[str]]:
    """What the tables are made of in the lake."""
    figures = [each.figures for each in tables]
    numbers = {
        "files": [each and each.files for each in figures],
        "small": [each and each.small_files for each in figures],
        "dead rows": [each and each.deleted_rows for each in figures],
        "in catalog": [each and each.inlined_rows + each.old_rows for each in figures],
    }
    shown = {name: ["" if n is None else f"{n:,}" for n in each] for name, each in numbers.items() if any(each)}
    if any(each and each.bytes for each in figures):
        shown["size"] = ["" if each is None else size_text(each.bytes) for each in figures]
    return shown


def _copied(table: TableStatus) -> str:
    """How far its copy is, with a bar if the size is known."""
    if not table.copy_total:
        return f"copied {counted(table.copied_rows, 'row')}"
    total = max(table.copy_total, table.copied_rows)
    share = table.copied_rows / total
    bar = "█" * round(share * _BAR) + "░" * (_BAR - round(share * _BAR))
    rate = table.copied_rows / table.copy_seconds if table.copy_seconds else 0.0
    return f"{bar} {share:.0%}, {progress(table.copied_rows, total, rate)}"


def _notes(table: TableStatus) -> Iterator[str]:
    if table.resync:
        yield f"is to be copied again: {table.resync}"
    if table.state == "SNAPSHOT":
        yield _copied(table)
    elif table.error:
        again = f" (tried again at {table.retry_at:%H:%M:%S}; {_lag(table)})" if table.retry_at else ""
        yield f"ERROR: {table.error}{again}"
    if table.not_mirrored:
        yield f"not mirrored: generated {_columns_named(table.not_mirrored)}"


def _columns_named(names: Sequence[str]) -> str:
    return f"column{'' if len(names) == 1 else 's'} {', '.join(names)}"
