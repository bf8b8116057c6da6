"""Who may do what over HTTP, and what a hostile client gets: refusals that say why, and nothing else."""

from __future__ import annotations

import inspect
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater.change import TableName
from headwater.state import State
from headwater.web import session
from headwater.web.connections import PATIENCE
from headwater.web.live import HEARTBEAT
from headwater.web.openapi import document
from headwater.web.security import MOST_BYTES
from tests.web.served import TOKEN, Answer, Served, config_file, served

PAUSE = "/api/v1/groups/shop/tables/public.orders/pause"
OPEN = {"/api/v1/session", "/api/v1/openapi.json", "/healthz", "/readyz"}


@pytest.fixture
def without_token(state: State, database: str, tmp_path: Path) -> Iterator[Served]:
    del state
    with served(config_file(tmp_path, database, "{port: 0}")) as found:
        found.look()
        yield found


@pytest.mark.parametrize("path", sorted(path for path in document()["paths"] if path not in OPEN))
def test_nothing_is_read_or_changed_without_the_token(site: Served, path: str) -> None:
    real = path.format(group="shop", table="public.orders", route="r", value="v", id="1")
    for method in document()["paths"][path]:
        for header in ("", "Bearer wrong", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer é"):
            found = site.ask(method.upper(), real, None, {"Authorization": header})
            assert found.status == 401, (method, real, header)
            assert found.headers["www-authenticate"].startswith("Bearer")
            assert found.json["hint"]


def test_the_token_is_compared_in_a_time_that_says_nothing() -> None:
    source = inspect.getsource(session)
    assert "compare_digest" in inspect.getsource(session.Gate.opens)
    assert "compare_digest" in inspect.getsource(session.Gate.check_change)
    assert "== self._token" not in source


def test_a_browser_begins_a_session_and_each_change_shows_that_its_page_asks(site: Served, state: State) -> None:
    anyone = {"Authorization": ""}
    assert site.get("/api/v1/session", **anyone).json == {"needs_token": True, "may_change": False, "csrf": None}
    refused = site.post("/api/v1/session", {"token": "wrong"}, **anyone)
    assert (refused.status, refused.json["error"]) == (401, "this is not the token")
    begun = site.post("/api/v1/session", {"token": TOKEN}, **anyone)
    assert (begun.status, begun.json["may_change"]) == (200, True)
    cookie = begun.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    inside = anyone | {"Cookie": cookie.partition(";")[0]}
    assert site.get("/api/v1/overview", **inside).status == 200
    assert site.get("/api/v1/session", **inside).json["csrf"] == begun.json["csrf"]
    for wrong in ("", "wrong", begun.json["csrf"][:-1]):
        found = site.post(PAUSE, **inside, X_Headwater_CSRF=wrong)
        assert (found.status, state.waiting()) == (403, [])
        assert "X-Headwater-CSRF" in found.json["error"]
    assert site.post(PAUSE, **inside, X_Headwater_CSRF=begun.json["csrf"]).status == 202
    assert [each.verb for each in state.waiting()] == ["pause_table"]
    assert site.ask("DELETE", "/api/v1/session", None, inside | {"X_Headwater_CSRF": begun.json["csrf"]}).status == 204
    assert site.get("/api/v1/overview", **inside).status == 401


def test_a_cookie_that_was_made_up_is_none(site: Served) -> None:
    name = f"headwater_{site.port}"
    for cookie in ("", "x", "9999999999.x.y", "9999999999.." + "0" * 64, "é.x.y"):
        sent = {"Authorization": "", "Cookie": f"{name}={cookie}".encode("latin-1").decode("latin-1")}
        assert site.ask("GET", "/api/v1/overview", None, sent).status == 401


def test_without_a_token_reading_is_open_and_changing_is_refused(without_token: Served, state: State) -> None:
    assert without_token.get("/api/v1/overview").status == 200
    assert without_token.get("/api/v1/session").json == {"needs_token": False, "may_change": False, "csrf": None}
    for found in (without_token.post(PAUSE), without_token.post("/api/v1/verify", {})):
        assert found.status == 403
        assert found.json["hint"].startswith("set server.token to ")
    assert without_token.post("/api/v1/session", {"token": ""}).status == 403
    assert state.waiting() == []


def test_without_a_token_a_name_of_another_site_leads_nowhere(without_token: Served) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]:80", ""):
        for path in ("/api/v1/overview", "/api/v1/events", "/readyz", "/metrics"):
            assert _raw(without_token, _get(path, host)).status == 403, (host, path)
    for host in ("localhost", "127.0.0.1:1", "[::1]:8080", "127.8.8.8", "LOCALHOST."):
        assert _raw(without_token, _get("/api/v1/overview", host)).status == 200, host


