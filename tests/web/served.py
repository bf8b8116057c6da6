"""The page's server in this process, on a free port, and a client that speaks plain HTTP to it."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headwater.config import Config
from headwater.supervise.reloading import Reloading
from headwater.web.facts import Facts
from headwater.web.serve import Serving
from headwater.web.site import Site
from tests.captured_group import until

__all__ = ["TOKEN", "Answer", "Served", "config_file", "loaded", "served"]

TOKEN = "a-token-for-tests"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Served:
    """A server; `headers` go with every request."""

    address: str
    facts: Facts
    site: Site
    headers: dict[str, str]
    tls: ssl.SSLContext | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.address).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: object = None, **headers: str) -> Answer:
        return self.ask("POST", path, None if body is None else json.dumps(body).encode(), headers)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """`headers` with underscores for dashes; an empty one is left out."""
        named = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        sent = {name: value for name, value in (self.headers | named).items() if value}
        connection = self.connection()
        try:
            connection.request(method, path, body, sent)
            found = connection.getresponse()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPConnection:
        if self.tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=60, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=60)

    @contextmanager
    def listening(self) -> Iterator[Iterator[Any]]:
        """The overviews that the server sends, as they come."""
        connection = self.connection()
        connection.request("GET", "/api/v1/events", headers=self.headers)
        stream = connection.getresponse()
        try:
            assert stream.headers["Content-Type"] == "text/event-stream"
            yield (json.loads(line[6:]) for line in stream if line.startswith(b"data: "))
        finally:
            stream.close()
            connection.close()

    def raw(self, head: bytes, body: bytes = b"") -> bytes:
        """What comes back on a connection of its own, to its end."""
        with socket.create_connection((self.host, self.port), timeout=60) as connection:
            connection.sendall(head)
            with suppress(OSError):  # it may have answered and gone
                connection.sendall(body)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def look(self) -> None:
        """Have the server look again now."""
        self.facts.look()


def config_file(folder: Path, database: str, server: str = f"{{port: 0, token: {TOKEN}}}", more: str = "") -> Path:
    """A config with the group `shop`, into a DuckLake on SQLite."""
    file = folder / "headwater.yaml"
    file.write_text(
        f"source: {database!r}\nlog: ./log\n"
        'lakes: {main: {ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}\n'
        "groups: {shop: {lake: main, tables: [public.orders]}}\n"
        f"server: {server}\n{more}"
    )
    return file


def loaded(file: Path) -> Config:
    return Config.load(file, {})


@contextmanager
def served(file: Path, *, leads: bool = True, tls: ssl.SSLContext | None = None) -> Iterator[Served]:
    """Serve the config's page. It looks at nothing by itself: a test says when, by `look` or by a thread of its own."""
    config, stop, leading = loaded(file), threading.Event(), threading.Event()
    assert config.server is not None
    if leads:
        leading.set()
    facts = Facts(config, {}, Reloading(file, {}))
    site = Site(facts, config.server, {}, file, leading, stop)
    thread = Serving(site)
    thread.start()
    try:
        until(thread.address)
        address, token = thread.address(), config.server.token.get_secret_value()
        assert address is not None
        yield Served(address, facts, site, {"Authorization": f"Bearer {token}"} if token else {}, tls)
    finally:
        stop.set()
        thread.join(30)
        facts.close()
        assert not thread.is_alive()
