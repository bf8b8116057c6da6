"""Clients that do not read what they ask for: they are let go, and keep others from nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from headwater.state import State
from headwater.web.connections import MOST_CONNECTIONS, PATIENCE, PROBES
from headwater.web.live import MOST_STREAMS
from tests.captured_group import until
from tests.web.served import TOKEN, Served

EVENTS = f"GET /api/v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
ASKED = EVENTS.replace(b"events", b"overview")


@pytest.fixture
def large(site: Served, state: State, database: str) -> Served:
    """A server whose overview is larger than what the kernel keeps for a client."""
    del state
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO headwater.tables (group_name, source_oid, namespace, name, lake_schema, lake_table,"
            " configured_schema, configured_table, options) SELECT group_name, 100 + n, 's', 't' || n, 's', 't' || n,"
            " 's', 't' || n, options FROM headwater.tables, generate_series(1, 1500) n"
        )
    site.look()
    assert len(site.get("/api/v1/overview").body) > 300_000
    return site


@contextmanager
def silent(site: Served, clients: int, request: bytes) -> Iterator[list[socket.socket]]:
    """Clients that ask, and that are answered, and never read."""
    with ExitStack() as opened:
        found = [opened.enter_context(_asking(site, request)) for _ in range(clients)]
        assert {each.recv(12, socket.MSG_PEEK) for each in found} == {b"HTTP/1.1 200"}
        yield found


def test_clients_that_pipeline_and_never_read_are_let_go_and_keep_no_probe_away(large: Served) -> None:
    with silent(large, MOST_CONNECTIONS, ASKED * 3):
        full = large.get("/api/v1/overview")
        assert full.json == {
            "error": f"{MOST_CONNECTIONS} clients are connected, which is the most",
            "hint": "try again later",
        }
        assert (full.status, "content-security-policy" in full.headers) == (503, True)
        assert {path for path in PROBES if large.get(path).status == 200} == {"/healthz", "/metrics"}
        assert "group 'shop': delivery is STOPPED" in large.get("/readyz").json["reasons"]
        until(lambda: large.get("/api/v1/overview").status == 200, PATIENCE * 8, 0.5)


def test_streams_that_are_not_read_lose_their_place(large: Served) -> None:
    with silent(large, MOST_STREAMS, EVENTS):
        full = large.get("/api/v1/events")
        assert full.json == {
            "error": f"{MOST_STREAMS} pages are open, which is the most",
            "hint": "close one, and try again",
        }
        assert {large.get(path).status for path in ("/healthz", "/metrics", "/api/v1/overview")} == {200}
        until(lambda: _begins(large), PATIENCE * 8, 0.5)


@pytest.mark.long
def test_a_client_that_reads_slowly_gets_everything(large: Served) -> None:
    begun, came = time.monotonic(), 0
    with _asking(large, ASKED.replace(b"Host: x", b"Host: x\r\nConnection: close"), keeps=64 * 1024) as client:
        while part := client.recv(4096):
            came += len(part)
            if time.monotonic() - begun < PATIENCE * 2:
                time.sleep(0.5)
    assert came > 300_000
    assert time.monotonic() - begun > PATIENCE * 2  # a client that does not read is let go by then


def _asking(site: Served, request: bytes, keeps: int = 4096) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, keeps)
    client.settimeout(60)
    client.connect((site.host, site.port))
    client.sendall(request)
    return client


def _begins(site: Served) -> bool:
    """Whether a stream begins."""
    with socket.create_connection((site.host, site.port), timeout=60) as client:
        client.sendall(EVENTS)
        return client.recv(65536).startswith(b"HTTP/1.1 200")
