"""What is planned, and what workers read of it: bounded, divided, and noticed when it has moved."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.ducklake.extension import attach
from headwater.ducklake.finding import find_lake
from headwater.ducklake.opening import open_lake
from headwater.ducklake.url import parse_lake_url
from headwater.errors import OperatorMustAct, Outdated, TableError
from headwater.feed.source import Bound
from headwater.feed.units import FileUnit
from headwater.lake.reading import load
from headwater.sink.ducklake.sink import DuckLakeSink
from tests.feed.feedbench import ALL, FeedBench, Rows, events_of
from tests.feed.histories import CLEANUP, FLUSH, MERGE, REWRITE
from tests.sink import sinkbench

SQLITE = pytest.mark.parametrize("feed_url", ["sqlite"], indirect=True)
CREATE = "CREATE TABLE {l}.t (id INTEGER, v VARCHAR)"
GROUP = 2048  # rows in a row group, here


@SQLITE
@pytest.mark.parametrize("compaction", ["none", MERGE, FLUSH])
def test_a_backlog_is_read_in_pieces_of_whole_snapshots(bench: FeedBench, compaction: str) -> None:
    bench.inline(20 if compaction == FLUSH else 0)
    start = bench.do(CREATE)
    sizes = [3, 4, 5, 15, 2, 1]
    inserts = [bench.do(f"INSERT INTO {{l}}.t SELECT i, 'a' FROM range({size}) r(i)") for size in sizes]
    if compaction != "none":
        bench.sql(compaction)
    pieces = bench.in_pieces(start, bench.newest, Bound(8, 10**9))
    assert [each.upto.snapshot for each in pieces] == [inserts[1], inserts[2], inserts[3], bench.newest]
    columns = bench.at(start).table.columns
    assert [events_of(each.units, columns).total() for each in pieces] == [7, 5, 15, 3]


@SQLITE
def test_a_piece_is_bounded_in_bytes_too(bench: FeedBench) -> None:
    bench.inline(0)
    start = bench.do(CREATE)
    for _ in range(3):
        bench.sql("INSERT INTO {l}.t SELECT i, repeat(chr(i::INTEGER % 90 + 33), 20) FROM range(500) r(i)")
    size = max(unit.bytes for unit in bench.changes(start, bench.newest).units)
    assert len(bench.in_pieces(start, bench.newest, Bound(10**9, 2 * size))) == 2
    assert len(bench.in_pieces(start, bench.newest, Bound(10**9, 1))) == 3


@SQLITE
def test_deletes_count_when_a_backlog_is_divided(bench: FeedBench) -> None:
    for limit in (0, 50):  # delete files, and deletes in the catalog
        bench.sql("DROP TABLE IF EXISTS {l}.t")
        bench.inline(limit)
        bench.sql(CREATE)
        start = bench.do("INSERT INTO {l}.t SELECT i, 'a' FROM range(100) r(i)")
        for low in range(0, 60, 20):
            bench.sql(f"DELETE FROM {{l}}.t WHERE id BETWEEN {low} AND {low + 19}")
        pieces = bench.in_pieces(start, bench.newest, Bound(25, 10**9))
        columns = bench.at(start).table.columns
        assert [events_of(each.units, columns).total() for each in pieces] == [20, 20, 20]


def large_file(bench: FeedBench, rows: int) -> int:
    bench.inline(0)
    bench.sql(f"CALL {{l}}.set_option('parquet_row_group_size', {GROUP})", CREATE)
    at = bench.do(f"INSERT INTO {{l}}.t SELECT i, 'v' || i FROM range({rows}) r(i)")
    ((unit,),) = [bench.changes(at - 1, at).units]
    assert isinstance(unit, FileUnit)
    assert pq.ParquetFile(unit.file.path).num_row_groups == rows // GROUP
    return at


@SQLITE
def test_a_large_file_is_divided_into_units(bench: FeedBench) -> None:
    insert = large_file(bench, 10 * GROUP)
    delete = bench.do("DELETE FROM {l}.t WHERE id % 1000 = 0")
    for after, upto in ((insert - 1, insert), (insert - 1, delete), (insert, delete)):
        whole = bench.changes(after, upto)
        table = bench.table(unit=Bound(3 * GROUP, 10**9) if after < insert else Bound(5, 10**9))
        divided = table.changes(after, bench.at(upto), ALL)
        assert len(divided.units) > len(whole.units) == 1
        columns = whole.upto.table.columns
        read = [events_of([unit], columns) for unit in divided.units]
        assert sum(read, Rows()) == events_of(whole.units, columns)
        assert max(each.total() for each in read) <= 4 * GROUP
    scanned = bench.table(unit=Bound(GROUP, 10**9)).scan(bench.at(delete))
    assert len(scanned) == 10
    assert sum(events_of(scanned, bench.at(delete).table.columns).values()) == 10 * GROUP - 21


@SQLITE
def test_few_deletes_of_a_large_file_are_read_by_their_row_numbers(bench: FeedBench) -> None:
    insert = large_file(bench, 10 * GROUP)
    delete = bench.do(f"DELETE FROM {{l}}.t WHERE id IN (5, {9 * GROUP})")
    (unit,) = bench.changes(insert, delete).units
    assert isinstance(unit, FileUnit)
    group = pq.ParquetFile(unit.file.path).metadata.row_group(1).column(0)
    with open(unit.file.path, "r+b") as file:  # what is between them is not even looked at
        file.seek(group.dictionary_page_offset or group.data_page_offset)
        file.write(b"\xff" * group.total_compressed_size)
    columns = bench.at(delete).table.columns
    gone = [(delete, False, 5, "v5"), (delete, False, 9 * GROUP, f"v{9 * GROUP}")]
    assert events_of([unit], columns) == Rows(gone)
    with pytest.raises((OSError, pa.ArrowException)):
        events_of(bench.table().scan(bench.at(insert)), columns)


def test_deletes_have_the_columns_that_are_asked_for(bench: FeedBench) -> None:
    for limit in (0, 10):
        bench.sql("DROP TABLE IF EXISTS {l}.t")
        bench.inline(limit)
        bench.sql("CREATE TABLE {l}.t (id INTEGER, v VARCHAR, l INTEGER[])")
        start = bench.do("INSERT INTO {l}.t VALUES (1, 'a', [1]), (2, 'b', [2])")
        at = bench.do("UPDATE {l}.t SET v = 'B' WHERE id = 2")
        changes = bench.changes(start, at)
        id_, v, l_ = changes.upto.table.columns
        found = [row for unit in changes.units for table in unit.read([l_, id_, v], [id_]) for row in table.to_pylist()]
        assert sorted(found, key=str) == [
            {"_position": at, "_upsert": False, "l": None, "id": 2, "v": None},
            {"_position": at, "_upsert": True, "l": [2], "id": 2, "v": "B"},
        ]


def test_rows_that_were_flushed_after_the_plan_are_noticed(bench: FeedBench) -> None:
    bench.inline(10)
    start = bench.do(CREATE)
    at = bench.do("INSERT INTO {l}.t VALUES (1, 'a')")
    planned = bench.changes(start, at)
    bench.sql(FLUSH)
    with pytest.raises(Outdated, match="no longer there") as raised:
        events_of(planned.units, planned.upto.table.columns)
    assert "plan again" in raised.value.hint
    assert bench.events(start, at) == Rows([(at, True, 1, "a")])


@SQLITE
def test_files_that_were_merged_and_cleaned_up_after_the_plan_are_noticed(bench: FeedBench) -> None:
    bench.inline(0)
    start = bench.do(CREATE)
    bench.sql("INSERT INTO {l}.t VALUES (1, 'a')", "INSERT INTO {l}.t VALUES (2, 'b')")
    at = bench.newest
    planned = bench.changes(start, at)
    bench.sql(MERGE)
    assert events_of(planned.units, planned.upto.table.columns) == bench.events(start, at), "the files are still there"
    bench.sql(CLEANUP)
    with pytest.raises(Outdated, match="no longer there"):
        events_of(planned.units, planned.upto.table.columns)
    assert bench.events(start, at).total() == 2


@SQLITE
def test_many_rows_in_the_catalog_are_divided(bench: FeedBench) -> None:
    bench.inline(100)
    start = bench.do(CREATE)
    at = bench.do("INSERT INTO {l}.t SELECT i, 'a' FROM range(90) r(i)")
    units = bench.table(unit=Bound(40, 10**9)).changes(start, bench.at(at), ALL).units
    read = [events_of([unit], bench.at(at).table.columns) for unit in units]
    assert [each.total() for each in read] == [30, 30, 30]
    assert sum(read, Rows()) == bench.events(start, at)


def test_a_row_in_the_catalog_that_duckdb_itself_cannot_read_is_refused(bench: FeedBench) -> None:
    bench.inline(10)
    start = bench.do("CREATE TABLE {l}.t (s STRUCT(d DATE))")
    at = bench.do("INSERT INTO {l}.t VALUES ({'d': '2026-01-01'})")
    with pytest.raises(TableError, match="not even by DuckDB"):
        bench.events(start, at)


@SQLITE
def test_planning_does_not_look_at_older_files(bench: FeedBench) -> None:
    bench.inline(0)
    bench.sql(CREATE)
    for id_ in range(5):
        bench.sql(f"INSERT INTO {{l}}.t VALUES ({id_}, 'a'), ({id_ + 10}, 'b')")
    before = bench.do("DELETE FROM {l}.t WHERE id IN (3, 4)")
    at = bench.do("INSERT INTO {l}.t VALUES (100, 'a')")
    assert [unit.rows for unit in bench.changes(before, at).units] == [1]
    quiet = bench.do("CREATE TABLE {l}.other (id INTEGER)")
    assert bench.changes(at, quiet).units == ()


def test_a_lake_that_headwater_wrote(feed_url: str, tmp_path: Path, feed_duck: duckdb.DuckDBPyConnection) -> None:
    lake = open_lake(feed_url, str(tmp_path / "data"))
    attach(feed_duck, parse_lake_url(feed_url), "ours")
    mirror = sinkbench.Bench(lambda source, stream: DuckLakeSink(lake, source, stream), lambda _: [])
    bench = FeedBench(lake, feed_duck, "ours")
    try:
        mirror.copy([(1, "a"), (2, "b"), (3, "c")], at=100)
        start = bench.newest
        mirror.deliver(110, insert=[(4, "d")], update=[(2, "B")], delete=[3])
        mirror.deliver(120, update=[(2, "BB"), (4, "D")], delete=[1])
        mirror.deliver(130, insert=[(5, "e")], truncate=True)
        for each in (FLUSH, MERGE, REWRITE):
            bench.sql(each)
        name = sinkbench.T
        for span, events in bench.check_all(name, since=start).items():
            assert events == bench.duckdb_events(*span, name)
        assert bench.events(start, start + 1, name) == Rows(
            [
                (start + 1, True, 4, "d"),
                (start + 1, False, 2, "b"),
                (start + 1, True, 2, "B"),
                (start + 1, False, 3, "c"),
            ]
        )
    finally:
        lake.close()
        feed_duck.execute("DETACH ours")


def test_an_encrypted_lake_is_refused(tmp_path: Path, feed_duck: duckdb.DuckDBPyConnection) -> None:
    load(feed_duck, "sqlite_scanner")
    feed_duck.execute(f"ATTACH 'ducklake:sqlite:{tmp_path}/e.sqlite' AS e (DATA_PATH '{tmp_path}/e', ENCRYPTED)")
    feed_duck.execute("DETACH e")
    with pytest.raises(OperatorMustAct, match="encrypted"):
        find_lake(f"sqlite:///{tmp_path}/e.sqlite", str(tmp_path / "e"))


def test_a_newer_lake_is_refused(bench: FeedBench, feed_url: str) -> None:
    with bench.lake._catalog.transaction(write=True) as tx:
        tx.execute("UPDATE ducklake_metadata SET value = '1.1' WHERE key = 'version'")
    with pytest.raises(OperatorMustAct, match=r"catalog version '1\.1'") as raised:
        find_lake(feed_url, bench.lake.data_path)
    assert "upgrade Headwater" in raised.value.hint
