"""Deliveries under a steady load, alone and with a hundred open pages and a Prometheus that scrapes every second."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field

import psutil

from bench import steps
from bench.freshness import CHANGES_PER_SECOND, Beats, write
from bench.report import Row
from bench.rig import Pipeline, Rig
from bench.scale import Scale
from headwater.state.deliveries import DeliveryRow

__all__ = ["PAGES"]

OPEN_PAGES = 100
SETTLE = 2.0  # seconds: what it takes to open them is not measured
LONGEST = 3600.0  # that the writer goes on


@dataclass(slots=True)
class _Seen:
    """What the pages got while it was measured, and what serving them took."""

    events: int = 0
    scrapes: int = 0
    cpu_seconds: list[float] = field(default_factory=list)


def _pages(rig: Rig, scale: Scale) -> Iterator[Row]:
    with rig.database("pages") as database:
        database.create("orders", scale.seed)
        database.execute("CREATE TABLE beat (id int PRIMARY KEY, number bigint)")
        database.execute("INSERT INTO beat VALUES (1, -1)")
        tables = ["orders", "beat"]
        pipeline = Pipeline(rig, database, "pages", tables, flush="{interval: 1s}", server="{port: 0}")
        seen = _Seen()
        alone, watched = [], []
        with pipeline.process("capture"), pipeline.process("deliver"):
            with _written(pipeline, database.url, scale):
                for _ in range(scale.repeats):
                    alone.append(_delivery(pipeline, scale.watched))
                    with _watched(pipeline, seen):
                        watched.append(_delivery(pipeline, scale.watched))
            end = database.end("orders")
            pipeline.wait(lambda: pipeline.delivered() >= end)
        database.same_as(pipeline.address, ["orders"])
        steps.close([pipeline])
    cores = statistics.median(seen.cpu_seconds) / (scale.watched + SETTLE)
    note = f"{seen.events:,} events, {seen.scrapes} scrapes; serving them took {cores:.2f} of a core"
    what = f"a delivery at {CHANGES_PER_SECOND:,} changes/s, with {OPEN_PAGES} open pages and a scrape a second"
    yield Row("pages", what, tuple(watched), 1.05, "without them", tuple(alone), note=note)


@contextmanager
def _written(pipeline: Pipeline, url: str, scale: Scale) -> Iterator[None]:
    """Within the block, changes keep coming to tables that are copied."""
    stop = threading.Event()
    writer = threading.Thread(target=write, args=(url, Beats(), scale.seed, LONGEST, stop))
    pipeline.wait(lambda: {row.state for row in pipeline.state.tables(pipeline.group)} == {"STREAMING"})
    writer.start()
    try:
        pipeline.wait(lambda: len(pipeline.state.deliveries(pipeline.group)) > 2)  # what they need is warm
        yield
    finally:
        stop.set()
        writer.join()


@contextmanager
def _watched(pipeline: Pipeline, seen: _Seen) -> Iterator[None]:
    """Within the block, pages are open."""
    with pipeline.process("serve") as server:
        command = [sys.executable, "-m", "bench.watchers", pipeline.served_at(), str(OPEN_PAGES)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watchers:
            assert watchers.stdout is not None
            assert watchers.stdout.readline() == "ready\n", "the pages could not be opened"
            process = psutil.Process(server.pid)
            begun = _cpu(process)
            time.sleep(SETTLE)
            yield
            seen.cpu_seconds.append(_cpu(process) - begun)
            said, _ = watchers.communicate()  # which ends its standard input
        assert watchers.returncode == 0, "a page was closed, or a scrape failed"
        got = json.loads(said)
        seen.events += got["events"]
        seen.scrapes += got["scrapes"]


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _delivery(pipeline: Pipeline, seconds: float) -> float:
    """The median time of the deliveries that begin and end within so many seconds."""
    before = max(each.id for each in pipeline.state.deliveries(pipeline.group))
    time.sleep(seconds)
    found = pipeline.state.deliveries(pipeline.group, after=before, limit=10_000)
    assert len(found) > 1, f"no deliveries in {seconds:.0f} s"
    return statistics.median(map(_seconds, found[:-1]))  # the oldest may have begun before


def _seconds(delivery: DeliveryRow) -> float:
    return float(sum(astuple(delivery.phases)) - delivery.phases.wait)


PAGES: dict[tuple[str, ...], Callable[[Rig, Scale], Iterator[Row]]] = {("pages",): _pages}
