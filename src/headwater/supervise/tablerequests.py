"""What an operator asks of tables: to be copied again, to pause, to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from headwater.change import TableName
from headwater.config import Config
from headwater.errors import ConfigError
from headwater.state import State, TableRow
from headwater.state.processes import held
from headwater.state.rows import TableState
from headwater.state.transitions import Event, Paused, RecopyRequested, Resumed, after

__all__ = ["ListedTable", "TableRequest", "TableRequested", "list_tables", "request_of_tables"]

TableRequest = Literal["pause", "resume", "resync"]

ASKED_FOR = "it was asked for"

_EVENTS: dict[TableRequest, Callable[[], Event]] = {
    "pause": lambda: Paused(ASKED_FOR),
    "resume": Resumed,
    "resync": lambda: RecopyRequested(ASKED_FOR),
}


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table of the state, and whether a process delivers its group now."""

    group: str
    table: str
    lake_table: str
    state: TableState
    position: str | None
    resync: str | None
    error: str | None
    running: bool


@dataclass(frozen=True, slots=True)
class TableRequested:
    """What a request made of a table. If no process delivers its group, the rest waits for the next run."""

    group: str
    table: str
    before: TableState
    now: TableState
    changed: bool
    running: bool


def list_tables(config: Config, group: str | None = None) -> list[ListedTable]:
    """The tables of all groups, or of one."""
    with closing(State.connect(config.state_url)) as state:
        rows = _rows(state, group)
        running = _running(state, rows)
        return [
            ListedTable(
                row.group,
                str(row.source),
                str(row.lake),
                row.state,
                str(row.position) if row.position is not None else None,
                row.resync,
                row.error,
                row.group in running,
            )
            for row in rows
        ]


def request_of_tables(
    config: Config, request: TableRequest, names: Sequence[str], group: str | None = None
) -> list[TableRequested]:
    """Ask it of these tables; ConfigError if one of them is not there, or cannot be asked, and then of none."""
    with closing(State.connect(config.state_url)) as state:
        rows = _rows(state, group)
        chosen = [_chosen(name, rows) for name in dict.fromkeys(names)]
        for row in chosen:
            _check(row, request)
        running = _running(state, chosen)
        event = _EVENTS[request]()
        done = []
        for row in chosen:
            state.record(row.group, row.oid, event)
            now = after(row, event)
            done.append(
                TableRequested(row.group, str(row.source), row.state, now.state, now != row, row.group in running)
            )
        return done


def _check(row: TableRow, request: TableRequest) -> None:
    if row.state == "REMOVED":
        raise ConfigError(
            f"table {str(row.source)!r} of group {row.group!r} is REMOVED: there is nothing to {request}",
            hint="put it into the config again, and start `headwater run`: it is copied anew",
        )
    if request == "resync" and row.state == "PAUSED":
        raise ConfigError(
            f"table {str(row.source)!r} of group {row.group!r} is PAUSED, and would not be copied",
            hint=f"first `headwater table resume {row.source}`",
        )


def _rows(state: State, group: str | None) -> list[TableRow]:
    there = state.query("SELECT to_regclass('headwater.tables')") != [(None,)]
    groups = [each.name for each in state.groups()] if there else []
    if group is not None and group not in groups:
        close = get_close_matches(group, groups, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(groups) or 'none'}"
        raise ConfigError(f"no group {group!r} has run yet", hint=hint)
    return [row for name in groups if group in (None, name) for row in state.tables(name)]


def _running(state: State, rows: Iterable[TableRow]) -> set[str]:
    """The groups that a process delivers now."""
    locks = {f"deliver:{row.group}": row.group for row in rows}
    return {locks[name] for name in held(state, locks)}


def _chosen(name: str, rows: Sequence[TableRow]) -> TableRow:
    try:
        wanted = TableName.parse(name)
    except ValueError:
        raise ConfigError(f"{name!r} is not the name of a table", hint="write schema.table") from None
    found = [row for row in rows if wanted in (row.source, row.configured)]
    if len(found) == 1:
        return found[0]
    if found:
        groups = ", ".join(repr(row.group) for row in found)
        raise ConfigError(f"table {name!r} is in more than one group: {groups}", hint="say which with --group")
    close = get_close_matches(name, [str(row.source) for row in rows], 1)
    hint = f"did you mean {close[0]!r}?" if close else "see `headwater table list`"
    raise ConfigError(f"there is no table {name!r} in any group that has run", hint=hint)
