"""From a commit in the source to its rows in the lake, as a second client sees it while changes keep coming."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import duckdb
import psycopg

from bench import steps
from bench.report import Row
from bench.rig import Pipeline, Rig
from bench.scale import Scale
from bench.work import ROW, Database
from headwater.lake.address import LakeAddress
from headwater.lake.reading import connect

__all__ = ["CHANGES_PER_SECOND", "FRESHNESS", "Beats", "write"]

CHANGES_PER_SECOND, PER_TRANSACTION = 1_000, 20
PERIOD = 60.0  # seconds: the second such part of the run is compared with the last
LOOK_EVERY = 0.05

_ROW = ROW["bigint"].replace("%", "%%")
_INSERT = f"INSERT INTO orders SELECT {_ROW} FROM generate_series(%s::bigint, %s::bigint) AS i"
_UPDATE = """
    UPDATE orders SET amount = amount + 1, status = 'changed'
    WHERE id IN (SELECT (random() * %s)::bigint FROM generate_series(1, %s))
"""
_DELETE = "DELETE FROM orders WHERE id IN (SELECT (random() * %s)::bigint FROM generate_series(1, %s))"


@dataclass(slots=True)
class Beats:
    """When each transaction was committed, by its number; and how long the lake took to show it."""

    committed: list[float] = field(default_factory=list)
    seen: list[tuple[float, float]] = field(default_factory=list)  # when it was committed, seconds until it was read

    def see(self, newest: int, now: float) -> None:
        """The lake shows all transactions up to this one."""
        for number in range(len(self.seen), newest + 1):
            self.seen.append((self.committed[number], now - self.committed[number]))

    def delays(self, first: float, end: float) -> list[float]:
        """Of what was committed in this part of the run, in seconds after its begin."""
        begin = self.committed[0]
        return [delay for at, delay in self.seen if first <= at - begin < end]


def write(url: str, beats: Beats, rows: int, seconds: float, stop: threading.Event | None = None) -> None:
    """Transactions at an even pace, 60 % inserts, or until `stop`; each notes its number in the table `beat`."""
    updates, deletes = int(PER_TRANSACTION * 0.3), int(PER_TRANSACTION * 0.1)
    inserts = PER_TRANSACTION - updates - deletes
    with psycopg.connect(url) as source:
        begin = time.monotonic()
        for number in range(int(seconds * CHANGES_PER_SECOND / PER_TRANSACTION)):
            if stop is not None and stop.is_set():
                break
            source.execute(_INSERT, (rows + 1, rows + inserts))
            source.execute(_UPDATE, (rows, updates))
            source.execute(_DELETE, (rows, deletes))
            source.execute("UPDATE beat SET number = %s", (number,))
            source.commit()
            beats.committed.append(time.monotonic())
            rows += inserts
            time.sleep(max(0.0, begin + (number + 1) * PER_TRANSACTION / CHANGES_PER_SECOND - time.monotonic()))


def watch(address: LakeAddress, beats: Beats, writing: Callable[[], bool]) -> None:
    """Read the lake again and again, until everything written is there."""
    with connect() as lake:
        queried = address.queried()
        queried.prepare(lake)
        queried.attach(lake, "lake")
        while writing() or len(beats.seen) < len(beats.committed):
            newest = _newest(lake)
            beats.see(newest, time.monotonic())
            time.sleep(LOOK_EVERY)


def _newest(lake: duckdb.DuckDBPyConnection) -> int:
    row = lake.execute("SELECT number FROM lake.public.beat").fetchone()
    assert row is not None
    return int(row[0])


def _freshness(rig: Rig, scale: Scale) -> Iterator[Row]:
    with rig.database("freshness") as database:
        database.create("orders", scale.seed)
        database.execute("CREATE TABLE beat (id int PRIMARY KEY, number bigint)")
        database.execute("INSERT INTO beat VALUES (1, -1)")
        pipeline = Pipeline(rig, database, "freshness", ["orders", "beat"], flush="{interval: 1s}")
        beats = _run(pipeline, database, scale)
        database.same_as(pipeline.address, ["orders"])
        steps.close([pipeline])
    whole = sorted(beats.delays(0.0, scale.freshness))
    period = min(PERIOD, scale.freshness / 3)
    second, last = beats.delays(period, 2 * period), beats.delays(scale.freshness - period, scale.freshness)
    what = f"{CHANGES_PER_SECOND:,} changes/s for {scale.freshness:.0f} s, interval 1 s"
    yield Row("freshness", f"commit to readable, median: {what}", (statistics.median(whole),), 1.5)
    yield Row("freshness-p99", "commit to readable, 99th percentile", (_percentile(whole, 99),), 3)
    against, slow = "in the second", (_percentile(second, 95),)
    yield Row("freshness-flat", "95th percentile in the last minute", (_percentile(last, 95),), 1.1, against, slow)


def _run(pipeline: Pipeline, database: Database, scale: Scale) -> Beats:
    beats = Beats()
    writer = threading.Thread(target=write, args=(database.url, beats, scale.seed, scale.freshness))
    with pipeline.process("capture"), pipeline.process("deliver"):
        pipeline.wait(lambda: {row.state for row in pipeline.state.tables(pipeline.group)} == {"STREAMING"})
        writer.start()
        watch(pipeline.address, beats, writer.is_alive)
        writer.join()
    return beats


def _percentile(delays: Sequence[float], percent: int) -> float:
    return statistics.quantiles(delays, n=100, method="inclusive")[percent - 1]


FRESHNESS: dict[tuple[str, ...], Callable[[Rig, Scale], Iterator[Row]]] = {
    ("freshness", "freshness-p99", "freshness-flat"): _freshness
}
