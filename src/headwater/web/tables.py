"""One table, as the page shows it after a click."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headwater.errors import HeadwaterError
from headwater.state import State, TableRow
from headwater.status import TableStatus
from headwater.status.opened import columns_of, lines_of
from headwater.web.answers import Answers, Refusal
from headwater.web.api import known_status
from headwater.web.endpoints import Endpoint
from headwater.web.facts import Facts
from headwater.web.overview import delivery
from headwater.web.quarantine import quarantine_of
from headwater.web.session import Caller

__all__ = ["Tables"]

SHOWN_DELIVERIES, SHOWN_VALUES, SHOWN_EVENTS = 20, 50, 50
_ASKED = "SELECT handled_at, verb, outcome FROM headwater.requests WHERE group_name = %s AND table_name = %s"


class Tables:
    def __init__(self, facts: Facts, env: Mapping[str, str], answers: Answers, state: State) -> None:
        self._facts, self._env, self._answers, self._state = facts, env, answers, state
        self._one = asyncio.Lock()  # a look at a lake takes memory

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/api/v1/groups/{group}/tables/{table:path}", self._show)]

    async def _show(self, request: Request, caller: Caller) -> Response:
        del caller
        group, name = request.path_params["group"], request.path_params["table"]
        known = known_status(self._facts.newest()).groups
        found = next((each for g in known if g.name == group for each in g.tables if each.table == name), None)
        if found is None:
            raise Refusal(404, f"there is no table {name!r} in group {group!r}", "GET /api/v1/overview lists them")
        async with self._one:
            return await asyncio.to_thread(lambda: self._answers.answer(self._detail(found)))

    def _detail(self, status: TableStatus) -> dict[str, Any]:
        row = next((each for each in self._state.tables(status.group) if str(each.source) == status.table), None)
        if row is None:
            raise Refusal(404, f"table {status.table!r} is not known any more", "it was dropped or renamed just now")
        config = self._facts.in_force()
        return {
            "status": asdict(status),
            "columns": [asdict(each) for each in columns_of(config, self._state, row)],
            "events": self._events(row),
            "deliveries": self._deliveries(row),
            "quarantine": self._quarantine(row),
            "query": self._lines(row),
        }

    def _lines(self, row: TableRow) -> list[str]:
        if row.position is None:
            return []  # it is not in the lake yet
        with suppress(HeadwaterError):
            return lines_of(self._facts.in_force(), self._env, row)
        return []

    def _events(self, row: TableRow) -> list[dict[str, Any]]:
        """What was asked of it, and what was seen of it since this process began."""
        asked = self._state.query(
            f"{_ASKED} AND handled_at IS NOT NULL ORDER BY handled_at DESC LIMIT %s",
            (row.group, str(row.source), SHOWN_EVENTS),
        )
        found = [(at, f"{verb.replace('_', ' ')}: {outcome}") for at, verb, outcome in asked]
        found += self._facts.events.of(row.group, str(row.source))
        newest = sorted(found, key=lambda each: each[0], reverse=True)[:SHOWN_EVENTS]
        return [{"at": at.timestamp(), "what": what} for at, what in newest]

    def _deliveries(self, row: TableRow) -> list[dict[str, Any]]:
        kept = self._facts.newest().deliveries.get(row.group, ())
        return [delivery(each) for each in kept if row.oid in each.oids][:SHOWN_DELIVERIES]

    def _quarantine(self, row: TableRow) -> dict[str, Any]:
        try:
            total, rows = quarantine_of(self._facts.in_force(), self._env, self._state, row, SHOWN_VALUES)
        except HeadwaterError as error:
            return {"total": row.quarantined, "rows": [], "error": error.message}
        return {"total": total, "rows": rows, "error": None}
