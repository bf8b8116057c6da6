"""Random updates of a table and of a larger one: does a delivery cost what its changes cost?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from bench import steps
from bench.report import Row
from bench.rig import Pipeline, Rig
from bench.scale import Scale
from bench.work import ROW, Database, Rows
from headwater.ducklake import extension
from headwater.ducklake.url import parse_lake_url
from headwater.sink.ducklake.address import DuckLakeAddress

__all__ = ["BIG", "ON_REQUEST"]

COUNT = 10_000  # updates
FILE_ROWS = 1_000_000  # as in a first copy
SENT = 100_000  # rows of a generated table that the source has too: these are updated
AIM = 1.5


def _big_table(name: str, key: str, rig: Rig, scale: Scale) -> Iterator[Row]:
    """Both tables are copied from the source."""
    tables = {"small": Rows(scale.small, key), "big": Rows(scale.small * 10, key)}
    with rig.database(name.replace("-", "_")) as database:
        pipelines = {}
        for table, rows in tables.items():
            database.create(table, rows)
            pipelines[table] = Pipeline(rig, database, f"{key}_{table}", [table])
            pipelines[table].settle(database, work=partial(database.update, table, rows, 200))
        seconds = _updated(database, pipelines, tables, scale.repeats)
        for table, pipeline in pipelines.items():
            database.same_as(pipeline.address, [table])
        steps.close(pipelines.values())
    yield _row(name, tables, seconds)


def _generated(rig: Rig, scale: Scale) -> Iterator[Row]:
    """The source has few of the rows: a client of the lake has written the others between them."""
    sizes = {"small": scale.generated // 100, "big": scale.generated}
    tables = {table: Rows(size, "uuid", max(1, size // SENT)) for table, size in sizes.items()}
    with rig.database("generated") as database:
        pipelines = {}
        for table, rows in tables.items():
            database.create(table, rows)
            pipelines[table] = pipeline = Pipeline(rig, database, f"generated_{table}", [table])
            pipeline.settle(database, work=lambda: None)
            _generate(pipeline, table, rows)
            for _ in range(2):
                steps.delivered(database, pipeline, partial(database.update, table, rows, 200))
        seconds = _updated(database, pipelines, tables, scale.repeats)
        for table, pipeline in pipelines.items():
            rows = tables[table]
            mine = f"id IN (SELECT {rows.ids(f'i * {rows.step}')} FROM range(1, {rows.last // rows.step} + 1) AS t(i))"
            database.same_as(pipeline.address, [table], mine)
        steps.close(pipelines.values())
    yield _row("huge-table", tables, seconds)


def _generate(pipeline: Pipeline, table: str, rows: Rows) -> None:
    """Put all rows into the lake's table in place of the few that it has, in files of the size of ours."""
    address = pipeline.address
    assert isinstance(address, DuckLakeAddress)
    with extension.connect() as con:
        extension.attach(con, parse_lake_url(address.catalog), "lake")
        con.execute(f"DELETE FROM lake.public.{table}")
        for first in range(1, rows.last + 1, FILE_ROWS):
            last = min(first + FILE_ROWS - 1, rows.last)
            con.execute(
                f"INSERT INTO lake.public.{table} SELECT {ROW[rows.key]} FROM range({first}, {last} + 1) AS t(i)"
            )


def _updated(
    database: Database, pipelines: dict[str, Pipeline], tables: dict[str, Rows], repeats: int
) -> dict[str, tuple[float, ...]]:
    """Seconds of deliveries into each of the tables, in turn."""
    seconds: dict[str, list[float]] = {table: [] for table in tables}
    for _ in range(repeats):
        for table, rows in tables.items():
            count = min(COUNT, rows.last // rows.step)
            work = partial(database.update, table, rows, count)
            seconds[table].append(steps.delivered(database, pipelines[table], work))
    return {table: tuple(runs) for table, runs in seconds.items()}


def _row(name: str, tables: dict[str, Rows], seconds: dict[str, tuple[float, ...]]) -> Row:
    small, big = tables["small"], tables["big"]
    count = min(COUNT, small.last // small.step)
    what = f"deliver {count:,} random updates into {big.last:,} rows by {big.key} key"
    return Row(name, what, seconds["big"], AIM, f"into {small.last:,} rows", seconds["small"])


BIG: dict[tuple[str, ...], Callable[[Rig, Scale], Iterator[Row]]] = {
    ("big-table",): partial(_big_table, "big-table", "bigint"),
    ("big-table-uuid",): partial(_big_table, "big-table-uuid", "uuid"),
    ("huge-table",): _generated,
}
ON_REQUEST = frozenset({"huge-table"})  # takes long, and much disk
