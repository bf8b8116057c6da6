"""The promises about speed, each measured against what it is promised against, in turn, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from functools import partial

import psutil

from bench import rivals, steps
from bench.big import BIG, ON_REQUEST
from bench.copies import COPIES
from bench.freshness import FRESHNESS
from bench.iceberg import ICEBERG
from bench.maintenance import MAINTENANCE
from bench.memory import memory_of
from bench.pages import PAGES
from bench.report import Row
from bench.rig import Pipeline, Rig
from bench.routes import ROUTES
from bench.scale import FULL, QUICK, Scale
from bench.work import Database
from headwater.change import Lsn

__all__ = ["FULL", "NAMES", "ON_REQUEST", "QUICK", "Scale", "measure"]


def measure(rig: Rig, scale: Scale, wanted: Collection[str]) -> Iterator[Row]:
    """The rows asked for, each as soon as it is there."""
    for names, scenario in _SCENARIOS.items():
        if here := [name for name in names if name in wanted]:
            for row in scenario(rig, scale):
                if row.name in here:
                    yield row


def _backlog(rig: Rig, scale: Scale) -> Iterator[Row]:
    """A slot full of mixed changes is read by the rival, captured, and delivered."""
    with rig.database("backlog") as database:
        database.create("orders", scale.seed)
        captures = [Pipeline(rig, database, f"capture_{run}", ["orders"]) for run in range(scale.repeats)]
        catch_ups = [Pipeline(rig, database, f"catch_up_{run}", ["orders"]) for run in range(scale.repeats)]
        for pipeline in catch_ups:
            pipeline.settle(database)
        database.mix(["orders"], scale.backlog)
        end = database.end("orders")
        captured, caught_up, received, received_too = [], [], [], []
        for capture, catch_up in zip(captures, catch_ups, strict=True):
            received.append(_received(rig, database, capture, end))
            captured.append(_captured(capture, end))
            received_too.append(_received(rig, database, catch_up, end))
            caught_up.append(steps.caught_up(catch_up, end))
            database.same_as(catch_up.address, ["orders"])
        changes = f"{scale.backlog:,} mixed changes"
        against = "pg_recvlogical -f /dev/null"
        rate = f"{scale.backlog / sorted(captured)[len(captured) // 2] / 1000:.0f} k changes/s"
        yield Row(
            "capture", f"capture {changes} into the log", tuple(captured), 1.1, against, tuple(received), note=rate
        )
        deliveries = ", ".join(str(run.deliveries) for run in caught_up)
        yield Row(
            "catch-up",
            f"{changes}, slot to lake",
            tuple(run.seconds for run in caught_up),
            1.6,
            against,
            tuple(received_too),
            note=f"deliveries: {deliveries}",
        )
        steps.close(captures + catch_ups)


def _received(rig: Rig, database: Database, pipeline: Pipeline, end: Lsn) -> float:
    """The rival reads a copy of the pipeline's own slot."""
    database.execute(f"SELECT pg_copy_logical_replication_slot('{pipeline.slot}', 'rival')")
    seconds = rivals.receive(rig.server.program("pg_recvlogical"), database.url, "rival", pipeline.publication, end)
    database.execute("SELECT pg_drop_replication_slot('rival')")
    return seconds


def _captured(pipeline: Pipeline, end: Lsn) -> float:
    with pipeline.process("capture"):
        begun = time.perf_counter()
        pipeline.wait(lambda: pipeline.captured() >= end)
        return time.perf_counter() - begun


