"""`headwater verify` on request: a process of its own, one at a time, whose result is kept for a while."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headwater.web.answers import Answers, Refusal
from headwater.web.audit import audit
from headwater.web.endpoints import Endpoint
from headwater.web.security import read_json
from headwater.web.session import Caller

__all__ = ["Verifying"]

KEPT = 20  # results
MOST_NAMES = 1000
GRACE = 5.0  # seconds that a process that was killed has until its pipes are closed


@dataclass(slots=True)
class _Verification:
    id: int
    tables: Sequence[str]
    begun: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended: datetime | None = None
    equal: bool | None = None  # None: it is not known, or not yet
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None

    def said(self) -> dict[str, Any]:
        state = "running" if self.ended is None else "failed" if self.equal is None else "done"
        return {
            "verification": self.id,
            "state": state,
            "tables": self.tables,
            "begun": self.begun,
            "ended": self.ended,
            "equal": self.equal,
            "verdicts": self.verdicts,
            "error": self.error,
        }


class Verifying:
    """Everything is used from the server's one event loop."""

    def __init__(self, file: Path, env: Mapping[str, str], answers: Answers) -> None:
        self._file, self._env, self._answers = file, env, answers
        self._known: dict[int, _Verification] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("POST", "/api/v1/verify", self._begin, "changing"),
            Endpoint("GET", "/api/v1/verifications/{id}", self._became),
        ]

    async def close(self) -> None:
        """End what runs, Spark's processes included."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=GRACE)
            self._task.cancel()

    async def _begin(self, request: Request, caller: Caller) -> Response:
        names = _names(await read_json(request))
        said = f"verify {', '.join(map(repr, names)) or 'everything'}"
        if self._task is not None and not self._task.done():
            running = max(self._known)
            raise Refusal(409, f"verification {running} is still running", "one at a time: wait until it has ended")
        new = _Verification(max(self._known, default=0) + 1, names)
        self._known = {**dict([*self._known.items()][1 - KEPT :]), new.id: new}
        self._task = asyncio.create_task(self._run(new))
        audit(request, caller, said, f"verification {new.id}")
        return self._answers.answer({"verification": new.id}, 202, {"Location": f"/api/v1/verifications/{new.id}"})

    async def _became(self, request: Request, caller: Caller) -> Response:
        del caller
        given = request.path_params["id"]
        found = self._known.get(int(given)) if given.isascii() and given.isdigit() and len(given) < 10 else None
        if found is None:
            raise Refusal(404, f"there is no verification {given!r}", f"the newest {KEPT} are kept")
        return self._answers.answer(found.said())

    async def _run(self, verification: _Verification) -> None:
        command = [sys.executable, "-m", "headwater", "-c", str(self._file), "verify", "--json", "--"]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *command,
            *verification.tables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=dict(self._env) or dict(os.environ),
            start_new_session=True,
        )
        said, errors = await self._process.communicate()
        code, self._process = self._process.returncode, None
        verification.ended = datetime.now(UTC)
        try:
            verification.verdicts = json.loads(said)
            verification.equal = code == 0
        except ValueError:
            lines = errors.decode(errors="replace").strip().splitlines()
            said_last = [each.removeprefix("error: ") for each in lines if each.startswith(("error: ", "hint: "))]
            verification.error = "\n".join(said_last) or f"`headwater verify` ended with {code}"


def _names(body: Mapping[str, Any]) -> list[str]:
    names = body.get("tables", [])
    if unknown := [each for each in body if each != "tables"]:
        raise Refusal(422, f"unknown key {unknown[0][:100]!r}", "known keys: tables")
    if not isinstance(names, list) or len(names) > MOST_NAMES or not all(isinstance(each, str) for each in names):
        raise Refusal(422, "`tables` is not a list of names", 'send {"tables": ["public.orders"]}, or {} for all')
    if any("\0" in each for each in names):
        raise Refusal(422, "a name has a NUL in it", "PostgreSQL has no such table")
    return names
