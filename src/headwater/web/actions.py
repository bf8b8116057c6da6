"""What changes: the same requests as those of commands and SQL functions, which the run acts on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headwater.config import Config
from headwater.errors import HeadwaterError
from headwater.state import State, Verb
from headwater.supervise.asking import serves
from headwater.supervise.requests import Request as DestinationRequest
from headwater.supervise.requests import requested
from headwater.web.answers import Answers, Refusal
from headwater.web.api import known_status
from headwater.web.audit import audit
from headwater.web.endpoints import Endpoint, Needs
from headwater.web.facts import Facts
from headwater.web.security import read_json
from headwater.web.session import Caller

__all__ = ["Actions"]

_TABLE_VERBS: Mapping[str, Verb] = {"pause": "pause_table", "resume": "resume_table", "resync": "resync_table"}
_GROUP_VERBS: Mapping[str, Verb] = {"enable": "enable_group", "disable": "disable_group"}
_DESTINATION_REQUESTS: Mapping[str, DestinationRequest] = {"pause": "pause", "resume": "resume", "seed": "seed"}
_GROUP, _ROUTE = "/api/v1/groups/{group}", "/api/v1/routes/{route}"
_TABLE = "{table:path}"  # a table's name may have a slash


class Actions:
    """Each makes a request of the state, and is written to the log with whoever asked."""

    def __init__(self, facts: Facts, answers: Answers, state: State) -> None:
        self._facts, self._answers, self._state = facts, answers, state

    def endpoints(self) -> list[Endpoint]:
        change: Needs = "changing"
        return [
            *(Endpoint("POST", f"{_GROUP}/tables/{_TABLE}/{each}", self._on_table, change) for each in _TABLE_VERBS),
            *(Endpoint("POST", f"{_GROUP}/{each}", self._on_group, change) for each in _GROUP_VERBS),
            Endpoint("POST", f"{_GROUP}/tables", self._add, change),
            Endpoint("DELETE", f"{_GROUP}/tables/{_TABLE}", self._remove, change),
            *(
                Endpoint("POST", f"{_ROUTE}/destinations/{{value:path}}/{each}", self._on_destination, change)
                for each in _DESTINATION_REQUESTS
            ),
            Endpoint("GET", "/api/v1/requests/{id}", self._became),
        ]

    async def _on_table(self, request: Request, caller: Caller) -> Response:
        verb = _TABLE_VERBS[_last(request)]
        group, table = request.path_params["group"], request.path_params["table"]
        self._check_table(group, table)
        return await self._ask(request, caller, verb, source_table=table, group_name=group)

    async def _on_group(self, request: Request, caller: Caller) -> Response:
        group = request.path_params["group"]
        self._check_group(group)
        return await self._ask(request, caller, _GROUP_VERBS[_last(request)], name=group)

    async def _add(self, request: Request, caller: Caller) -> Response:
        group, body = request.path_params["group"], await read_json(request)
        self._check_group(group)
        _check_keys(body, ("table", "as", "copy", "options"))
        if not isinstance(body.get("table"), str):
            raise Refusal(422, "`table` is missing", 'send {"table": "public.orders"}')
        wanted = {
            "lake_table": _kind(body, "as", str, None),
            "copy": _kind(body, "copy", bool, True),
            "options": _kind(body, "options", dict, {}),
        }
        return await self._ask(request, caller, "add_table", source_table=body["table"], group_name=group, **wanted)

    async def _remove(self, request: Request, caller: Caller) -> Response:
        group, table = request.path_params["group"], request.path_params["table"]
        self._check_table(group, table)
        return await self._ask(request, caller, "remove_table", source_table=table, group_name=group)

    async def _on_destination(self, request: Request, caller: Caller) -> Response:
        route, value = request.path_params["route"], request.path_params["value"]
        config, what = self._facts.in_force(), _DESTINATION_REQUESTS[_last(request)]
        if route not in config.routes:
            raise Refusal(404, f"there is no route {route!r}", f"there are: {', '.join(config.routes) or 'none'}")
        said = f"{what} destination {value!r} of route {route!r}"
        try:
            done = await asyncio.to_thread(requested, config, what, route, [value])
        except HeadwaterError as error:
            audit(request, caller, said, f"refused: {error.message}")
            raise
        outcome = "is noted" if done.changed else "changes nothing"
        audit(request, caller, said, outcome)
        answer = {"request": None, "changed": done.changed, "paused": done.paused, "running": done.running}
        return self._answers.answer(answer, 202)

    async def _became(self, request: Request, caller: Caller) -> Response:
        del caller
        given = request.path_params["id"]
        number = int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None
        found = None if number is None else await asyncio.to_thread(self._state.request, number)
        if found is None:
            raise Refusal(404, f"there is no request {given!r}", "they are kept for 30 days")
        outcome, _, hint = (found.outcome or "").partition("\nhint: ")
        state = "waiting" if found.handled_at is None else "refused" if found.failed else "done"
        said = {"request": found.id, "verb": found.verb, "group": found.group, "table": found.table, "state": state}
        times = {"requested_at": found.requested_at, "handled_at": found.handled_at}
        return self._answers.answer(said | times | {"outcome": outcome or None, "hint": hint or None})

    async def _ask(self, request: Request, caller: Caller, verb: Verb, **arguments: Any) -> Response:
        given = {name: each for name, each in arguments.items() if each is not None}
        said = f"{verb} {', '.join(f'{name}={each!r}' for name, each in given.items() if name != 'options')}"
        config = self._facts.in_force()
        try:
            number, running = await asyncio.to_thread(_asked, self._state, config, verb, given)
        except HeadwaterError as error:
            audit(request, caller, said, f"refused: {error.message}")
            raise
        audit(request, caller, said, f"request {number}")
        where = {"Location": f"/api/v1/requests/{number}"}
        return self._answers.answer({"request": number, "running": running}, 202, where)

    def _check_group(self, group: str) -> None:
        known = self._facts.in_force().groups
        if group not in known:
            raise Refusal(404, f"there is no group {group!r}", f"there are: {', '.join(known) or 'none'}")

    def _check_table(self, group: str, table: str) -> None:
        self._check_group(group)
        status = known_status(self._facts.newest())
        if table not in {each.table for found in status.groups if found.name == group for each in found.tables}:
            raise Refusal(404, f"group {group!r} has no table {table!r}", "GET /api/v1/overview lists them")


def _asked(state: State, config: Config, verb: Verb, arguments: Mapping[str, Any]) -> tuple[int, bool]:
    number = state.ask(verb, **arguments)
    request = state.request(number)
    return number, request is not None and serves(state, config, request.group)


def _last(request: Request) -> str:
    """The end of the path, which says what is to be done."""
    return str(request.scope["path"]).rpartition("/")[2]


def _check_keys(body: Mapping[str, Any], known: tuple[str, ...]) -> None:
    if unknown := [each for each in body if each not in known]:
        raise Refusal(422, f"unknown key {unknown[0][:100]!r}", f"known keys: {', '.join(known)}")


def _kind(body: Mapping[str, Any], name: str, kind: type, default: object) -> object:
    found = body.get(name, default)
    if found is not None and not isinstance(found, kind):
        raise Refusal(422, f"`{name}` is not of the right kind: {str(found)[:100]!r}", "see /api/v1/openapi.json")
    return found
