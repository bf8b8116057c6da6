"""Who may read, and who may change: a bearer token, or a browser's session that was begun with it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from headwater.config import is_loopback
from headwater.web.answers import Refusal

__all__ = ["CSRF_HEADER", "LIFETIME", "Caller", "Gate", "Session"]

CSRF_HEADER = "X-Headwater-CSRF"
LIFETIME = 12 * 3600  # seconds
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="headwater"'}


@dataclass(frozen=True, slots=True)
class Session:
    """What the browser's cookie says; another site can send the cookie, but it does not know `csrf`."""

    cookie: str
    csrf: str

    @property
    def name(self) -> str:
        """What tells it from others, and is of no use to anyone who reads it."""
        return self.cookie.split(".")[1][:8]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: with the token, in a session, or anyone."""

    kind: Literal["token", "session", "anyone"]
    session: Session | None = None

    def __str__(self) -> str:
        return f"session {self.session.name}" if self.session else self.kind


class Gate:
    """Decides. Sessions are signed and not kept; those that were ended are, so no session outlives this process."""

    def __init__(self, token: str) -> None:
        self._token, self._key = token.encode(), secrets.token_bytes(32)
        self._ended: dict[str, float] = {}  # by cookie: when it would have ended

    @property
    def needs_token(self) -> bool:
        return bool(self._token)

    def caller(self, request: Request) -> Caller | None:
        """None: it must have the token, and has not."""
        if not self.needs_token:
            return Caller("anyone")
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return Caller("token") if self.opens(given.strip()) else None
        session = self._session(request.cookies.get(_cookie_name(request), ""))
        return Caller("session", session) if session else None

    def opens(self, token: str) -> bool:
        """Whether this is the token, in a time that does not say how much of it is right."""
        return self.needs_token and hmac.compare_digest(_digest(token.encode()), _digest(self._token))

    def check_read(self, request: Request) -> Caller:
        """Refusal of one that may not read."""
        self.check_host(request)
        found = self.caller(request)
        if found is None:
            raise Refusal(401, "this needs the token", "send `Authorization: Bearer` and server.token", _CHALLENGE)
        return found

    def check_change(self, request: Request) -> Caller:
        """Refusal of one that may not change anything."""
        if not self.needs_token:
            self.check_host(request)
            hint = "set server.token to a secret, as `openssl rand -hex 32` makes one, and start `headwater run` again"
            raise Refusal(403, "nothing can be changed here: the config has no token", hint)
        found = self.check_read(request)
        if found.session is not None:
            given = request.headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(given.encode(), found.session.csrf.encode()):
                hint = f"send {CSRF_HEADER} with what GET /api/v1/session says"
                raise Refusal(403, f"the header {CSRF_HEADER} of this session is missing or wrong", hint)
        return found

    def check_host(self, request: Request) -> None:
        """Without a token, a page of another site must not read here under a name of its own (DNS rebinding)."""
        host = request.headers.get("Host", "")
        if not self.needs_token and not is_loopback(_without_port(host)):
            hint = "open it as http://127.0.0.1, or set server.token"
            raise Refusal(403, f"without a token this answers only to loopback names, not to {host[:100]!r}", hint)

    def begin(self, request: Request, response: Response) -> Session:
        """A new session, in a cookie of the response."""
        plain = f"{int(time.time()) + LIFETIME}.{secrets.token_urlsafe(12)}"
        session = self._signed(plain)
        response.set_cookie(
            _cookie_name(request),
            session.cookie,
            max_age=LIFETIME,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return session

    def end(self, session: Session, request: Request, response: Response) -> None:
        now = time.time()
        self._ended = {each: until for each, until in self._ended.items() if until > now}
        self._ended[session.cookie] = now + LIFETIME
        response.delete_cookie(_cookie_name(request), httponly=True, samesite="strict")

    def admits(self, caller: Caller) -> bool:
        """Whether a caller that was let in may stay: its session has neither been ended nor run out."""
        return caller.session is None or self._session(caller.session.cookie) is not None

    def _session(self, cookie: str) -> Session | None:
        plain = cookie.rpartition(".")[0]
        until = plain.partition(".")[0]
        known = self._signed(plain)
        if not hmac.compare_digest(known.cookie.encode(), cookie.encode()) or cookie in self._ended:
            return None
        return known if int(until) > time.time() else None

    def _signed(self, plain: str) -> Session:
        return Session(f"{plain}.{self._mark('session', plain)}", self._mark("csrf", plain))

    def _mark(self, purpose: str, plain: str) -> str:
        return hmac.new(self._key, f"{purpose}:{plain}".encode(), hashlib.sha256).hexdigest()


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


def _cookie_name(request: Request) -> str:
    """Browsers send a cookie to every port of a host."""
    return f"headwater_{request.url.port or request.url.scheme}"


def _without_port(host: str) -> str:
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
