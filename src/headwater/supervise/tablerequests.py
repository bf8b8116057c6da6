"""Tables as an operator sees them: listed, and asked to pause, to go on, to be copied again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from headwater.change import TableName
from headwater.config import Config
from headwater.errors import ConfigError
from headwater.state import Request, State, TableRow
from headwater.state.processes import held
from headwater.state.rows import TableState
from headwater.state.transitions import Event, Paused, RecopyRequested, Resumed, after

__all__ = ["ListedTable", "TableRequest", "TableRequested", "list_tables", "record_request"]

TableRequest = Literal["pause", "resume", "resync"]

ASKED_FOR = "it was asked for"

_EVENTS: dict[TableRequest, Callable[[], Event]] = {
    "pause": lambda: Paused(ASKED_FOR),
    "resume": Resumed,
    "resync": lambda: RecopyRequested(ASKED_FOR),
}


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table of the state, or one that was asked for and is not there yet, when state and position are None.

    `waiting` are requests that no service has handled; `running`: a process delivers its group now.
    """

    group: str
    table: str
    lake_table: str | None
    state: TableState | None
    position: str | None
    resync: str | None
    error: str | None
    waiting: tuple[str, ...]
    running: bool


@dataclass(frozen=True, slots=True)
class TableRequested:
    """What a request made of a table."""

    before: TableState
    now: TableState
    changed: bool


def list_tables(config: Config, group: str | None = None) -> list[ListedTable]:
    """The tables of all groups, or of one."""
    with closing(State.connect(config.state_url)) as state:
        there = state.knows("requests")
        requests = [each for each in state.waiting() if each.table is not None] if there else []
        rows = _rows(state, group) if there else []
        running = _running(state, {row.group for row in rows} | {each.group for each in requests})
        known = [_listed(row, requests, running) for row in rows]
        new = [each for each in requests if each.verb == "add_table" and group in (None, each.group)]
        return known + [_awaited(each, running) for each in new]


def _listed(row: TableRow, requests: Sequence[Request], running: Collection[str]) -> ListedTable:
    names = {str(row.source), str(row.configured)}
    waiting = tuple(each.verb for each in requests if each.group == row.group and each.table in names)
    position = str(row.position) if row.position is not None else None
    state = row.group, str(row.source), str(row.lake), row.state, position, row.resync, row.error
    return ListedTable(*state, waiting, row.group in running)


def _awaited(request: Request, running: Collection[str]) -> ListedTable:
    assert request.table is not None
    nothing = None, None, None, None, None
    return ListedTable(request.group, request.table, *nothing, (request.verb,), request.group in running)


def record_request(state: State, group: str, table: TableName, request: TableRequest) -> TableRequested:
    """Ask it of a table; ConfigError if it is not there, or cannot be asked."""
    row = _chosen(table, state.tables(group), group)
    _check(row, request)
    event = _EVENTS[request]()
    state.record(row.group, row.oid, event)
    now = after(row, event)
    return TableRequested(row.state, now.state, now != row)


def _check(row: TableRow, request: TableRequest) -> None:
    if row.state == "REMOVED":
        raise ConfigError(
            f"table {str(row.source)!r} of group {row.group!r} is REMOVED: there is nothing to {request}",
            hint="put it into the config again, or `headwater table add` it: it is copied anew",
        )
    if request == "resync" and row.state == "PAUSED":
        raise ConfigError(
            f"table {str(row.source)!r} of group {row.group!r} is PAUSED, and would not be copied",
            hint=f"first `headwater table resume {row.source}`",
        )


def _rows(state: State, group: str | None) -> list[TableRow]:
    groups = [each.name for each in state.groups()]
    if group is not None and group not in groups:
        close = get_close_matches(group, groups, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(groups) or 'none'}"
        raise ConfigError(f"no group {group!r} has run yet", hint=hint)
    return [row for name in groups if group in (None, name) for row in state.tables(name)]


def _running(state: State, groups: Iterable[str]) -> set[str]:
    """The groups that a process delivers now."""
    locks = {f"deliver:{group}": group for group in groups}
    return {locks[name] for name in held(state, locks)}


def _chosen(wanted: TableName, rows: Sequence[TableRow], group: str) -> TableRow:
    found = [row for row in rows if wanted in (row.source, row.configured)]
    if found:
        return found[0]
    close = get_close_matches(str(wanted), [str(row.source) for row in rows], 1)
    hint = f"did you mean {close[0]!r}?" if close else "see `headwater table list`"
    raise ConfigError(f"there is no table {str(wanted)!r} in group {group!r}", hint=hint)
