"""Capture and delivery by a user without rights, who may write to /tmp only, and execute nothing there.

The pods and the containers of deploy/ are as restricted; namespaces of Linux do the same here.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import psutil
import psycopg
import pytest
from moto.server import ThreadedMotoServer

TOKEN = "a-token-for-the-test"
CONFIG = """
source: {source}
log: s3://bucket/log
lakes:
  main: {{ducklake: "{source}&schema=lake", data_path: s3://bucket/lake}}
groups:
  shop: {{flush: {{interval: 500ms}}, tables: [public.orders]}}
spark: {{master: "local[2]", conf: {{spark.driver.memory: 1g}}}}
server: {{host: 127.0.0.1, port: {port}, token: "{token}"}}
"""
HIDE = """
mount --bind {sockets} {scratch}/sockets && mount --bind {python} {scratch}/python
mount --rbind {scratch} /tmp && mount -o remount,bind,rw,noexec,nosuid,nodev /tmp
mount -t tmpfs -o mode=755 none /root && mkdir -p {python} && mount --bind /tmp/python {python}
mount -o remount,bind,ro /
"""
USER = "--reuid={user} --regid={user} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("unshare", "setpriv", "mount")))
    or subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0,
    reason="this user may not hide the file system from a process",
)


class Restricted:
    """Processes with the rights of a container, which have their /tmp in common."""

    def __init__(self, database: str, folder: Path, s3: str) -> None:
        sockets = parse_qs(urlsplit(database).query)["host"][0]
        self._user = os.stat(sockets).st_uid  # that of the server: no other user may use its socket
        self._scratch, self._s3 = folder / "scratch", s3
        for name in ("", "sockets", "python"):
            (self._scratch / name).mkdir()
        self._scratch.chmod(0o1777)
        self._source = database.replace(urlsplit(database).query, "host=/tmp/sockets")
        places = {"scratch": self._scratch, "sockets": sockets, "python": sys.base_prefix}
        self._hide = HIDE.format(**{name: shlex.quote(str(each)) for name, each in places.items()})

    def file(self, role: str, port: int) -> str:
        (self._scratch / f"{role}.yaml").write_text(CONFIG.format(source=self._source, port=port, token=TOKEN))
        return f"/tmp/{role}.yaml"

    @contextmanager
    def run(self, *command: str) -> Iterator[psutil.Popen]:
        limited = ["setpriv", *USER.format(user=self._user).split(), *command]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPYCACHEPREFIX": "/tmp/compiled",  # the image has its packages compiled
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL": self._s3,
        }
        shell = ["unshare", "--mount", "sh", "-ec", f'{self._hide}cd / && exec "$@"', "sh", *limited]
        with psutil.Popen(shell, env=environment) as process:
            try:
                yield process
            finally:
                with suppress(psutil.NoSuchProcess):
                    process.terminate()
                    process.wait(90)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def asked(port: int, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    with urlopen(Request(f"http://127.0.0.1:{port}{path}", data, headers), timeout=30) as answer:
        return json.load(answer)


def until(ask: Callable[[], Any], seconds: float = 400) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(URLError, OSError):
            if found := ask():
                return found
        time.sleep(0.3)
    raise AssertionError(f"not in {seconds:.0f} s")


@pytest.fixture
def s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with urlopen(Request(f"http://{host}:{port}/bucket", method="PUT")):
        yield f"http://{host}:{port}"
    server.stop()


def test_it_can_write_to_tmp_only_and_execute_nothing_there(database: str, tmp_path: Path) -> None:
    said = "touch /tmp/mine && cp /bin/true /tmp && ! /tmp/true 2>&1 && ! touch /var/tmp/mine 2>&1 && id -u >&2"
    restricted = Restricted(database, tmp_path, "")
    with restricted.run("sh", "-c", f"{{ {said}; }} 2> /tmp/user > /tmp/refused") as process:
        assert process.wait(30) == 0
    assert (tmp_path / "scratch" / "user").read_text().strip() not in ("", "0")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_pod_needs_to_write_to_tmp_only_and_the_one_that_delivers_verifies(
    database: str, tmp_path: Path, s3: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
        connection.execute("INSERT INTO orders SELECT i, repeat('long ', 20) FROM generate_series(1, 100000) i")
    restricted, ports = Restricted(database, tmp_path, s3), {"capture": _free_port(), "deliver": _free_port()}
    program = [sys.executable, "-m", "headwater", "-c"]
    started = [
        restricted.run(*program, restricted.file(role, ports[role]), "run", "--role", role, *more)
        for role, more in (("capture", ["--standby"]), ("deliver", []))
    ]
    with started[0], started[1]:
        until(lambda: asked(ports["deliver"], "/readyz")["ready"])
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("UPDATE orders SET note = 'short' WHERE id % 3 = 0")
        number = asked(ports["deliver"], "/api/v1/verify", {})["verification"]

        def ended() -> Any:
            found = asked(ports["deliver"], f"/api/v1/verifications/{number}")
            return found if found["ended"] else None

        became = until(ended)
    assert (became["state"], became["equal"]) == ("done", True), became
