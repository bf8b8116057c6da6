"""What the server knows, under a test's own hands: real looks at a real state, taken when the test wants one."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from headwater.change import Lsn, TableName
from headwater.config import Config
from headwater.errors import HeadwaterError
from headwater.lake.maintenance import Chores, Figures
from headwater.state.deliveries import DeliveryRow
from headwater.state.leftover import Leftover
from headwater.state.maintained import LastMaintenance
from headwater.state.processes import announced
from headwater.status import DestinationStatus, InstanceStatus, RouteStatus, Status, open_status
from headwater.supervise.opening import open_state
from headwater.supervise.readying import make_ready
from headwater.web.facts import Look

__all__ = ["Group", "Looks", "everything"]

CONFIG = """
source: {url}
log: {{path: ./log, max_bytes: 1GB}}
lakes:
  main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}
groups:
  g: {{lake: main, tables: [{tables}]}}
"""


class Looks:
    """`see` takes a look; the metrics have the newest one."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._look = Look(0.0, None, "the state was not asked yet", {})
        self._heard: list[Callable[[Sequence[DeliveryRow]], None]] = []
        self._watching: list[Callable[[Look], None]] = []

    def newest(self) -> Look:
        return self._look

    def subscribe(self, on_deliveries: Callable[[Sequence[DeliveryRow]], None]) -> None:
        self._heard.append(on_deliveries)

    def watch(self, on_look: Callable[[Look], None]) -> None:
        self._watching.append(on_look)

    def see(self) -> Status:
        with open_status(self._config, {}) as ask:
            status = ask()
        self.show(status)
        return status

    def show(self, status: Status, *disabled: str) -> None:
        self._look = Look(time.time(), status, None, {}, disabled=frozenset(disabled))
        for each in self._watching:
            each(self._look)

    def lose(self, error: HeadwaterError) -> None:
        """The state does not answer."""
        self._look = Look(time.time(), None, error.message, {})

    def deliver(self, *rows: DeliveryRow) -> None:
        for each in self._heard:
            each(rows)


class Group:
    """A group `g` whose tables are known to a state, and not captured; the test writes what their processes would."""

    def __init__(self, url: str, folder: Path, *tables: str) -> None:
        self.url, self.file = url, folder / "headwater.yaml"
        with closing(psycopg.connect(url, autocommit=True)) as source:
            for each in tables:
                source.execute(f"CREATE TABLE {each} (id int PRIMARY KEY)")
        self.file.write_text(CONFIG.format(url=url, tables=", ".join(map(json.dumps, tables))))
        self.config = Config.load(self.file, {})
        self.state = open_state(self.config)
        make_ready(self.config, self.state)

    def oid(self, table: str) -> int:
        (found,) = (row.oid for row in self.state.tables("g") if row.source == TableName.parse(table))
        return found

    def end(self) -> Lsn:
        ((lsn,),) = self.state.query("SELECT pg_current_wal_lsn()")
        return Lsn.parse(str(lsn))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the locks that a `headwater run` and its processes hold, in this process."""
        with ExitStack() as held:
            held.enter_context(self.state.lock("run:g"))
            for stage, name in (("capture", "capture:g"), ("delivery", "deliver:g")):
                lock = held.enter_context(self.state.lock(name))
                held.enter_context(announced(self.state, "g", stage, lock))  # type: ignore[arg-type]
            yield

    def close(self) -> None:
        self.state.close()


def everything(status: Status) -> Status:
    """A status of one group, with a value for everything that may also be unknown."""
    (group,) = status.groups
    now = datetime.now(UTC)
    known = {"lag_bytes": 10, "lag_seconds": 0.5}
    here = {"state": "RUNNING", "host": socket.gethostname(), "pid": os.getpid(), "started_at": now}
    part = replace(group.capture, **here, **known, heartbeat_seconds=1.0)  # type: ignore[arg-type]
    table = replace(
        group.tables[0],
        **known,  # type: ignore[arg-type]
        state="SNAPSHOT",
        copy_total=10,
        copy_seconds=1.0,
        retry_at=now,
        figures=Figures(),
        last_maintenance=LastMaintenance(now, Chores(merged_files=2)),
    )
    wal = {"wal_status": "reserved", "wal_limit_bytes": 100, "wal_safe_bytes": 50}
    position = {"captured_lsn": "0/20", "delivered_lsn": "0/10", "delivered_at": now, "snapshot_id": 3}
    whole = replace(group, **known, **wal, **position, capture=part, delivery=part, tables=(table,))  # type: ignore[arg-type]
    leftover = Leftover("old", "headwater_old", 1 << 20)
    return replace(status, groups=(whole,), leftovers=(leftover,), routes=(_route(now),))


def _route(now: datetime) -> RouteStatus:
    destination = DestinationStatus(
        route="by_company",
        value="acme",
        instance="all",
        lake="acme",
        table="main.orders",
        status="healthy",
        position="7",
        rows=1,
        inserted=1,
        updated=0,
        deleted=0,
        lag_snapshots=1,
        lag_seconds=1.0,
        waiting_rows=0,
        seed=None,
        error=None,
        failures=0,
        circuit_open=False,
        retry_at=None,
        delivered_at=now,
    )
    return RouteStatus(
        name="by_company",
        source="main.orders of lake shop",
        running=True,
        position="7",
        source_position="8",
        source_error=None,
        unknown_rows=0,
        null_rows=0,
        instances=(InstanceStatus(name="all", running=True, polled_at=now),),
        destinations=(destination,),
    )
