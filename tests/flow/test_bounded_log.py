"""A log with a limit, from source to lake: what is given up of it comes back by a copy, and nothing else is lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.mirror import Mirror
from tests.serving import handled

from headwater import flow
from headwater.commands.cli import cli
from headwater.flow.room import GIVEN_UP
from headwater.state import TableRow
from headwater.state.transitions import CopyBegun, Removed

ROWS = """
    INSERT INTO {0} SELECT {1} + n, (SELECT string_agg(md5(random()::text || n || i), '') FROM generate_series(1, 30) i)
    FROM generate_series(1, 50) n
"""


@pytest.fixture
def two(mirror: Mirror) -> Mirror:
    """Tables a and b, mirrored, with a log of 300 kB."""
    mirror.log = "{path: ./log, max_bytes: 300kB, retention: 1d}"
    mirror.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY, t text)" for name in "ab"))
    mirror.start("public.a", "public.b")
    mirror.sync()
    return mirror


def rows(mirror: Mirror) -> dict[str, TableRow]:
    return {row.source.name: row for row in mirror.m.state.tables("g")}


def headwater(mirror: Mirror, *arguments: str) -> str:
    """A command, and what a service does of it."""
    said = CliRunner().invoke(cli, ["-c", str(mirror.file), *arguments]).output
    handled(mirror.config, mirror.m.state)
    return said


def write(mirror: Mirror, times: int, *tables: str) -> None:
    """About 50 kB to each of the tables, and deliver them, so many times."""
    for _ in range(times):
        for table in tables:
            ((count,),) = mirror.rows_of(f"SELECT count(*) FROM {table}")
            mirror.execute(ROWS.format(table, count))
        mirror.sync()


def test_a_paused_table_keeps_the_log_up_to_its_limit_and_is_copied_again_beyond_it(two: Mirror) -> None:
    headwater(two, "table", "pause", "public.a")
    write(two, 2, "a", "b")
    assert rows(two)["a"].resync is None
    write(two, 8, "a", "b")
    assert (rows(two)["a"].state, rows(two)["a"].resync) == ("PAUSED", GIVEN_UP)
    assert rows(two)["b"].state == "STREAMING"
    assert two.m.log.size() < 500_000
    assert GIVEN_UP in headwater(two, "table", "list")
    assert f"public.a: is to be copied again: {GIVEN_UP}" in headwater(two, "status")
    two.assert_equal("b")
    assert two.ask("SELECT count(*) FROM lake.public.a") == [(0,)]
    two.reopen()  # as a new run begins
    assert rows(two)["a"].state == "PAUSED"
    headwater(two, "table", "resume", "public.a")
    assert rows(two)["a"].state == "PENDING"
    write(two, 2, "b")  # the log is not kept for it any more
    assert two.settle()
    two.assert_equal("a", "b")
    assert [each.verdict for each in two.verify()] == ["equal", "equal"]
    assert rows(two)["a"].resync is None


def test_a_paused_table_goes_on_without_a_copy_if_the_log_has_no_limit(mirror: Mirror) -> None:
    mirror.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY, t text)" for name in "ab"))
    mirror.start("public.a", "public.b")
    mirror.sync()
    headwater(mirror, "table", "pause", "public.a")
    write(mirror, 10, "a", "b")
    headwater(mirror, "table", "resume", "public.a")
    assert not mirror.settle()
    mirror.assert_equal("a", "b")


def test_segments_that_were_delivered_give_way_before_their_retention_is_over(two: Mirror) -> None:
    write(two, 10, "a")
    assert {row.resync for row in rows(two).values()} == {None}
    assert two.m.log.size() < 500_000
    two.assert_equal("a")


def test_a_segment_is_deleted_when_its_retention_is_over(mirror: Mirror) -> None:
    mirror.log = "{path: ./log, retention: 30s}"
    mirror.execute("CREATE TABLE a (id int PRIMARY KEY, t text)")
    mirror.start("public.a")
    mirror.execute("INSERT INTO a VALUES (1, 'one')")
    mirror.sync()
    first = segments(mirror)
    mirror.execute("INSERT INTO a VALUES (2, 'two')")
    mirror.sync()  # now the table has passed the end of the first
    assert mirror.m.retention == timedelta(seconds=30)
    flow.tidy(mirror.m)
    assert first <= segments(mirror)
    with mirror.m.state.transaction() as connection:
        connection.execute("UPDATE headwater.segments SET created_at = created_at - interval '30 seconds'")
    flow.tidy(mirror.m)
    assert first
    assert not first & segments(mirror)


def segments(mirror: Mirror) -> set[Path]:
    return set((mirror.folder / "log" / "segments").rglob("*.parquet"))


def test_a_group_whose_tables_were_all_removed_deletes_its_segments(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE a (id int PRIMARY KEY, t text)")
    mirror.start("public.a")
    mirror.execute("INSERT INTO a VALUES (1, 'one')")
    mirror.captured()
    assert segments(mirror)
    mirror.m.state.record("g", rows(mirror)["a"].oid, Removed("a test wants it"))
    flow.tidy(replace(mirror.m, retention=timedelta(0)))
    assert segments(mirror) == set()


def test_a_log_that_a_copy_has_begun_to_need_is_kept_though_no_table_has_a_position(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE a (id int PRIMARY KEY, t text)")
    mirror.start("public.a", copy=False)
    mirror.captured()
    mirror.m.state.record("g", rows(mirror)["a"].oid, CopyBegun(mirror.m.log.end()))
    mirror.execute("INSERT INTO a VALUES (1, 'while it is copied')")
    mirror.captured()
    there = segments(mirror)
    flow.tidy(replace(mirror.m, retention=timedelta(0)))
    assert there == segments(mirror) != set()
