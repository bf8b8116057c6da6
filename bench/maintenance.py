"""What maintenance costs the deliveries that it runs beside: memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil

from bench import steps
from bench.freshness import Beats, write
from bench.memory import memory_of
from bench.report import Row
from bench.rig import Pipeline, Rig
from bench.scale import Scale
from bench.work import Database

__all__ = ["MAINTENANCE"]

# Rows stay in the catalog for a moment only: there is something to flush and to merge all the time.
_FLUSH = "{interval: 1s, inline: {rows: 2000, age: 10s}}"


@dataclass(frozen=True, slots=True)
class _Peak:
    """MiB of the delivery's processes at most, and the files that were left at the end."""

    memory: float
    files: int


def _beside(rig: Rig, scale: Scale) -> Iterator[Row]:
    with rig.database("maintenance") as database:
        database.execute("CREATE TABLE beat (id int PRIMARY KEY, number bigint)")
        database.execute("INSERT INTO beat VALUES (1, -1)")
        without, beside = (_peak(rig, database, scale, maintenance) for maintenance in ("off", "on"))
    what = f"peak memory of deliveries beside maintenance, {scale.maintained:.0f} s"
    note = f"{beside.files} files on disk at the end, {without.files} without it"
    yield Row(
        "maintenance-memory", what, (beside.memory,), 1.25, "without it", (without.memory,), unit="MiB", note=note
    )


def _peak(rig: Rig, database: Database, scale: Scale, maintenance: str) -> _Peak:
    database.execute("DROP TABLE IF EXISTS orders")
    database.create("orders", scale.seed)
    name, beats, peak = f"maintenance_{maintenance}", Beats(), 0.0
    pipeline = Pipeline(rig, database, name, ["orders"], flush=_FLUSH, maintenance=maintenance)
    writer = threading.Thread(target=write, args=(database.url, beats, scale.seed, scale.maintained))
    with pipeline.process("capture"), pipeline.process("deliver") as deliver:
        process = psutil.Process(deliver.pid)
        pipeline.wait(lambda: {row.state for row in pipeline.state.tables(pipeline.group)} == {"STREAMING"})
        writer.start()
        while writer.is_alive():
            peak = max(peak, memory_of(process))
            time.sleep(0.2)
        end = database.end("orders")
        pipeline.wait(lambda: pipeline.delivered() >= end)
    database.same_as(pipeline.address, ["orders"])
    files = sum(1 for each in (pipeline.file.parent / "lake").rglob("*.parquet") if each.is_file())
    steps.close([pipeline])
    return _Peak(peak, files)


MAINTENANCE: dict[tuple[str, ...], Callable[[Rig, Scale], Iterator[Row]]] = {("maintenance-memory",): _beside}
