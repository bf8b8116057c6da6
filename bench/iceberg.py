"""The promises about Iceberg: against DuckLake, against PyIceberg's own upsert, and after many deliveries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

from bench import rivals, steps
from bench.commits import commit_times
from bench.report import Row
from bench.rig import ICEBERG as ICEBERG_LAKE
from bench.rig import Pipeline, Rig
from bench.scale import Scale
from bench.work import Database, Rows
from headwater.lake.stream import WAL
from headwater.sink.iceberg.address import IcebergAddress

__all__ = ["ICEBERG"]

_AGAINST = "the same into DuckLake"


def _catch_up(rig: Rig, scale: Scale) -> Iterator[Row]:
    """The same backlog, slot to lake, into both kinds of lake in turn."""
    with rig.database("iceberg_backlog") as database:
        database.create("orders", scale.seed)
        pairs = [_pair(rig, database, f"catch_up_{run}") for run in range(scale.repeats)]
        for pipeline in (each for pair in pairs for each in pair):
            pipeline.settle(database)
        database.mix(["orders"], scale.backlog)
        end = database.end("orders")
        runs: list[tuple[float, float]] = []
        for ice, duck in pairs:
            runs.append((steps.caught_up(ice, end).seconds, steps.caught_up(duck, end).seconds))
            database.same_as(ice.address, ["orders"])
        steps.close([each for pair in pairs for each in pair])
    ours, theirs = zip(*runs, strict=True)
    yield Row("iceberg-catch-up", f"{scale.backlog:,} mixed changes, slot to Iceberg", ours, 1.5, _AGAINST, theirs)


def _small(rig: Rig, scale: Scale) -> Iterator[Row]:
    """A thousand changes into both kinds of lake in turn."""
    with rig.database("iceberg_small") as database:
        database.create("orders", scale.seed)
        ice, duck = pair = _pair(rig, database, "small")
        for pipeline in pair:
            pipeline.settle(database)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(max(scale.repeats, 3)):
            database.mix(["orders"], 1000)
            end = database.end("orders")
            for pipeline, seconds in ((ice, ours), (duck, theirs)):
                pipeline.capture_upto(end)
                seconds.append(pipeline.deliver())
        database.same_as(ice.address, ["orders"])
        steps.close(pair)
    yield Row("iceberg-small", "deliver 1,000 changes into Iceberg, warm", tuple(ours), 1.5, _AGAINST, tuple(theirs))


def _upsert(rig: Rig, scale: Scale) -> Iterator[Row]:
    """Random updates, delivered, against as many that PyIceberg's upsert makes in a table of the same rows."""
    count = min(10_000, scale.upserted)
    with rig.database("iceberg_upsert") as database:
        database.create("orders", scale.upserted)
        pipeline = Pipeline(rig, database, "upsert", ["orders"], ICEBERG_LAKE)
        pipeline.settle(database)
        ours, theirs = [], []
        rival = rivals.Upsert(rig.folder / "rival", _address(pipeline), "orders")
        with closing(rival):
            for _ in range(scale.repeats):
                work = partial(database.update, "orders", Rows(scale.upserted), count)
                ours.append(steps.delivered(database, pipeline, work))
                theirs.append(rival.upsert(count))
        database.same_as(pipeline.address, ["orders"])
        steps.close([pipeline])
    what = f"deliver {count:,} random updates into {scale.upserted:,} rows of Iceberg"
    yield Row("iceberg-upsert", what, tuple(ours), 0.1, "PyIceberg's upsert", tuple(theirs))


def _many_commits(rig: Rig, scale: Scale) -> Iterator[Row]:
    """Planning and commit alone, without Spark, to a table that nothing compacts."""
    folder = rig.folder / "many_commits"
    address = IcebergAddress({"type": "sql", "uri": f"sqlite:///{folder}/lake.sqlite", "warehouse": str(folder)})
    begun = time.perf_counter()
    with closing(address.open("bench", WAL)) as sink:
        seconds = commit_times(sink, scale.commits + 2)
    first, last = seconds[2:7], seconds[-5:]
    what, against = f"the {scale.commits}th commit to an Iceberg table", "the 5th"
    note = f"medians of five; all took {time.perf_counter() - begun:.0f} s"
    yield Row("iceberg-commits", what, tuple(last), 1.5, against, tuple(first), note=note)


def _pair(rig: Rig, database: Database, name: str) -> tuple[Pipeline, Pipeline]:
    return (
        Pipeline(rig, database, f"{name}_iceberg", ["orders"], ICEBERG_LAKE),
        Pipeline(rig, database, f"{name}_ducklake", ["orders"]),
    )


def _address(pipeline: Pipeline) -> IcebergAddress:
    assert isinstance(pipeline.address, IcebergAddress)
    return pipeline.address


ICEBERG: dict[tuple[str, ...], Callable[[Rig, Scale], Iterator[Row]]] = {
    ("iceberg-catch-up",): _catch_up,
    ("iceberg-small",): _small,
    ("iceberg-upsert",): _upsert,
    ("iceberg-commits",): _many_commits,
}
