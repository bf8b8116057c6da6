"""The process that serves: a socket, a thread with uvicorn on it, and the thread that looks."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import uvicorn

from headwater.config import Config, Server
from headwater.errors import ConfigError
from headwater.supervise.reloading import Reloading
from headwater.web.announcing import Announcing
from headwater.web.app import app
from headwater.web.connections import MOST_CONNECTIONS, PatientConnection
from headwater.web.facts import Facts
from headwater.web.site import Site

__all__ = ["Serving", "address", "serve"]

logger = logging.getLogger(__name__)

TRY_AGAIN = 5.0  # seconds, as long as the port is taken
UNREAD_BYTES = 64 * 1024  # that the kernel keeps for a client: by default megabytes, and there are hundreds of them
HEAD_BYTES = 32 * 1024  # of a request, with all its headers
KEEP_ALIVE, GRACE = 15, 3  # seconds
_OTHERS = {"0.0.0.0", "::"}  # every address of this machine


def serve(config: Config, env: Mapping[str, str], file: Path, stop: threading.Event, leads: threading.Event) -> None:
    """Serve until `stop`; ConfigError if that makes no sense. `leads` is set once this run has the groups."""
    if config.server is None:
        raise ConfigError("the config has no server", hint="write `server: on`")
    facts = Facts(config, env, Reloading(file, env))
    serving = Serving(Site(facts, config.server, env, file, leads, stop))
    with ExitStack() as running:
        serving.start()
        running.callback(serving.join)
        announcing = Announcing(config, serving.address, stop)
        announcing.start()
        running.callback(announcing.join)
        running.callback(stop.set)
        facts.run(stop)


class Serving(threading.Thread):
    """Listens, and tries that again as long as the port is taken; `address` is known from then on."""

    def __init__(self, site: Site) -> None:
        super().__init__(name="http")
        self._site, self._stop_event = site, site.stop
        self._tls = _tls(site.server)
        self._address: str | None = None
        self._server = uvicorn.Server(self._settings())

    def address(self) -> str | None:
        """None: it does not listen yet."""
        return self._address

    def run(self) -> None:
        listening = self._listening()
        if listening is None:
            return
        with listening:
            self._address = address(self._site.server, listening.getsockname()[1])
            logger.info("serving %s", self._address)
            threading.Thread(target=self._end, name="http end", daemon=True).start()
            try:
                asyncio.run(self._server.serve(sockets=[listening]))
            finally:
                self._stop_event.set()  # whatever ended it: the supervisor starts the process again

    def _end(self) -> None:
        self._stop_event.wait()
        self._server.should_exit = True

    def _listening(self) -> socket.socket | None:
        reported = False
        while not self._stop_event.is_set():
            try:
                return _bound(self._site.server)
            except OSError as error:
                if not reported:
                    logger.warning("%s; it is tried again every %.0f s", _refused(self._site.server, error), TRY_AGAIN)
                reported = True
                self._stop_event.wait(TRY_AGAIN)
        return None

    def _settings(self) -> uvicorn.Config:
        for name in ("uvicorn.error", "uvicorn.access"):
            logging.getLogger(name).setLevel(logging.ERROR)  # a client that sends nonsense is no news
        settings = uvicorn.Config(
            app(self._site),
            http=PatientConnection,
            ws="none",
            lifespan="on",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # anyone could write them, and the log would name a wrong address
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=GRACE,
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        settings.load()
        settings.ssl = self._tls
        return settings


def address(server: Server, port: int) -> str:
    """The page's, as a browser on this machine opens it."""
    host = socket.gethostname() if server.host in _OTHERS else server.host.strip("[]")
    return f"{'https' if server.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/"


def _bound(server: Server) -> socket.socket:
    found = socket.getaddrinfo(server.host.strip("[]"), server.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, place = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNREAD_BYTES)  # connections inherit it
        listening.bind(place)
        listening.listen(MOST_CONNECTIONS)  # now: bound alone, another process might listen before us
    except OSError:
        listening.close()
        raise
    return listening


def _refused(server: Server, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"the page is not served: port {server.port} of {server.host} is taken by another program"
    return f"the page is not served: cannot listen on port {server.port} of {server.host!r}: {error.strerror or error}"


def _tls(server: Server) -> ssl.SSLContext | None:
    if server.tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(server.tls.cert, server.tls.key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        what = error.strerror or str(error)
        if isinstance(error, ssl.SSLError):
            what = "they are no certificate and its key in PEM, or the key needs a password"
        named = f"server.tls: cannot use {os.path.basename(server.tls.cert)!r} and {os.path.basename(server.tls.key)!r}"
        raise ConfigError(f"{named}: {what}", hint="name PEM files that this user may read") from error
    return context
