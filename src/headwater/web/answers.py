"""Answers in JSON, without a password, and refusals that say what failed and the next move."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from headwater.errors import ConfigError, HeadwaterError, OperatorMustAct
from headwater.logs import redact

__all__ = ["Answers", "Refusal", "refused"]

_SEE_API = "/api/v1/openapi.json lists what there is"


class Refusal(Exception):
    """A request that is not done: the status, what failed, and what to do."""

    def __init__(self, status: int, error: str, hint: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, error, hint)
        self.status, self.error, self.hint, self.headers = status, error, hint, dict(headers or {})


class Answers:
    """Turns values into responses. `secrets` are never in one."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = frozenset(secrets)

    def text(self, tree: Any) -> str:
        """JSON; what it has no type for is written as text."""
        text = json.dumps(tree, default=str, ensure_ascii=False, separators=(",", ":"))
        if redact(text, self._secrets) == text:
            return text
        return json.dumps(self._clean(json.loads(text)), ensure_ascii=False, separators=(",", ":"))

    def answer(self, tree: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        return Response(self.text(tree), status, headers, "application/json")

    def refusal(self, refusal: Refusal) -> Response:
        said = {"error": refusal.error, "hint": refusal.hint or None}
        return self.answer(said, refusal.status, refusal.headers)

    def _clean(self, value: Any) -> Any:
        match value:
            case str():
                return redact(value, self._secrets)
            case list():
                return [self._clean(each) for each in value]
            case dict():
                return {self._clean(name): self._clean(each) for name, each in value.items()}
            case _:
                return value


def refused(request: Request, error: Exception) -> Refusal:
    """What to answer when something was raised; anything that is not ours is a bug."""
    match error:
        case Refusal():
            return error
        case HTTPException(status_code=404):
            return Refusal(404, f"there is nothing at {request.url.path!r}", _SEE_API)
        case HTTPException(status_code=405):
            what = f"{request.method} is not possible at {request.url.path!r}"
            return Refusal(405, what, _SEE_API, error.headers)
        case HTTPException():
            return Refusal(error.status_code, error.detail or HTTPStatus(error.status_code).phrase)
        case ConfigError():
            return Refusal(422, error.message, error.hint)
        case OperatorMustAct():
            return Refusal(409, error.message, error.hint)
        case HeadwaterError():
            return Refusal(503, error.message, error.hint or "try again later")
        case _:
            return Refusal(500, "a bug in Headwater", "please report it, with the log lines of this moment")
