"""A mirror that is left alone: nothing is broken, and nothing may grow but the rows.

Four tables get 350 changes a second, with updates over the whole key space, and a fifth has ten rows that change in
each transaction. Files, memory and delivery times are sampled; at the end a full scan of the four is compared with one
of the same rows freshly copied.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import click
import psutil
import psycopg

from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.testing.postgres import EmbeddedPostgres

__all__ = ["endure"]

TABLES = ("orders", "items", "events", "accounts")
HOT, HOT_ROWS = "hot", 10
ROWS = 100_000  # of each table at the beginning: with few, a scan is nothing but reading the catalog
FILES, SLOWER, FLAT = 150, 2.0, 1.3  # the limits: live files, a scan against a fresh copy, the end against the middle
SAMPLE_EVERY = 15.0
WARM = 900.0  # seconds: in a shorter run, memory is still getting warm, and no row has been flushed for its age
PATIENCE = 600.0
SCANS = 5

_CONFIG = """
source: {url}
log: ./log
lakes: {{main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}}}
groups: {{{group}: {{flush: {{interval: 1s}}, tables: [{tables}]}}}}
spark: {{master: "local[2]"}}
"""
_CREATE = "CREATE TABLE {0} (id bigint PRIMARY KEY, amount numeric(12,2), status text, note text, at timestamptz)"
_ROW = "i, i % 1000, 'new', 'row number ' || i, now()"
_DELIVERED = re.compile(rb"is the source at .*?([\d.]+) s\)")
_HOT_MAINTAINED = re.compile(rb"maintained public\.hot")
_LIVE_FILES = "SELECT sum(file_count + delete_file_count) FROM ducklake_table_info('lake')"


@dataclass(slots=True)
class Samples:
    """What was seen, each with the seconds since the begin."""

    files: list[tuple[float, float]] = field(default_factory=list)
    memory: defaultdict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    deliveries: list[tuple[float, float]] = field(default_factory=list)
    hot: int = 0  # how often maintenance did something to the table whose rows change all the time

    def problems(self, seconds: float) -> Iterator[str]:
        most = max(each for _, each in self.files)
        if most > FILES:
            yield f"{most:.0f} live files, more than {FILES}"
        if self.hot > 2 + seconds / 60:
            yield f"{self.hot} times in {seconds / 60:.0f} minutes, maintenance was at work on {HOT_ROWS} rows"
        series = {f"memory of {name}": each for name, each in self.memory.items()}
        for what, values in {**series, "95th percentile of deliveries": self.deliveries}.items():
            then, now = (_high(values, seconds * first, seconds * (first + 0.25)) for first in (0.25, 0.75))
            click.echo(f"{what}: {then:.2f} in the second quarter, {now:.2f} in the last")
            if now > then * FLAT and seconds >= WARM:
                yield f"{what} has grown from {then:.2f} to {now:.2f}"


def endure(folder: Path, hours: float, rate: float) -> list[str]:
    """What did not stay as it should."""
    server = EmbeddedPostgres(folder / "pg").start()
    try:
        seconds = hours * 3600
        _create(server.url())
        mirror = _configured(folder / "mirror", server.url(), "mirror")
        _headwater(mirror, "run", "--until-caught-up")
        samples = _watched(mirror, server.url(), seconds, rate)
        _headwater(mirror, "run", "--until-caught-up")
        problems = list(samples.problems(seconds))
        if _headwater(mirror, "verify", "--timeout", "600"):
            problems.append("verify found a difference")
        copied = _configured(folder / "copy", server.url(), "copied")
        _headwater(copied, "run", "--until-caught-up")
        ours, fresh = (_scan_seconds(file.parent / "lake.sqlite") for file in (mirror, copied))
        click.echo(f"a full scan takes {ours:.3f} s, of a fresh copy {fresh:.3f} s")
        if ours > fresh * SLOWER and seconds >= WARM:
            problems.append(f"a full scan takes {ours / fresh:.1f} times as long as of a fresh copy")
    finally:
        server.stop()
    for problem in problems:
        click.echo(f"NOT RIGHT: {problem}")
    return problems


def _create(url: str) -> None:
    with psycopg.connect(url) as source:
        for table in TABLES:
            source.execute(_CREATE.format(table))
            source.execute(f"INSERT INTO {table} SELECT {_ROW} FROM generate_series(1, {ROWS}) AS i")
        source.execute(_CREATE.format(HOT))
        source.execute(f"INSERT INTO {HOT} SELECT {_ROW} FROM generate_series(1, {HOT_ROWS}) AS i".encode())


def _configured(folder: Path, url: str, group: str) -> Path:
    folder.mkdir(parents=True)
    file = folder / "headwater.yaml"
    tables = ", ".join(f"public.{table}" for table in (*TABLES, HOT))
    file.write_text(_CONFIG.format(url=url, group=group, tables=tables))
    return file


def _headwater(file: Path, *arguments: str) -> int:
    return subprocess.run(_command(file, *arguments), check=False).returncode


def _command(file: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "headwater", "-c", str(file), *arguments]


def _watched(file: Path, url: str, seconds: float, rate: float) -> Samples:
    """Write for so long under `headwater run`, and look at it meanwhile."""
    samples, stop = Samples(), threading.Event()
    with _run(file) as run, _writing(url, rate, stop), (file.parent / "run.log").open("rb") as log:
        _wait_for_delivery(log)
        begun = time.monotonic()
        while (elapsed := time.monotonic() - begun) < seconds:
            time.sleep(SAMPLE_EVERY)
            samples.files.append((elapsed, _live_files(file.parent / "lake.sqlite")))
            for name, size in _memory(run).items():
                samples.memory[name].append((elapsed, size))
            said = log.read()
            samples.deliveries += [(elapsed, float(found[1])) for found in _DELIVERED.finditer(said)]
            samples.hot += len(_HOT_MAINTAINED.findall(said))
            click.echo(f"{elapsed / 60:6.1f} min  {samples.files[-1][1]:.0f} live files")
    return samples


def _wait_for_delivery(log: BinaryIO) -> None:
    """A busy machine takes minutes to start."""
    deadline = time.monotonic() + PATIENCE
    while not _DELIVERED.search(log.read()):
        if time.monotonic() > deadline:
            raise click.ClickException("nothing was delivered")
        time.sleep(1)


@contextmanager
def _run(file: Path) -> Iterator[psutil.Process]:
    with (file.parent / "run.log").open("wb") as log, subprocess.Popen(_command(file, "run"), stderr=log) as run:
        yield psutil.Process(run.pid)
        run.terminate()
        run.wait(120)


@contextmanager
def _writing(url: str, rate: float, stop: threading.Event) -> Iterator[None]:
    writer = threading.Thread(target=_write, args=(url, rate, stop))
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def _write(url: str, rate: float, stop: threading.Event) -> None:
    """A transaction over all tables, seven changes in each: four updates anywhere, two inserts, a delete."""
    pause, last = len(TABLES) * 7 / rate, ROWS
    with psycopg.connect(url) as source:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            due += pause
            for table in TABLES:
                some = f"SELECT 1 + (random() * {last})::bigint FROM generate_series(1, 4)"
                source.execute(f"UPDATE {table} SET amount = amount + 1, at = now() WHERE id IN ({some})".encode())
                new = f"SELECT {_ROW} FROM generate_series({last + 1}, {last + 2}) AS i"
                source.execute(f"INSERT INTO {table} {new}".encode())
                source.execute(f"DELETE FROM {table} WHERE id = 1 + (random() * {last})::bigint".encode())
            source.execute(f"UPDATE {HOT} SET amount = amount + 1, at = now()".encode())
            source.commit()
            last += 2


def _live_files(catalog: Path) -> float:
    with connect(threads=1) as lake:
        attach(lake, parse_lake_url(f"sqlite:///{catalog}"), "lake", read_only=True)
        row = lake.execute(_LIVE_FILES).fetchone()
        assert row is not None
        return float(row[0] or 0)


def _memory(run: psutil.Process) -> dict[str, float]:
    """MiB of each kind of process under a run."""
    found: defaultdict[str, float] = defaultdict(float)
    for process in [run, *run.children(recursive=True)]:
        with suppress(psutil.Error):
            words = " ".join(process.cmdline())
            kinds = {"_capture": "capture", "org.apache.spark": "the JVM", "pyspark.daemon": "Spark's workers"}
            name = next((kind for word, kind in kinds.items() if word in words), "the driver and the supervisor")
            found[name] += process.memory_full_info().pss / 2**20
    return found


def _scan_seconds(catalog: Path) -> float:
    with connect(threads=2) as lake:
        attach(lake, parse_lake_url(f"sqlite:///{catalog}"), "lake", read_only=True)
        seconds = []
        for _ in range(SCANS):
            begun = time.perf_counter()
            for table in TABLES:
                lake.execute(f"SELECT count(*), sum(hash(t)) FROM lake.public.{table} AS t").fetchall()
            seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def _high(values: Sequence[tuple[float, float]], first: float, end: float) -> float:
    """The 95th percentile of what was seen in this part of the run."""
    here = [value for at, value in values if first <= at < end] or [0.0]
    return statistics.quantiles([*here, *here], n=20, method="inclusive")[-1]
