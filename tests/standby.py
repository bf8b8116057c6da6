"""A primary with a standby that keeps our slots, and the promotion of the standby."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psycopg

from headwater.postgres.connect import connect
from headwater.source.server import wal_end
from headwater.testing.postgres import EmbeddedPostgres
from tests.captured_group import until

__all__ = ["Pair", "pair_of_servers"]

FAST = {"fsync": "off", "full_page_writes": "off", "wal_keep_size": "256MB"}
KEEPS_SLOTS = {
    "hot_standby_feedback": "on",
    "primary_slot_name": "standby",
    "wal_retrieve_retry_interval": "100ms",
}


class Pair:
    """Two servers; `url` leads to the one that can be written to."""

    def __init__(self, folder: Path, *, synchronised: bool = True) -> None:
        self.primary = EmbeddedPostgres(folder / "a", settings=FAST).start()
        with psycopg.connect(self.primary.url(), autocommit=True) as admin:
            admin.execute("SELECT pg_create_physical_replication_slot('standby', true)")
        settings = FAST | KEEPS_SLOTS | {"sync_replication_slots": "on" if synchronised else "off"}
        settings["primary_conninfo"] = f"host={self._socket(self.primary)} user=postgres dbname=postgres"
        self.primary.run("pg_basebackup", "-D", str(folder / "b"), "-h", self._socket(self.primary), *_BACKUP)
        for name in (".s.PGSQL.5432.lock", ".handle_pids.json", "log"):  # of the primary, and none of its data
            (folder / "b" / name).unlink(missing_ok=True)
        (folder / "b" / "standby.signal").touch()
        self.standby = EmbeddedPostgres(folder / "b", settings=settings).start()
        hosts = {"host": f"{self._socket(self.primary)},{self._socket(self.standby)}"}
        self.url = f"postgresql://postgres@/postgres?{urlencode(hosts | {'target_session_attrs': 'read-write'})}"

    def _socket(self, server: EmbeddedPostgres) -> str:
        return server.url().rpartition("host=")[2].replace("%2F", "/")

    def level(self) -> None:
        """Wait until the standby has all that the primary has written."""
        with closing(connect(self.primary.url())) as primary, psycopg.connect(self.standby.url()) as standby:
            end = str(wal_end(primary))
            reached = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            until(lambda: standby.execute(reached, (end,)).fetchone() == (True,))

    def kept(self, slot: str) -> None:
        """Wait until the standby has the slot, for good."""
        found = "SELECT FROM pg_replication_slots WHERE slot_name = %s AND synced AND NOT temporary"
        with (
            psycopg.connect(self.standby.url(), autocommit=True) as standby,
            psycopg.connect(self.primary.url(), autocommit=True) as primary,
        ):

            def there() -> bool:
                primary.execute("SELECT pg_log_standby_snapshot()")
                return standby.execute(found, (slot,)).fetchone() is not None

            until(there, every=0.2)

    def promote(self) -> None:
        """The primary is lost, the standby takes over."""
        self.primary.pg_ctl("stop", "-m", "immediate", "-w")
        self.standby.start()
        self.standby.pg_ctl("promote", "-w")

    def close(self) -> None:
        self.primary.stop()
        self.standby.stop()


_BACKUP = ("-U", "postgres", "-X", "stream", "-c", "fast")


@contextmanager
def pair_of_servers(*, synchronised: bool = True) -> Iterator[Pair]:
    # Not tmp_path: the servers' own user must be able to reach it when we run as root.
    with tempfile.TemporaryDirectory(prefix="headwater-pair-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)  # pg_basebackup makes the folder of its copy
        with closing(Pair(Path(folder), synchronised=synchronised)) as pair:
            yield pair
