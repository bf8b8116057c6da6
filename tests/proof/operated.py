"""A real service under an operator's hands and under faults, and what may be asked of it at a quiet point."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from click.testing import CliRunner

from headwater.change import Lsn
from headwater.commands.cli import cli
from headwater.config import Config
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.state import State
from headwater.testing.postgres import EmbeddedPostgres
from tests.proof.processes import Run, gone, headwater, wait_for

__all__ = ["GROUPS", "TABLES", "Operated", "spelled"]

CONFIG = """
source: {source}
log: ./log
lakes:
  main: {{ducklake: "sqlite:///main.sqlite", data_path: ./main}}
  other: {{ducklake: "sqlite:///other.sqlite", data_path: ./other}}
groups:
  shop:
    lake: main
    flush: {{interval: 200ms}}
    copy: {{rate: 1MB/s}}
    tables: [public.orders, public.parted, "joined.*"]
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}}}}
"""
FAST = {"fsync": "off", "full_page_writes": "off"}
TABLES = ("items", "notes", "clicks")  # `orders`, `parted` and the pattern of the schema `joined` are in the file
PARTITION = 1000  # ids in each partition of `parted`
GROUPS = {"shop": "main", "more": "other"}  # `more` comes and goes
LARGE = 3000  # rows of `clicks`: its copy takes a while
PATIENCE = float(os.environ.get("HEADWATER_PATIENCE", "240"))  # seconds, on a machine that does much else


def spelled(name: str) -> str:
    """A table with its schema."""
    return f"joined.{name}" if name.startswith("joined") else f"public.{name}"


class Operated:
    """A source, two lakes, and a `headwater run` between them."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="headwater-model-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self.folder.chmod(0o755)  # the server's own user must be able to reach its folder when we run as root
        self.server = EmbeddedPostgres(self.folder / "pg", settings=FAST).start()
        self.url = self.server.url()
        self.file = self.folder / "headwater.yaml"
        self.file.write_text(CONFIG.format(source=self.url))
        self.config = Config.load(self.file, {})
        with self.connected() as source:
            for name in ("orders", *TABLES):
                source.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, item text, n numeric(12,2))")
                rows = LARGE if name == "clicks" else 50
                filled = f"SELECT i, repeat(md5(i::text), 20), i FROM generate_series(1, {rows}) i"
                source.execute(f"INSERT INTO {name} {filled}")
            source.execute("CREATE TABLE parted (id bigint PRIMARY KEY, item text) PARTITION BY RANGE (id)")
            source.execute("CREATE SCHEMA joined")
        self.partitions: list[int] = []  # by their numbers
        self._numbers = 0
        for _ in range(2):
            self.add_partition()
        self.runs: list[Run] = []
        self._writing, self._ending = threading.Lock(), threading.Event()
        self._writer = threading.Thread(target=self._write_always, daemon=True)
        self._positions: dict[tuple[str, str, int], int] = {}
        self._confirmed: dict[str, int] = {}
        self.serve()
        wait_for(lambda: self._states().get(("shop", "orders")) == "STREAMING", "the service mirrors", PATIENCE)
        self._writer.start()

    # The service ---------------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        return self.runs[-1]

    def serve(self, failpoint: str = "") -> None:
        """Start a service, if none runs; its processes die wherever the failpoint says."""
        if not self.runs or not self.run.alive:
            self.runs.append(Run(self.file, environment={"HEADWATER_FAILPOINT": failpoint}))

    def stop(self) -> None:
        """End the service as an operator does; nothing of it stays."""
        family = self.run.family()
        self.run.process.send_signal(signal.SIGTERM)
        ended = self.run.process.wait(PATIENCE)
        assert ended in (0, -signal.SIGTERM), self.said()  # the latter before it has begun to listen to signals
        wait_for(lambda: all(map(gone, family)), "every process has ended", 60)

    def kill(self, part: str) -> bool:
        """kill -9 of one process of the service; False if there is none now."""
        with suppress(AssertionError):
            self.run.member(part).kill()
            return True
        return False

    def kill_supervisor(self) -> None:
        """kill -9 of the process that looks after the others; they notice, while a new service starts."""
        self.run.process.kill()
        self.run.process.wait()
        self.serve()

    def said(self) -> str:
        return "\n".join(run.said()[-20000:] for run in self.runs[-2:])

    # What an operator does --------------------------------------------------------------------------------------------

    def connected(self) -> psycopg.Connection:
        """To the source, which may be starting."""
        until = time.monotonic() + 60
        while True:
            try:
                return psycopg.connect(self.url, autocommit=True)
            except psycopg.OperationalError:
                assert time.monotonic() < until, "the source does not answer"
                time.sleep(0.1)

    def execute(self, *statements: str) -> None:
        with self.connected() as source:
            for statement in statements:
                source.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.connected() as source:
            return source.execute(query).fetchall()

    def command(self, *arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["-c", str(self.file), *arguments])
        return done.exit_code, done.output

    def asked(self, call: str) -> tuple[bool, str]:
        """Call a function of `headwater`; whether it was done, and what became of it."""
        try:
            ((number,),) = self.rows(f"SELECT headwater.{call}")
        except psycopg.errors.RaiseException as refusal:
            return False, str(refusal)
        found = f"SELECT failed, outcome FROM headwater.requests WHERE id = {number} AND handled_at IS NOT NULL"
        ((failed, outcome),) = wait_for(lambda: self.rows(found), f"request {number}, {call}, is handled", PATIENCE)
        return not failed, str(outcome)

    # What applications do ---------------------------------------------------------------------------------------------

    @contextmanager
    def still(self) -> Iterator[None]:
        """Inside, the application that always writes does not."""
        with self._writing:
            yield

    def _write_always(self) -> None:
        dice = random.Random(len(self.folder.name))
        while not self._ending.wait(0.2):
            with self._writing, suppress(psycopg.Error, AssertionError):  # the source may be away
                one = PARTITION * dice.choice(self.partitions) + dice.randrange(PARTITION)
                name = dice.choice(("orders", *TABLES))
                self.execute(
                    f"INSERT INTO {name} VALUES ({dice.randint(10**10, 10**11)}, 'always', 1) ON CONFLICT DO NOTHING",
                    f"UPDATE {name} SET n = n + 1 WHERE id = (SELECT max(id) FROM {name})",
                    f"INSERT INTO parted VALUES ({one}, 'always') ON CONFLICT (id) DO UPDATE SET item = 'again'",
                    f"DELETE FROM parted WHERE id = (SELECT max(id) FROM parted WHERE id < {one})",
                )

    def add_partition(self) -> str:
        number = self._numbers = self._numbers + 1
        first = PARTITION * number
        bounds = f"FROM ({first}) TO ({first + PARTITION})"
        rows = f"SELECT {first} + i, 'of the partition' FROM generate_series(1, 50) i ON CONFLICT DO NOTHING"
        self.execute(
            f"CREATE TABLE parted_{number} PARTITION OF parted FOR VALUES {bounds}", f"INSERT INTO parted {rows}"
        )
        self.partitions.append(number)
        return f"partition {number}"

    def take_partition(self, how: str) -> str:
        """The oldest one goes, or loses its rows; there is always one left.

        It must be one that a look at the catalog has found: see what docs/guarantees.md does not promise.
        """
        number = self.partitions[0]
        known = f"partitions->'members' ? 'parted_{number}'::regclass::oid::text"
        if len(self.partitions) < 2 or not self.rows(f"SELECT FROM headwater.tables WHERE name = 'parted' AND {known}"):
            return self.add_partition()
        with self.still():
            if how != "truncate":
                self.partitions.remove(number)
            self.execute({
                "detach": f"ALTER TABLE parted DETACH PARTITION parted_{number}",
                "drop": f"DROP TABLE parted_{number}",
                "truncate": f"TRUNCATE parted_{number}",
            }[how])  # fmt: skip
        return f"{how} partition {number}"

    # Faults -----------------------------------------------------------------------------------------------------------

    def lock_catalog(self, lake: str, seconds: float) -> None:
        """Another client holds the lake's catalog."""
        with closing(sqlite3.connect(self.folder / f"{lake}.sqlite", timeout=30, isolation_level=None)) as catalog:
            catalog.execute("BEGIN EXCLUSIVE")
            time.sleep(seconds)
            catalog.execute("ROLLBACK")

    # What must hold ---------------------------------------------------------------------------------------------------

    def check_positions(self) -> None:
        """No position of a mirror, and none that was confirmed to a slot, goes back."""
        for group, lake in GROUPS.items():
            for source, oid, position in self._lake_positions(lake):
                before = self._positions.get((group, source, oid), 0)
                assert position >= before, f"the position of {oid} in lake {lake} went from {before} to {position}"
                self._positions[group, source, oid] = position
        confirmed = "SELECT slot_name, confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE NOT temporary"
        slots = {name: int(lsn or 0) for name, lsn in self.rows(confirmed)}
        for name, lsn in slots.items():
            assert lsn >= self._confirmed.get(name, 0), f"slot {name} went back to {lsn}"
        self._confirmed = slots

    def _lake_positions(self, lake: str) -> list[tuple[str, int, int]]:
        catalog_file = f"file:{self.folder}/{lake}.sqlite?mode=ro"
        with (
            suppress(sqlite3.OperationalError),  # it is not there yet, or another client has it
            closing(sqlite3.connect(catalog_file, uri=True, timeout=1)) as catalog,
        ):
            return catalog.execute("SELECT source, source_oid, position FROM headwater_position").fetchall()
        return []

    def _states(self) -> dict[tuple[str, str], str]:
        with suppress(psycopg.Error):
            found = self.rows("SELECT group_name, name, state FROM headwater.tables")
            return {(group, name): state for group, name, state in found}
        return {}

    def looked(self) -> None:
        """Wait until the catalog was looked at as it is now, and all rows are gone that went with partitions."""
        ((now,),) = self.rows("SELECT pg_current_wal_insert_lsn()::text")
        with closing(State.connect(self.url)) as state:
            fence = state.add_fence("shop", Lsn.parse(now), 2 * PATIENCE)

        def over() -> bool:
            with suppress(psycopg.Error):
                looked = f"SELECT FROM headwater.groups WHERE name = 'shop' AND watched_lsn >= '{now}'"
                return bool(self.rows(looked)) and not self.rows("SELECT FROM headwater.removals")
            return False

        try:
            wait_for(over, f"fence {fence}, partitions have taken their rows along", PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from error

    def settle(self, wanted: dict[tuple[str, str], str]) -> None:
        """Wait until the tables are in these states. What failed on the way is tried again at once."""
        self.serve()

        def settled() -> bool:
            now = self._states()
            for group, name in (each for each in wanted if now.get(each) == "ERRORED"):
                self.rows(f"SELECT headwater.resume_table('{spelled(name)}', group_name => '{group}')")
                time.sleep(1)
            return all(now.get(each) == state for each, state in wanted.items())

        try:
            wait_for(settled, "every table is where it should be", PATIENCE)
        except AssertionError as error:
            why = self.rows("SELECT group_name, name, state, error, resync FROM headwater.tables")
            raise AssertionError(f"{error}: {wanted} wanted, found {why}\n{self.said()}") from error

    def verify(self, tables: list[str]) -> None:
        """The lake equals the source."""
        code, said = headwater(self.file, "verify", "--timeout", str(int(PATIENCE)), *tables, timeout=2 * PATIENCE)
        assert code == 0, f"{said}\n{self.said()}"

    def check_leaks(self, published: dict[str, set[str]], running: set[str]) -> None:
        """Nothing is there that belongs to nothing."""
        slots = "SELECT slot_name::text, temporary FROM pg_replication_slots ORDER BY 1"
        expected = [(f"headwater_{group}", False) for group in sorted(published)]
        wait_for(lambda: self.rows(slots) == expected, f"the slots are {expected}", 60)
        listed = Counter(self.rows("SELECT pubname::text, tablename::text FROM pg_publication_tables"))
        assert listed == Counter((f"headwater_{group}", name) for group, names in published.items() for name in names)
        with closing(State.connect(self.url)) as state:
            segments = "SELECT path FROM headwater.segments WHERE group_name = %s"
            for group in GROUPS:

                def odd(group: str = group) -> set[str]:
                    """Segments without a file, and files that are no segments."""
                    known = {name for (name,) in state.query(segments, (group,))}
                    return known ^ {
                        path.name for path in (self.folder / "log" / "segments").rglob(f"{group}/*.parquet")
                    }

                try:
                    wait_for(lambda: not odd(), f"the log of {group} is what the state says", 60)
                except AssertionError as error:
                    raise AssertionError(f"{error}: {odd()}\n{self.said()}") from error
        children = Counter(each.cmdline()[-1] for each in self.run.process.children() if "_capture" in each.cmdline())
        assert children == Counter(running), f"{children}\n{self.said()}"

    def check_that_nothing_is_left(self) -> None:
        """Once the service has ended: no process, no connection, and no file that neither log nor lake knows."""
        clients = (
            "SELECT application_name, query FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type IN ('client backend', 'walsender')"
        )
        wait_for(lambda: not self.rows(clients), "every connection is closed", 60)
        assert self.rows("SELECT FROM pg_replication_slots WHERE active OR temporary") == []
        assert not [each for each in (self.folder / "log" / "scratch").rglob("*") if each.is_file()]
        for lake in GROUPS.values():
            assert self._files_of(lake) <= self._known_to(lake), f"{lake}\n{self.said()}"

    def _files_of(self, lake: str) -> set[str]:
        return {str(path) for path in (self.folder / lake).rglob("*.parquet")}

    def _known_to(self, lake: str) -> set[str]:
        """The files that the catalog of a lake knows, if only to delete them."""
        if not (self.folder / f"{lake}.sqlite").exists():
            return set()
        meta = "__ducklake_metadata_lake.ducklake_"
        with connect(threads=1) as con:
            attach(con, parse_lake_url(f"sqlite:///{self.folder / lake}.sqlite"), "lake", read_only=True)
            found = con.execute(
                f"SELECT s.path || t.path || f.path FROM (SELECT table_id, path FROM {meta}data_file"
                f" UNION ALL SELECT table_id, path FROM {meta}delete_file) f"
                f" JOIN (SELECT DISTINCT table_id, schema_id, path FROM {meta}table) t USING (table_id)"
                f" JOIN (SELECT DISTINCT schema_id, path FROM {meta}schema) s USING (schema_id)"
                f" UNION SELECT path FROM {meta}files_scheduled_for_deletion"
            ).fetchall()
        return {str(self.folder / lake / path) for (path,) in found}

    def write(self, dice: random.Random) -> str:
        """A random transaction, or a few."""
        name = dice.choice(("orders", *TABLES))
        first, some = dice.randint(1, 10**9), dice.randint(1, 40)
        one = dice.choice((
            f"INSERT INTO {name} SELECT {first} + i, 'new', i FROM generate_series(1, {some}) i ON CONFLICT DO NOTHING",
            f"UPDATE {name} SET n = n + 1 WHERE id % {dice.randint(2, 9)} = 0",
            f"UPDATE {name} SET item = 'changed ' || {first} WHERE id = (SELECT min(id) FROM {name})",
            f"UPDATE {name} SET id = -id WHERE id = (SELECT max(id) FROM {name})",
            f"DELETE FROM {name} WHERE id % {dice.randint(5, 9)} = 1",
            f"TRUNCATE {name}" if name != "clicks" else "DELETE FROM clicks WHERE id < 10",
            f"INSERT INTO orders SELECT {first} - id % 97, item, n FROM {name} LIMIT {some} ON CONFLICT DO NOTHING",
        ))  # fmt: skip
        with suppress(psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):  # with who always writes
            self.execute(one)
        return one

    def close(self) -> None:
        self._ending.set()
        if self._writer.is_alive():
            self._writer.join()
        for run in self.runs:
            if run.alive:
                run.kill()
        self.server.stop()
        self._temporary.cleanup()
