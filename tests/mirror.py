"""A whole mirror under a test's own hands: the source to write to, steps to take, the lake read back by DuckDB."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from headwater import flow
from headwater.change import Lsn, TableName
from headwater.config import Config
from headwater.control.expanding import with_patterns
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.lake import Lake
from headwater.ducklake.opening import open_lake
from headwater.ducklake.url import parse_lake_url
from headwater.errors import CommitConflict
from headwater.files import S3, is_local
from headwater.lake import quarantine, reading
from headwater.lake.maintenance import MaintenancePolicy
from headwater.lake.sqltext import identifier
from headwater.log import Log
from headwater.postgres.connect import connect as connect_source
from headwater.sink.addresses import group_lake
from headwater.sink.ducklake import DuckLakeSink
from headwater.sink.ducklake.standing import DuckLakeStanding
from headwater.sink.iceberg.reader import ReadTable, scan
from headwater.sink.iceberg.standing import POSITION
from headwater.source import triggers as ddl
from headwater.supervise.effective import served
from headwater.supervise.opening import mirroring, open_log, open_room, open_state
from headwater.supervise.readying import make_ready
from headwater.verify import Verified, verify

__all__ = ["JVM", "LOOK_EVERY", "IcebergMirror", "Mirror", "open_ducklake", "standings_of"]

CONFIG = """
source: {source}
log: {log}
lakes:
  main: {lake}
groups:
  g: {{lake: main, flush: {{interval: 100ms, inline: {inline}}}, tables: [{tables}]}}
