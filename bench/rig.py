"""What is measured on: an embedded PostgreSQL, a warm Spark, and pipelines from a database of their own to a lake."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property, partial
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

from bench.work import Database
from headwater import flow
from headwater.change import Lsn
from headwater.config import Config
from headwater.lake.address import LakeAddress
from headwater.sink.addresses import group_lake
from headwater.spark import session, warm_up
from headwater.state.servers import served_at
from headwater.supervise.opening import mirroring, open_log, open_state
from headwater.supervise.readying import make_ready
from headwater.testing.postgres import EmbeddedPostgres

__all__ = ["DUCKLAKE", "ICEBERG", "Pipeline", "Rig"]

MASTER = "local[2]"
PATIENCE = 600.0
# fsync off: the disk is not what is measured. Big WAL segments' worth between checkpoints, or they would be.
SETTINGS = {"fsync": "off", "shared_buffers": "1GB", "max_wal_size": "32GB", "autovacuum": "off"}


class Rig:
    """Everything under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = EmbeddedPostgres(folder / "postgres", settings=SETTINGS).start()

    @cached_property
    def spark(self) -> SparkSession:
        spark = session(MASTER, {})
        warm_up(spark)
        return spark

    @cached_property
    def server_version(self) -> str:
        with psycopg.connect(self.server.url()) as connection:
            return str(connection.execute("SHOW server_version").fetchone()[0])  # type: ignore[index]

    @contextmanager
    def database(self, name: str) -> Iterator[Database]:
        """A new database; afterwards it is gone, its slots too."""
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
            try:
                with closing(Database(self.server.url(name))) as database:
                    yield database
            finally:
                connection.execute(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                    " WHERE database = %s AND NOT active",
                    (name,),
                )
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def close(self) -> None:
        if "spark" in self.__dict__:
            self.spark.stop()
        self.server.stop()


DUCKLAKE = '{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}'
ICEBERG = '{iceberg: {type: sql, uri: "sqlite:///lake.sqlite", warehouse: ./lake}}'


class Pipeline:
    """A group of tables on its way into a lake of its own."""

    def __init__(
        self,
        rig: Rig,
        database: Database,
        group: str,
        tables: Sequence[str],
        lake: str = DUCKLAKE,
        flush: str = "{}",
        maintenance: str = "on",
        server: str = "off",
    ) -> None:
        self._rig = rig
        self.group = group
        self.tables = tables
        folder = rig.folder / group
        folder.mkdir()
        self.file = folder / "headwater.yaml"
        named = ", ".join(f"public.{table}" for table in tables)
        self.file.write_text(
            f"source: {database.url}\nlog: ./log\n"
            f"lakes: {{main: {lake}}}\nmaintenance: {maintenance}\nserver: {server}\n"
            f"groups: {{{group}: {{lake: main, flush: {flush}, tables: [{named}]}}}}\n"
            f'spark: {{master: "{MASTER}"}}\n'
        )
        self._config = Config.load(self.file, {})
        self.state = open_state(self._config)
        make_ready(self._config, self.state)
        row = self.state.group(group)
        assert row is not None
        self.slot, self.publication = row.slot, row.publication
        self._log = open_log(self._config, self.state, group)

    @property
    def address(self) -> LakeAddress:
        return group_lake(self._config, {}, self.group)

    @cached_property
    def mirroring(self) -> flow.Mirroring:
        return mirroring(self._config, {}, self.state, self.group, self._rig.spark)

    @contextmanager
    def process(self, what: str) -> Iterator[subprocess.Popen[bytes]]:
        """`capture`, `deliver` or `serve`, as `headwater run` has it, in a process that starts with the block."""
        command = [sys.executable, "-m", "bench.child", what, str(self.file), self.group]
        with (
            open(self.file.parent / f"{what}.log", "ab") as errors,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as child,
        ):
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdout.readline()
            child.stdin.write(b"\n")
            child.stdin.flush()
            yield child
            child.stdin.close()
            child.stdin = None
            child.wait(60)

    def served_at(self) -> str:
        """Where the process listens that serves the page, once it does."""
        self.wait(lambda: bool(served_at(self.state, self._config.log.path)))
        return served_at(self.state, self._config.log.path)[0]

    def captured(self) -> Lsn:
        return self._log.end()

    def staged(self) -> int:
        """Rows in the log that the lake does not have."""
        ((rows,),) = self.state.query(
            "SELECT coalesce(sum(rows), 0)::bigint FROM headwater.segments WHERE group_name = %s AND end_lsn > %s",
            (self.group, self.delivered()),
        )
        return int(rows)

    def delivered(self) -> Lsn:
        """How far all of the lake's tables have come."""
        row = self.state.group(self.group)
        return (row and row.delivered_lsn) or Lsn(0)

    def capture_upto(self, position: Lsn) -> None:
        """Capture in a process of its own, until the log is complete up to a position."""
        with self.process("capture"):
            self.wait(lambda: self.captured() >= position)

    def deliver(self) -> float:
        """Seconds that the delivery of what is in the log takes."""
        begun = time.perf_counter()
        flow.deliver(self.mirroring)
        return time.perf_counter() - begun

    def settle(self, database: Database, changes: int = 200, work: Callable[[], None] | None = None) -> None:
        """First copy, then a few changes all the way, so that every table is STREAMING and every code path warm.

        `work` makes the changes, if not a mix of them will do.
        """
        flow.copy(self.mirroring)
        for _ in range(2):
            (work or partial(database.mix, self.tables, changes))()
            self.capture_upto(database.end(self.tables[0]))
            self.deliver()
        states = {row.state for row in self.state.tables(self.group)}
        assert states == {"STREAMING"}, states

    @staticmethod
    def wait(done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, f"nothing came of it in {PATIENCE:.0f} s"
            time.sleep(0.01)

    def close(self) -> None:
        self.state.close()
