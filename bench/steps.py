"""What several scenarios do: deliver a backlog, deliver one batch, clean up."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from bench.rig import Pipeline
from bench.work import Database
from headwater import flow
from headwater.change import Lsn

__all__ = ["CaughtUp", "caught_up", "close", "delivered"]

FLUSH_ROWS = 500_000  # of `flush`, as the config has it by default: the backlog is delivered in steps of that size
FLUSH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class CaughtUp:
    seconds: float
    deliveries: int


def caught_up(pipeline: Pipeline, end: Lsn) -> CaughtUp:
    """Capture in its own process, deliveries in this one, started as the supervisor starts them."""
    mirroring, deliveries = pipeline.mirroring, 0
    with pipeline.process("capture"):
        begun = last = time.perf_counter()
        while pipeline.delivered() < end:
            waited = time.perf_counter() - last >= FLUSH_SECONDS
            if pipeline.captured() >= end or pipeline.staged() >= FLUSH_ROWS or (waited and pipeline.staged()):
                flow.deliver(mirroring)
                deliveries += 1
                last = time.perf_counter()
            else:
                time.sleep(0.05)
        return CaughtUp(time.perf_counter() - begun, deliveries)


def delivered(database: Database, pipeline: Pipeline, work: Callable[[], None]) -> float:
    """Seconds of the delivery alone: its changes are in the log before."""
    work()
    pipeline.capture_upto(database.end(pipeline.tables[0]))
    return pipeline.deliver()


def close(pipelines: Collection[Pipeline]) -> None:
    for pipeline in pipelines:
        pipeline.close()
        shutil.rmtree(pipeline.file.parent)