maintenance: {maintenance}
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "{jvm}"}}}}
"""
# The optimising compiler and a collector with threads of its own would take more time than they save in any test run.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

LOOK_EVERY = 0.5  # seconds
_CHANGED = re.compile(r'(INSERT INTO|UPDATE|DELETE FROM) lake\.((?P<schema>\w+)\.)?(?P<name>\w+|"[^"]+")')
# What PyIceberg has other than DuckDB, and what it cannot: the metrics of dates before Christ.
_FROM_DUCKDB = {"uuid": "unhex(replace({}::VARCHAR, '-', ''))"}
_NO_METRICS = {"write.metadata.metrics.default": "none"}


class Mirror:
    """`start` copies and begins to capture; `sync` delivers everything committed so far."""

    kind = "ducklake"

    def __init__(
        self, url: str, spark: SparkSession, folder: Path, catalog: str = "sqlite:///lake.sqlite", data: str = "./lake"
    ) -> None:
        self.url, self.spark, self.folder = url, spark, folder
        self.catalog, self.data = catalog, data
        self.source = psycopg.connect(url, autocommit=True)
        self.log = "./log"  # what the config says about it
        self.inline = "on"  # what the config says about small deliveries
        self.maintenance = "off"  # of the lake by `run`: most tests count files
        self.triggers = True  # event triggers report schema changes; False: as for a role that may not install them
        self._stop = threading.Event()
        self._capture: threading.Thread | None = None
        self._lake: duckdb.DuckDBPyConnection | None = None

    @property
    def file(self) -> Path:
        return self.folder / "headwater.yaml"

    @property
    def entry(self) -> str:
        """The lake, as the config has it."""
        return f'{{ducklake: "{self.catalog}", data_path: {self.data}}}'

    def configure(self, *tables: str | dict[str, Any]) -> Config:
        entries = ", ".join(map(json.dumps, tables))  # which YAML reads too
        options = {"inline": self.inline, "maintenance": self.maintenance, "log": self.log}
        text = CONFIG.format(source=self.url, lake=self.entry, tables=entries, jvm=JVM, **options)
        self.file.write_text(text)
        return Config.load(self.file, {})

    def start(self, *tables: str | dict[str, Any], copy: bool = True) -> None:
        """Mirror these tables (all of `public` by default): capture in a thread, and the first copy."""
        names = tables or [
            f"public.{name}" for (name,) in self.rows_of("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ]
        self.config = self.configure(*names)
        self._open()
        self.capture()
        if copy:
            flow.copy(self.m)

    def reopen(self, *tables: str | dict[str, Any]) -> None:
        """As a new `headwater run` begins, with other tables or options if given."""
        if tables:
            self.config = self.configure(*tables)
        self.m.close()
        self.m.state.close()
        self._open()

    def _open(self) -> None:
        state = open_state(self.config)
        make_ready(with_patterns(served(self.config, state))[0], state)
        if not self.triggers:
            with closing(connect_source(self.url)) as connection:
                ddl.remove(connection)
            state.note_ddl("g", None)
            state.trust_ddl("g", Lsn(0))  # as if there had never been any
        self.m = mirroring(self.config, {}, state, "g", self.spark)

    def capture(self) -> None:
        self._capture = threading.Thread(target=self.capture_here)
        self._capture.start()

    def capture_here(self) -> None:
        """Capture in this thread, until it breaks."""
        with closing(open_state(self.config)) as state:
            self.capture_with(open_log(self.config, state, "g"))

    def capture_with(self, log: Log) -> None:
        """The same, with a log that was opened before."""
        with closing(open_state(self.config)) as state:
            room = open_room(self.config, state, log)
            flow.capture(self.url, state, log, self._stop, look_every=LOOK_EVERY, room=room)

    def stop_capture(self) -> None:
        self._stop.set()
        if self._capture is not None:
            self._capture.join()
        self._stop.clear()

    def execute(self, *statements: str) -> None:
        """Each statement in its own transaction."""
        for statement in statements:
            self.source.execute(statement)

    def transaction(self, *statements: str) -> None:
        with self.source.transaction():
            self.execute(*statements)

    def captured(self) -> None:
        """Wait until the log has everything committed so far."""
        (lsn,) = self.rows_of("SELECT pg_current_wal_insert_lsn()::text")[0]
        self.source.execute("SELECT pg_logical_emit_message(true, 'test', 'move on')")
        self.m.state.add_fence("g", Lsn.parse(lsn), 60)
        deadline = time.monotonic() + 30
        while self.m.log.end() < Lsn.parse(lsn):
            assert time.monotonic() < deadline, f"capture does not reach {lsn}; it is at {self.m.log.end()}"
            time.sleep(0.02)

    def looked(self) -> None:
        """Wait until the source's catalog was looked at as it is now."""
        (lsn,) = self.rows_of("SELECT pg_current_wal_insert_lsn()::text")[0]
        self.m.state.add_fence("g", Lsn.parse(lsn), 60)  # it is noted only if a fence waits for it
        deadline = time.monotonic() + 30
        while (group := self.m.state.group("g")) is None or (group.watched_lsn or Lsn(0)) < Lsn.parse(lsn):
            assert time.monotonic() < deadline, f"the catalog was not looked at after {lsn}"
            self.source.execute("SELECT pg_logical_emit_message(true, 'test', 'move on')")
            time.sleep(0.1)

    def sync(self) -> list[flow.Delivered]:
        """Deliver everything committed so far."""
        self.captured()
        done = []
        while (step := flow.deliver(self.m)).upto or self._asked_for(step):
            done += [step] if step.upto else []
        return done

    def settle(self) -> bool:
        """Deliver everything committed so far, and copy again what could not follow; whether there was such a table."""
        self.sync()
        copied = False
        while (made := bool(flow.copy(self.m))) or flow.place_removals(self.m):
            copied |= made
            self.sync()
        if any(row.state == "CATCHUP" for row in self.m.state.tables("g")):
            self.sync()  # after one that had landed before it could be noted
            while flow.place_removals(self.m):
                self.sync()
        flow.settle_names(self.m)
        return copied

    def _asked_for(self, step: flow.Delivered) -> bool:
        """Whether there may be more: a fence waits for a position on the way, and there are tables to bring there."""
        end = self.m.log.end()
        return step.position > Lsn(0) and any(fence.lsn <= end for fence in self.m.state.fences("g"))

    @property
    def lake(self) -> duckdb.DuckDBPyConnection:
        """DuckDB with the lake attached as `lake`, all along."""
        if self._lake is None:
            self._lake = self.attached()
        return self._lake

    def attached(self) -> duckdb.DuckDBPyConnection:
        """A new DuckDB with the lake attached as `lake`, to read it and to do what other clients do."""
        s3 = None if is_local(self.data) else S3.from_environment(os.environ)
        con = connect()
        attach(con, parse_lake_url(self.config.ducklakes["main"].catalog), "lake", s3=s3)
        return con

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the lake; tables are `lake.public.t`."""
        return self.lake.execute(sql).fetchall()

    def tables(self) -> list[str]:
        """The names of the mirrors, sorted."""
        found = self.ask("SELECT table_name FROM information_schema.tables WHERE table_catalog = 'lake'")
        return sorted(name for (name,) in found if name != quarantine.NAME.name)

    def files(self) -> set[str]:
        """The Parquet files in the lake's folder."""
        return {str(path) for path in (self.folder / "lake").rglob("*.parquet")}

    def data_folders(self) -> dict[str, str]:
        """Where the tables' data files are, by the tables' names."""
        return {table.name: table.path for table in open_ducklake(self.config).tables().values()}

    @property
    def catalog_file(self) -> Path:
        """The SQLite file that has the lake's catalog."""
        return self.folder / "lake.sqlite"

    def drop_in_lake(self, table: str) -> None:
        """Another client drops a mirror."""
        self.ask(f"DROP TABLE lake.public.{table}")

    def add_in_lake(self, table: str, column: str) -> None:
        """Another client adds a column of texts to a mirror."""
        self.ask(f"ALTER TABLE lake.public.{table} ADD COLUMN {column} VARCHAR")

    def snapshots(self, table: str) -> list[int]:  # noqa: ARG002
        """The lake's numbers for the snapshots of a table, oldest first; all tables of a DuckLake have the same."""
        return [
            each for (each,) in self.ask("SELECT snapshot_id FROM lake.snapshots() WHERE snapshot_id > 0 ORDER BY 1")
        ]

    def at(self, table: str, snapshot: int) -> str:
        """A mirror as it was in a snapshot, for `ask`."""
        return f"lake.public.{table} AT (VERSION => {snapshot})"

    def known_files(self) -> set[str]:
        """The files that the lake's catalog knows, if only to delete them."""
        meta = "__ducklake_metadata_lake.ducklake_"
        found = self.ask(
            f"SELECT s.path || t.path || f.path FROM (SELECT table_id, path FROM {meta}data_file"
            f" UNION ALL SELECT table_id, path FROM {meta}delete_file) f"
            f" JOIN (SELECT DISTINCT table_id, schema_id, path FROM {meta}table) t USING (table_id)"
            f" JOIN (SELECT DISTINCT schema_id, path FROM {meta}schema) s USING (schema_id)"
            f" UNION SELECT path FROM {meta}files_scheduled_for_deletion"
        )
        return {str(self.folder / "lake" / path) for (path,) in found}

    def flush(self) -> int:
        """Move rows from the lake's catalog into files, as maintenance does; how many."""
        maintenance = self.m.sink.maintenance()
        assert maintenance is not None
        policy = MaintenancePolicy(merge=False)
        done = [flow.maintain(lambda: self.spark, maintenance, each, policy) for each in maintenance.tables()]
        return sum(each.flushed_rows for each in done)

    def inlined(self) -> int:
        """How many rows of the lake's newest snapshot are in its catalog."""
        with closing(open_ducklake(self.config)) as lake:
            ids = [each.id for each in lake.tables().values()]
            found = lake.inlined_counts(ids, lake.snapshot()).values()
        return sum(each.live for counts in found for each in counts)

    def rows_of(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the source."""
        return self.source.execute(sql).fetchall()

    def verify(self, tables: Iterable[str] = ()) -> list[Verified]:
        return verify(self.m, [TableName.parse(table) for table in tables], 30)

    def assert_equal(self, *tables: str) -> None:
        """The lake's rows, read by DuckDB, are the source's, read by psycopg."""
        for table in tables:
            ours = Counter(map(_comparable, self.ask(f"SELECT * FROM lake.public.{table}")))
            theirs = Counter(map(_comparable, self.rows_of(f"SELECT * FROM public.{table}")))
            assert ours == theirs, (
                f"only in the lake {list(ours - theirs)[:3]}, only in {table} {list(theirs - ours)[:3]}"
            )

    def close(self) -> None:
        self.stop_capture()
        if self._lake is not None:
            self._lake.close()
        self.source.close()
        if hasattr(self, "m"):
            self.m.state.close()


class IcebergMirror(Mirror):
    """The same into an Iceberg lake."""

    kind = "iceberg"
    _viewed: list[tuple[Any, ...]] | None = None  # what the views of `lake` show
    _others_wrote = False  # since the last `sync`

    @property
    def entry(self) -> str:
        return '{iceberg: {type: sql, uri: "sqlite:///ice.sqlite", warehouse: ./lake}}'

    @property
    def lake(self) -> duckdb.DuckDBPyConnection:
        """DuckDB with views of the tables as they are now: a view shows one snapshot, so each commit needs new ones."""
        newest = self._newest()
        if self._lake is None or newest is None or newest != self._viewed:
            if self._lake is not None:
                self._lake.close()
            self._lake, self._viewed = self.attached(), newest
        return self._lake

    def _newest(self) -> list[tuple[Any, ...]] | None:
        """Where the tables' newest metadata is; None if the catalog is not in SQLite."""
        if not self.catalog_file.exists():
            return None
        with closing(sqlite3.connect(self.catalog_file)) as catalog:
            found = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables ORDER BY 1, 2"
            return catalog.execute(found).fetchall()

    def sync(self) -> list[flow.Delivered]:
        """What others did to the tables since they were loaded is a conflict once, and then planned again."""
        others_wrote, self._others_wrote = self._others_wrote, False
        with suppress(CommitConflict) if others_wrote else nullcontext():
            return super().sync()
        return super().sync()

    @property
    def catalog_file(self) -> Path:
        return self.folder / "ice.sqlite"

    @property
    def properties(self) -> dict[str, str]:
        """Of the lake's catalog."""
        return {"type": "sql", "uri": f"sqlite:///{self.catalog_file}", "warehouse": str(self.folder / "lake")}

    @contextmanager
    def other_client(self) -> Iterator[Catalog]:
        """The catalog as stock PyIceberg opens it, to do what other clients do."""
        self._others_wrote = True
        with self._stock() as catalog:
            yield catalog

    def _stock(self) -> closing[Catalog]:
        return closing(load_catalog("default", **self.properties))

    def table(self, name: str) -> Table:
        """A mirror as stock PyIceberg loads it."""
        with self._stock() as catalog:
            return catalog.load_table(("public", name))

    def drop_in_lake(self, table: str) -> None:
        with self.other_client() as catalog:
            catalog.drop_table(("public", table))

    def add_in_lake(self, table: str, column: str) -> None:
        with self.other_client() as catalog, catalog.load_table(("public", table)).update_schema() as schema:
            schema.add_column(column, StringType())

    def snapshots(self, table: str) -> list[int]:
        """A snapshot's number is the position that it shows."""
        return sorted(lsn for lsn, _ in self._positions(self.table(table)))

    def at(self, table: str, snapshot: int) -> str:
        found = self.table(table)
        _, id_ = max(each for each in self._positions(found) if each[0] <= snapshot)
        return scan(ReadTable(found.metadata_location, id_))

    def _positions(self, table: Table) -> list[tuple[int, int]]:
        """The positions of a mirror's snapshots, with the ids."""
        said = {each.snapshot_id: each.summary.additional_properties for each in table.snapshots() if each.summary}
        return [(Lsn.parse(each[POSITION]).value, id_) for id_, each in said.items() if POSITION in each]

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        if (changed := _CHANGED.match(sql)) is None:
            return super().ask(sql)
        self._change_by_hand(sql, (changed["schema"] or quarantine.NAME.schema, changed["name"]))
        return []

    def _change_by_hand(self, sql: str, name: tuple[str, str]) -> None:
        """What other clients do: the statement, on a table of DuckDB's own, and PyIceberg overwrites the lake's."""
        con, place = self.lake, f"lake.{name[0]}.{name[1]}"
        con.execute(f"CREATE TABLE lake.changed AS FROM {place}; DROP VIEW {place}")
        con.execute(f"CREATE TABLE {place} AS FROM lake.changed")
        con.execute(sql)
        with self.other_client() as catalog, warnings.catch_warnings(action="ignore"):  # of rows that are not there
            table = catalog.load_table(tuple(each.strip('"') for each in name))
            kinds = {field.name: _FROM_DUCKDB.get(str(field.field_type), "{}") for field in table.schema().fields}
            columns = ", ".join(f"{how.format(identifier(each))} AS {identifier(each)}" for each, how in kinds.items())
            rows = con.execute(f"SELECT {columns} FROM {place}").to_arrow_table()
            with table.transaction() as changing:
                changing.set_properties(_NO_METRICS)
                changing.overwrite(rows.cast(table.schema().as_arrow()))

    def data_folders(self) -> dict[str, str]:
        return {table.name()[-1]: f"{table.metadata.location}/data" for table in self._all_tables()}

    def _all_tables(self) -> list[Table]:
        with self._stock() as catalog:
            names = [each for (schema,) in catalog.list_namespaces() for each in catalog.list_tables(schema)]
            return [catalog.load_table(each) for each in names]

    def known_files(self) -> set[str]:
        """The files of all snapshots of the catalog's tables."""
        return {
            entry.data_file.file_path
            for table in self._all_tables()
            for snapshot in table.snapshots()
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io)
        }

    def attached(self) -> duckdb.DuckDBPyConnection:
        con = reading.connect()
        queried = group_lake(self.config, {}, "g").queried()
        queried.prepare(con)
        queried.attach(con, "lake")
        return con


def open_ducklake(config: Config) -> Lake:
    """The lake of the tests' one group, opened once more."""
    lake = config.ducklakes["main"]
    return open_lake(lake.catalog, lake.data_path)


def standings_of(m: flow.Mirroring) -> Mapping[int, DuckLakeStanding[Lsn]]:
    """What the lake has, with DuckLake's own tables."""
    assert isinstance(m.sink, DuckLakeSink)
    return m.sink.standings()


def _comparable(row: tuple[Any, ...]) -> str:
    """The two drivers have time zone classes of their own; the moments are the same."""
    return repr([value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value for value in row])
