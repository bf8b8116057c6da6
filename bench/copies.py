"""Copies: against PostgreSQL's own, and one that was killed against a whole one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil

from bench import rivals, steps
from bench.report import Row
from bench.rig import Pipeline, Rig
from bench.scale import Scale
from bench.work import Database
from headwater import flow

__all__ = ["COPIES"]

KILLED_AT = 0.8  # of the rows


def _first_copy(rig: Rig, scale: Scale) -> Iterator[Row]:
    with rig.database("first_copy") as database:
        database.create("orders", scale.copied)
        pipelines = [_warmed_up(rig, database)]
        ours, theirs = [], []
        for run in range(scale.repeats):
            theirs.append(rivals.copy_binary(rig.server.program("psql"), database.url, "orders"))
            pipeline = Pipeline(rig, database, f"copy_{run}", ["orders"])
            ours.append(_copied(pipeline))
            database.same_as(pipeline.address, ["orders"])
            pipelines.append(pipeline)
        steps.close(pipelines)
        against = "COPY … TO STDOUT (FORMAT binary)"
        yield Row("first-copy", f"first copy of {scale.copied:,} rows", tuple(ours), 2.2, against, tuple(theirs))


def _resumed_copy(rig: Rig, scale: Scale) -> Iterator[Row]:
    """Each in turn: a whole copy, and the rest of one whose processes were all killed."""
    with rig.database("resumed_copy") as database:
        database.create("orders", scale.resumed)
        pipelines = [_warmed_up(rig, database)]
        whole, rest, done = [], [], []
        for run in range(scale.repeats):
            pipelines.append(Pipeline(rig, database, f"whole_{run}", ["orders"]))
            whole.append(_copied(pipelines[-1]))
            killed = Pipeline(rig, database, f"killed_{run}", ["orders"])
            done.append(_killed(killed, scale.resumed * KILLED_AT) / scale.resumed)
            rest.append(_copied(killed))
            killed.capture_upto(database.end("orders"))
            while flow.deliver(killed.mirroring).upto:
                pass
            database.same_as(killed.address, ["orders"])
            pipelines.append(killed)
        steps.close(pipelines)
        what = f"the rest of a copy of {scale.resumed:,} rows that was killed at 80 %"
        note = f"killed at {', '.join(f'{each:.0%}' for each in done)}"
        yield Row("resumed-copy", what, tuple(rest), 0.35, "a whole copy", tuple(whole), note=note)


def _warmed_up(rig: Rig, database: Database) -> Pipeline:
    database.create("few", 1000)
    warm = Pipeline(rig, database, "copy_warm", ["few"])
    flow.copy(warm.mirroring)
    return warm


def _copied(pipeline: Pipeline) -> float:
    begun = time.perf_counter()
    assert flow.copy(pipeline.mirroring)
    return time.perf_counter() - begun


def _killed(pipeline: Pipeline, rows: float) -> int:
    """Copy in a process of its own, which is killed with all it has started once so many rows are there; how many."""
    with pipeline.process("deliver") as child:
        pipeline.wait(lambda: _rows(pipeline) >= rows)
        for each in (*psutil.Process(child.pid).children(recursive=True), psutil.Process(child.pid)):
            with suppress(psutil.NoSuchProcess):
                each.kill()
    (row,) = pipeline.state.tables(pipeline.group)
    assert row.state == "SNAPSHOT", "the copy was there before it could be killed"
    return row.copied_rows


def _rows(pipeline: Pipeline) -> int:
    return sum(row.copied_rows for row in pipeline.state.tables(pipeline.group))


COPIES: dict[tuple[str, ...], Callable[[Rig, Scale], Iterator[Row]]] = {
    ("first-copy",): _first_copy,
    ("resumed-copy",): _resumed_copy,
}
