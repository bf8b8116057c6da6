"""One table, as the page shows it after a click."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headwater.errors import HeadwaterError
from headwater.state import State, TableRow
from headwater.status import TableStatus
from headwater.status.opened import TableColumn, columns_of, lines_of
from headwater.web.answers import Answers, Refusal
from headwater.web.api import known_status
from headwater.web.endpoints import Endpoint
from headwater.web.events import Event
from headwater.web.facts import Facts
from headwater.web.kept import Kept
from headwater.web.overview import delivery, snapshots_of
from headwater.web.quarantine import quarantine_of
from headwater.web.session import Caller

__all__ = ["Tables"]

SHOWN_DELIVERIES, SHOWN_VALUES, SHOWN_EVENTS = 20, 50, 50
STATE_SECONDS = 4.0  # a panel asks every 5 seconds, and always gets something new
LAKE_SECONDS = 60.0  # a look at a lake takes memory, and with S3 some seconds
LAKE_PATIENCE = 10.0
_ASKED = "SELECT handled_at, verb, outcome FROM headwater.requests WHERE group_name = %s AND table_name = %s"


@dataclass(frozen=True, slots=True)
class _Known:
    """What the state knows of a table."""

    row: TableRow
    columns: Sequence[TableColumn]
    asked: Sequence[Event]
    lines: Sequence[str]


class Tables:
    """A hundred open panels of a table cost what one does."""

    def __init__(self, facts: Facts, env: Mapping[str, str], answers: Answers, state: State) -> None:
        self._facts, self._env, self._answers, self._state = facts, env, answers, state
        self._known: Kept[_Known] = Kept(STATE_SECONDS)
        self._quarantines: Kept[dict[str, Any]] = Kept(LAKE_SECONDS)
        self._one_lake = asyncio.Lock()  # at a time

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/api/v1/groups/{group}/tables/{table:path}", self._show)]

    async def _show(self, request: Request, caller: Caller) -> Response:
        del caller
        group, name = request.path_params["group"], request.path_params["table"]
        groups = known_status(self._facts.newest()).groups
        found = next((each for g in groups if g.name == group for each in g.tables if each.table == name), None)
        if found is None:
            raise Refusal(404, f"there is no table {name!r} in group {group!r}", "GET /api/v1/overview lists them")
        key = group, name, found.state, found.error, found.resync  # whoever has changed these wants to see it at once
        known = await asyncio.shield(self._known.get(key, lambda: asyncio.to_thread(self._ask, found)))
        quarantine = await self._quarantine(found, known.row)
        return await asyncio.to_thread(lambda: self._answers.answer(self._detail(found, known, quarantine)))

    def _ask(self, status: TableStatus) -> _Known:
        row = next((each for each in self._state.tables(status.group) if str(each.source) == status.table), None)
        if row is None:
            raise Refusal(404, f"table {status.table!r} is not known any more", "it was dropped or renamed just now")
        columns = columns_of(self._facts.in_force(), self._state, row)
        return _Known(row, columns, self._asked(row), self._lines(row))

    def _asked(self, row: TableRow) -> list[Event]:
        """What was asked of it."""
        found = self._state.query(
            f"{_ASKED} AND handled_at IS NOT NULL ORDER BY handled_at DESC LIMIT %s",
            (row.group, str(row.source), SHOWN_EVENTS),
        )
        return [Event(at, f"{verb.replace('_', ' ')}: {outcome}") for at, verb, outcome in found]

    def _lines(self, row: TableRow) -> list[str]:
        if row.position is None:
            return []  # it is not in the lake yet
        with suppress(HeadwaterError):
            return lines_of(self._facts.in_force(), self._env, row)
        return []

    def _detail(self, status: TableStatus, known: _Known, quarantine: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "status": asdict(status),
            "columns": [asdict(each) for each in known.columns],
            "events": self._events(known),
            "deliveries": self._deliveries(known.row),
            "quarantine": quarantine,
            "query": known.lines,
        }

    def _events(self, known: _Known) -> list[dict[str, Any]]:
        """What was asked of it, and what was seen of it since this process began."""
        found = [*known.asked, *self._facts.events.of(known.row.group, str(known.row.source))]
        newest = sorted(found, key=lambda each: each.at, reverse=True)[:SHOWN_EVENTS]
        return [{"at": each.at.timestamp(), "what": each.what} for each in newest]

    def _deliveries(self, row: TableRow) -> list[dict[str, Any]]:
        look = self._facts.newest()
        kept = (each for each in look.deliveries.get(row.group, ()) if row.oid in each.oids)
        snapshots = snapshots_of(look, row.group)
        return [delivery(each, snapshots=snapshots) for each in islice(kept, SHOWN_DELIVERIES)]

    async def _quarantine(self, status: TableStatus, row: TableRow) -> dict[str, Any]:
        if not status.quarantined:
            return {"total": 0, "rows": [], "error": None}
        task = self._quarantines.get((row.group, row.oid), lambda: self._asked_lake(row))
        done, _ = await asyncio.wait({task}, timeout=LAKE_PATIENCE)
        late = "the lake has not answered yet"
        return task.result() if done else {"total": status.quarantined, "rows": [], "error": late}

    async def _asked_lake(self, row: TableRow) -> dict[str, Any]:
        async with self._one_lake:
            return await asyncio.to_thread(self._values, row)

    def _values(self, row: TableRow) -> dict[str, Any]:
        try:
            total, rows = quarantine_of(self._facts.in_force(), self._env, self._state, row, SHOWN_VALUES)
        except HeadwaterError as error:
            return {"total": row.quarantined, "rows": [], "error": error.message}
        return {"total": total, "rows": rows, "error": None}
