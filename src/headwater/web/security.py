"""What holds for every answer: headers that keep browsers from doing more than they should, and no large requests."""

from __future__ import annotations

import json
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.web.answers import Refusal

__all__ = ["MOST_BYTES", "Guarded", "read_json"]

MOST_BYTES = 64 * 1024  # of a request's body
_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guarded:
    """The middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if _announced(scope) > MOST_BYTES:
            await _too_large(guarded)
            return
        await self._app(scope, receive, guarded)


async def read_json(request: Request) -> dict[str, Any]:
    """The body, a JSON object; an empty body is an empty one."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:  # it did not announce its length
            raise Refusal(413, *_TOO_LARGE, {"Connection": "close"})
    if not body:
        return {}
    try:
        found = json.loads(bytes(body))
        storable = "\\u0000" not in json.dumps(found, ensure_ascii=False).encode().decode()
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the body is not JSON", 'send an object, as {"tables": ["public.orders"]}') from error
    if not storable:
        raise Refusal(422, "the body has a NUL in it", "PostgreSQL's text has none")
    if not isinstance(found, dict):
        raise Refusal(400, "the body is not a JSON object", 'send an object, as {"tables": ["public.orders"]}')
    return found


_TOO_LARGE = "the request is too large", f"a body may have {MOST_BYTES:,} bytes"


def _announced(scope: Scope) -> int:
    length = Headers(scope=scope).get("content-length", "0")
    return int(length) if length.isdigit() else 0


async def _too_large(send: Send) -> None:
    """Answered before the body is read; the connection ends with it."""
    error, hint = _TOO_LARGE
    body = json.dumps({"error": error, "hint": hint}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
