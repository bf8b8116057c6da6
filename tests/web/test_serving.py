"""The server as a process and as a listener: ports, TLS, restarts, and a hundred pages that cost nothing."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest

from headwater.errors import ConfigError
from headwater.state import State
from headwater.state.servers import served_at
from tests.captured_group import execute, until
from tests.proof.processes import Run, gone, headwater_json
from tests.web.served import TOKEN, Served, config_file, served

PAGES = 100


def test_any_free_port_may_be_asked_for(state: State, database: str, tmp_path: Path) -> None:
    del state
    file = config_file(tmp_path, database)
    with served(file) as one, served(file) as other:
        assert one.port != other.port
        assert {each.get("/healthz").status for each in (one, other)} == {200}


def test_a_taken_port_is_a_warning_and_is_tried_again(
    state: State, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    del state
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        threading.Timer(1, taken.close).start()
        with served(config_file(tmp_path, database, f"{{port: {port}}}")) as site:
            assert site.port == port
            assert site.get("/healthz").json == {"alive": True}
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warnings == [
        f"the page is not served: port {port} of 127.0.0.1 is taken by another program; it is tried again every 5 s"
    ]


def test_with_tls_the_page_is_there_by_https_and_a_session_stays_within_it(
    state: State, database: str, tmp_path: Path
) -> None:
    del state
    cert, key = _certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(cert))
    server = f"{{port: 0, token: {TOKEN}, tls: {{cert: cert.pem, key: key.pem}}}}"
    with served(config_file(tmp_path, database, server), tls=trusting) as site:
        assert site.address.startswith("https://127.0.0.1:")
        assert key.exists()
        assert site.get("/healthz").status == 200
        begun = site.post("/api/v1/session", {"token": TOKEN}, Authorization="")
        assert "Secure" in begun.headers["set-cookie"]


def test_a_certificate_that_cannot_be_used_is_said_with_its_files(database: str, tmp_path: Path) -> None:
    server = "{port: 0, tls: {cert: cert.pem, key: key.pem}}"
    for content in (None, "nonsense"):
        if content is not None:
            (tmp_path / "cert.pem").write_text(content)
            (tmp_path / "key.pem").write_text(content)
        with (
            pytest.raises(ConfigError, match=r"server\.tls: cannot use 'cert\.pem' and 'key\.pem'") as raised,
            served(config_file(tmp_path, database, server)),
        ):
            pass
        assert raised.value.hint


def test_a_hundred_pages_cost_the_source_what_none_costs(site: Served, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as counting, ExitStack() as opened:
        alone = _asked(counting)
        pages = [opened.enter_context(site.listening()) for _ in range(PAGES)]
        for page in pages:
            assert next(page)["groups"][0]["name"] == "shop"
        assert site.get("/api/v1/overview").status == 200  # there is room for more
        assert _asked(counting) == alone
        execute(database, "UPDATE headwater.groups SET capture_error = 'a full disk'")
        site.look()
        looked = _asked(counting)
        for page in pages:
            assert next(page)["groups"][0]["capture"]["error"] == "a full disk"
        assert _asked(counting) == looked
        panel = "/api/v1/groups/shop/tables/public.orders"
        assert site.get(panel).status == 200
        one = _asked(counting)
        with ThreadPoolExecutor(10) as panels:
            found = {each.status for each in panels.map(lambda _: site.get(panel), range(PAGES))}
        assert found == {200}
        assert _asked(counting) == one


def test_a_silent_stream_shows_that_it_is_alive(site: Served) -> None:
    with socket.create_connection((site.host, site.port), timeout=60) as stream:
        stream.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        came = b""
        while b": still here\n\n" not in came:
            came += stream.recv(65536)
        assert came.count(b"event: overview") == 1


def test_when_its_process_is_killed_the_page_comes_back_and_the_run_goes_on(database: str, tmp_path: Path) -> None:
    execute(database, "CREATE TABLE orders (id int PRIMARY KEY)")
    run = Run(config_file(tmp_path, database), "--role", "capture")
    try:
        address = _until_served(database, run, tmp_path)
        server, capture = run.member("_serve"), run.member("_capture")
        assert headwater_json(tmp_path / "headwater.yaml", "status")[1]["servers"] == [address]
        server.kill()
        again = _until_served(database, run, tmp_path, besides=address)
        assert gone(server)
        assert _at(again, "/healthz") == 200
        assert "serving http://127.0.0.1:" in run.said()
        assert run.alive
        assert not gone(capture)
        run.process.terminate()
        assert run.process.wait(120) == 0
        assert "server ended with -9, starting it again in 1 s" in run.said()
    finally:
        if run.alive:
            run.kill()


def _until_served(database: str, run: Run, folder: Path, besides: str = "") -> str:
    """The address of the run's page, as soon as there is a new one."""
    found: list[str] = []

    def known() -> list[str]:
        assert run.alive, run.said()
        found[:] = [each for each in served_at(state, str(folder / "log")) if each != besides]
        return found

    with closing(State.connect(database)) as state:
        until(known, 240, 0.2)
    return found[0]


def _at(address: str, path: str) -> int:
    with urlopen(address.rstrip("/") + path, timeout=60) as answer:
        return int(answer.status)


def _asked(counting: psycopg.Connection[tuple[object, ...]]) -> tuple[object, ...] | None:
    """How many sessions others have in the database, and when one of them last asked something."""
    return counting.execute(
        "SELECT count(*), max(query_start), max(state_change) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    ).fetchone()


def _certificate(folder: Path) -> tuple[Path, Path]:
    """One that it has signed itself, for 127.0.0.1."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=headwater-test"]
    named = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *named], check=True, capture_output=True)
    return cert, key