def test_every_answer_forbids_browsers_what_the_page_does_not_need(site: Served) -> None:
    for path in ("/", "/api/v1/overview", "/api/v1/nothing", "/healthz", "/static/nothing"):
        headers = site.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    assert site.get("/api/v1/overview").headers["cache-control"] == "no-store"


PATHS = [
    "/static/../app.py",
    "/static/../../etc/passwd",
    "/static/..%2fapp.py",
    "/static/%2e%2e/%2e%2e/etc/passwd",
    "/static/....//app.py",
    "/static/%00",
    "/static/index.html/..",
    "/static//etc/passwd",
    "/static/",
    "/static",
    "/../etc/passwd",
    "//etc/passwd",
    "/static/app.py",
    "/static/INDEX.HTML",
]


def test_no_path_leads_out_of_the_page(site: Served) -> None:
    for path in PATHS:
        found = _raw(site, _get(path))
        assert found.status == 404, path
        assert b"root:" not in found.body
        assert "error" in found.json


def test_the_page_needs_no_token_and_is_not_read_twice(site: Served) -> None:
    found = site.get("/", Authorization="")
    assert (found.status, found.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert site.get("/", If_None_Match=found.headers["etag"]).status == 304


def test_a_large_request_is_refused_before_it_is_read(site: Served, state: State) -> None:
    head = f"POST /api/v1/groups/shop/tables HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    announced = _raw(site, f"{head}Content-Length: {10**12}\r\n\r\n")
    assert (announced.status, announced.json["error"]) == (413, "the request is too large")
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    streamed = _raw(site, f"{head}Transfer-Encoding: chunked\r\n\r\n", chunk * (MOST_BYTES // 4096 + 2))
    assert streamed.status == 413
    assert state.waiting() == []


def test_endless_headers_are_refused(site: Served) -> None:
    assert _raw(site, "GET / HTTP/1.1\r\n" + "X: " + "y" * 100_000 + "\r\n\r\n").status == 400


def test_a_body_that_is_no_object_is_refused(site: Served) -> None:
    for body in ("{", "[]", "7", "[" * 5000, '"x"', "\xff"):
        found = site.ask("POST", "/api/v1/groups/shop/tables", body.encode("latin-1"))
        assert (found.status, found.json["error"][:15]) == (400, "the body is not"), body


def test_a_client_that_keeps_us_waiting_is_let_go(site: Served) -> None:
    half = b"POST /api/v1/session HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    with ExitStack() as opened:
        slow = []
        for begin in (b"", b"GET / HT", half):
            client = socket.create_connection((site.host, site.port), timeout=PATIENCE * 8)
            slow.append(opened.enter_context(client))
            client.sendall(begin)
        for client in slow:
            while client.recv(65536):
                pass  # an answer may come; then the end does


def test_an_injected_name_is_only_text(site: Served, state: State, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for name in ("<script>alert(1)</script>", "x'; DROP TABLE headwater.groups; --", '"a""b"', "a\nb", "\0"):
        found = site.post("/api/v1/groups/shop/tables", {"table": f"public.{name}"})
        assert found.headers["content-type"] == "application/json"
        assert found.status in (202, 422), name
    state.ensure_table("shop", 2, TableName("public", "<script>"), TableName("public", "<b>"))
    site.look()
    found = site.get("/api/v1/overview")
    assert 'public."<script>"' in [each["table"] for each in found.json["groups"][0]["tables"]]
    assert all("\n" not in each.getMessage() for each in caplog.records if each.name == "headwater.web.audit")


def test_no_answer_has_a_password(state: State, database: str, tmp_path: Path) -> None:
    file = config_file(tmp_path, f"{database}&password=hunter2")
    state.record_error("shop", "capture", "cannot connect with password=hunter2 nor with hunter2")
    with served(file) as site:
        site.look()
        for path in ("/api/v1/overview", "/api/v1/status", "/readyz", "/api/v1/groups/shop/tables/public.orders"):
            found = site.get(path)
            assert b"hunter2" not in found.body, path
            assert TOKEN.encode() not in found.body, path
        assert site.get("/api/v1/overview").json["groups"][0]["capture"]["error"].endswith("nor with ***")


def test_every_change_leaves_a_line_in_the_log(site: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site.post(PAUSE)
    site.ask("DELETE", "/api/v1/groups/shop/tables/public.orders")
    site.post("/api/v1/session", {"token": "wrong"}, Authorization="")
    lines = [each.getMessage() for each in caplog.records if each.name == "headwater.web.audit"]
    assert lines[0].startswith(
        "token from 127.0.0.1: pause_table source_table='public.orders', group_name='shop': request "
    )
    assert "remove_table" in lines[1]
    assert lines[2] == "anyone from 127.0.0.1: begin a session: refused: wrong token"


def test_a_change_that_is_refused_for_who_asks_leaves_a_line_too(
    site: Served, without_token: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    inside = begun(site)
    here, header = "from 127.0.0.1", "the header X-Headwater-CSRF of this session is missing or wrong"
    this, wrong = f"session {_name(inside)} {here}", {**inside, "X_Headwater_CSRF": "wrong"}
    said = {
        f"anyone {here}: POST {PAUSE!r}: refused: this needs the token": site.post(PAUSE, Authorization=""),
        f"{this}: POST {PAUSE!r}: refused: {header}": site.post(PAUSE, None, **wrong),
        f"{this}: DELETE '/api/v1/session': refused: {header}": site.ask("DELETE", "/api/v1/session", None, wrong),
        f"anyone {here}: POST {PAUSE!r}: refused: nothing can be changed here: the config has no token": (
            without_token.post(PAUSE)
        ),
        f"anyone {here}: begin a session: refused: the config has no token": without_token.post(
            "/api/v1/session", {"token": "x"}
        ),
    }
    assert {each.status for each in said.values()} == {401, 403}
    for line in said:
        assert audited(caplog).count(line) == 1, line
    before = len(audited(caplog))
    assert site.get("/api/v1/overview", Authorization="").status == 401  # which is no change
    assert len(audited(caplog)) == before
    unknown = "/api/v1/groups/shop/tables/public.none/pause"
    assert site.post(unknown).status == 404
    assert audited(caplog)[-1] == (
        f"token from 127.0.0.1: POST {unknown!r}: refused: group 'shop' has no table 'public.none'"
    )


def test_the_log_tells_sessions_apart_and_says_nothing_that_opens_one(
    site: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sessions = [begun(site) for _ in range(2)]
    for each in sessions:
        assert site.post(PAUSE, None, **each).status == 202
    first, second = [each for each in audited(caplog) if "pause_table" in each]
    assert first.split(" from ")[0] == f"session {_name(sessions[0])}"
    assert second.split(" from ")[0] == f"session {_name(sessions[1])}" != first.split(" from ")[0]
    for each in sessions:
        _, random, mark = each["Cookie"].split(".")
        assert random not in "".join(audited(caplog))
        assert mark not in "".join(audited(caplog))


def test_a_session_ends_with_the_server_that_began_it(
    site: Served, state: State, database: str, tmp_path: Path
) -> None:
    del state
    ended, open_one = begun(site), begun(site)
    assert site.ask("DELETE", "/api/v1/session", None, ended).status == 204
    assert site.get("/api/v1/overview", **open_one).status == 200
    with served(config_file(tmp_path, database)) as again:
        again.look()
        for each in (ended, open_one):
            cookie = each["Cookie"].replace(str(site.port), str(again.port))
            assert again.get("/api/v1/overview", Authorization="", Cookie=cookie).status == 401
        assert again.get("/api/v1/overview", **begun(again)).status == 200


def test_an_open_stream_ends_with_its_session(site: Served) -> None:
    mine, other = begun(site), begun(site)
    with _stream(site, mine) as stream, _stream(site, other) as stays:
        assert _overview_in(stream)
        assert _overview_in(stays)
        assert site.ask("DELETE", "/api/v1/session", None, mine).status == 204
        at = time.monotonic()
        assert stream.recv(65536).endswith(b"0\r\n\r\n")
        assert time.monotonic() - at < HEARTBEAT / 2
        stays.settimeout(1)
        with pytest.raises(TimeoutError):
            stays.recv(1)


def begun(site: Served) -> dict[str, str]:
    """A new session: the headers of its requests."""
    found = site.post("/api/v1/session", {"token": TOKEN}, Authorization="")
    cookie = found.headers["set-cookie"].partition(";")[0]
    return {"Authorization": "", "Cookie": cookie, "X_Headwater_CSRF": found.json["csrf"]}


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "headwater.web.audit"]


def _name(session: dict[str, str]) -> str:
    return session["Cookie"].split(".")[1][:8]


def _stream(site: Served, session: dict[str, str]) -> socket.socket:
    stream = socket.create_connection((site.host, site.port), timeout=60)
    lines = "GET /api/v1/events HTTP/1.1", f"Host: {site.host}:{site.port}", f"Cookie: {session['Cookie']}"
    stream.sendall("".join(f"{each}\r\n" for each in (*lines, "")).encode())
    return stream


def _overview_in(stream: socket.socket) -> bool:
    came = b""
    while not came.endswith(b"\n\n\r\n"):
        part = stream.recv(65536)
        assert part, came
        came += part
    return b"event: overview" in came


def _raw(site: Served, head: str, body: bytes = b"") -> Answer:
    """An answer to bytes as they are."""
    came = site.raw(head.encode("latin-1"), body)
    start, _, rest = came.partition(b"\r\n\r\n")
    lines = start.decode("latin-1").split("\r\n")
    headers = dict(each.lower().split(": ", 1) for each in lines[1:])
    return Answer(int(lines[0].split()[1]), headers, rest)


def _get(path: str, host: str = "x") -> str:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