def _many_tables(rig: Rig, scale: Scale) -> Iterator[Row]:
    each, total = 50, scale.tables * 50
    with rig.database("many_tables") as database:
        names = [f"orders_{number}" for number in range(scale.tables)]
        for name in [*names, "orders"]:
            database.create(name, scale.seed if name == "orders" else scale.seed // scale.tables)
        many = Pipeline(rig, database, "many", names)
        one = Pipeline(rig, database, "one", ["orders"])
        many.settle(database, each)
        one.settle(database)
        ours, theirs = [], []
        for _ in range(scale.repeats):
            theirs.append(steps.delivered(database, one, lambda: database.mix(["orders"], total)))
            ours.append(steps.delivered(database, many, lambda: database.mix(names, each)))
        small = tuple(
            steps.delivered(database, one, lambda: database.mix(["orders"], 1000)) for _ in range(scale.repeats)
        )
        database.same_as(many.address, names)
        database.same_as(one.address, ["orders"])
        steps.close([many, one])
        what, against = f"deliver {scale.tables} tables x {each} changes", f"1 table x {total:,} changes"
        yield Row("many-tables", what, tuple(ours), 2, against, tuple(theirs))
        yield Row("small", "deliver 1,000 changes, warm", small, 0.35)


def _more_tables(rig: Rig, scale: Scale) -> Iterator[Row]:
    """As many changes, to five times as many tables: the cost may grow with the tables, but not faster."""
    few, many = scale.tables, scale.tables * 5
    with rig.database("more_tables") as database:
        names = {count: [f"of_{count}_{number}" for number in range(count)] for count in (few, many)}
        for count, tables in names.items():
            for name in tables:
                database.create(name, scale.seed // count)
        pipelines = {count: Pipeline(rig, database, f"tables_{count}", tables) for count, tables in names.items()}
        each = {few: 50, many: 10}
        for count, pipeline in pipelines.items():
            pipeline.settle(database, each[count])
        seconds: dict[int, list[float]] = {few: [], many: []}
        for _ in range(scale.repeats):
            for count, pipeline in pipelines.items():
                work = partial(database.mix, names[count], each[count])
                seconds[count].append(steps.delivered(database, pipeline, work))
        for count, pipeline in pipelines.items():
            database.same_as(pipeline.address, names[count])
        steps.close(pipelines.values())
        what, against = (f"{count:,} tables x {each[count]} changes" for count in (many, few))
        yield Row("more-tables", f"deliver {what}", tuple(seconds[many]), 5, against, tuple(seconds[few]))


def _big_transaction(rig: Rig, scale: Scale) -> Iterator[Row]:
    """Peak memory of all the pipeline's processes while one transaction passes through."""
    few, many = scale.transaction, scale.transaction * 100
    with rig.database("big_transaction") as database:
        peaks = {rows: _peak_memory(rig, database, rows) for rows in (few, many)}
    parts = ", ".join(f"{name} {value:.0f} → {peaks[many][name]:.0f}" for name, value in peaks[few].items())
    ours, theirs = (sum(peaks[rows].values()) for rows in (many, few))
    what, against = f"peak memory, one transaction of {many:,} rows", f"of {few:,} rows"
    yield Row("memory", what, (ours,), 1.3, against, (theirs,), unit="MiB", note=f"{parts} MiB")


def _peak_memory(rig: Rig, database: Database, rows: int) -> dict[str, float]:
    """MiB of the capture process and of the delivery process with its JVM and workers, new ones for each size."""
    table = f"rows_{rows}"
    database.create(table, 0)
    pipeline = Pipeline(rig, database, f"transaction_{rows}", [table])
    peaks = {"capture": 0.0, "delivery": 0.0}
    with pipeline.process("capture") as capture, pipeline.process("deliver") as deliver:
        processes = {"capture": psutil.Process(capture.pid), "delivery": psutil.Process(deliver.pid)}
        database.insert(table, 1, 1)
        pipeline.wait(lambda: {row.state for row in pipeline.state.tables(pipeline.group)} == {"STREAMING"})
        database.insert(table, 2, rows + 1)
        end = database.end(table)
        while pipeline.delivered() < end:
            for name, process in processes.items():
                peaks[name] = max(peaks[name], memory_of(process))
            time.sleep(0.05)
    database.same_as(pipeline.address, [table])
    steps.close([pipeline])
    return peaks


_SCENARIOS: dict[tuple[str, ...], Callable[[Rig, Scale], Iterator[Row]]] = {
    ("capture", "catch-up"): _backlog,
    **COPIES,
    ("many-tables", "small"): _many_tables,
    ("more-tables",): _more_tables,
    **BIG,
    ("memory",): _big_transaction,
    **MAINTENANCE,
    **FRESHNESS,
    **PAGES,
    **ICEBERG,
    **ROUTES,
}
NAMES = tuple(name for names in _SCENARIOS for name in names)
