"""Partitioned mirrors: rows that move between partitions, NULL among them, and what other clients read and do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from tests.interrupted import Interrupted
from tests.mirror import IcebergMirror, Mirror

from headwater import checks, flow

EVENTS = "CREATE TABLE events (id bigint PRIMARY KEY, created timestamptz, region text, n int NOT NULL DEFAULT 0)"
ROWS = (
    "INSERT INTO events SELECT i, timestamptz '2025-12-30 00:00+00' + interval '7 hours' * i,"
    " CASE WHEN i % 5 > 0 THEN 'r' || i % 5 END FROM generate_series({}, {}) i"
)
BY = {
    "ducklake": ["year(created)", "month(created)", "day(created)", "region", "bucket(4, id)"],
    "iceberg": ["day(created)", "region", "bucket(4, id)", "truncate(10, n)"],
}


@pytest.fixture
def ducklake_mirror(database: str, spark: SparkSession, tmp_path: Path) -> Iterator[Mirror]:
    with closing(Mirror(database, spark, tmp_path)) as made:
        yield made


@pytest.fixture(params=["ducklake", pytest.param("iceberg", marks=pytest.mark.long)])
def lake(request: pytest.FixtureRequest) -> tuple[str, Mirror]:
    return request.param, request.getfixturevalue(f"{request.param}_mirror")


def iceberg_table(mirror: Mirror, name: str) -> Table:
    folder = mirror.folder
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{folder}/ice.sqlite", warehouse=f"{folder}/lake")
    with closing(catalog):
        return catalog.load_table(("public", name))


def test_rows_move_between_partitions_and_every_reader_finds_them(lake: tuple[str, Mirror]) -> None:
    kind, mirror = lake
    mirror.execute(EVENTS, ROWS.format(1, 40))
    mirror.start({"table": "public.events", "partition_by": BY[kind]})
    mirror.assert_equal("events")
    mirror.execute(
        "UPDATE events SET created = created + interval '3 days', n = 25 WHERE id % 4 = 0",
        "UPDATE events SET region = NULL WHERE id % 7 = 0",
        "UPDATE events SET region = 'a/b =ü', created = NULL WHERE id % 11 = 0",
        "UPDATE events SET id = id + 1000 WHERE id % 13 = 0",
        "DELETE FROM events WHERE id % 9 = 0",
        ROWS.format(100, 110),
    )
    mirror.sync()
    mirror.assert_equal("events")
    for where in (
        "region = 'r1'",
        "region IS NULL",
        "region = 'a/b =ü'",
        "id = 17",
        "id IN (1013, 1026)",
        "created IS NULL",
        "created >= '2026-01-02 00:00:00+00' AND created < '2026-01-03 00:00:00+00'",
        "n = 25",
    ):
        theirs = sorted(mirror.rows_of(f"SELECT id FROM events WHERE {where}"))
        assert theirs, where
        assert sorted(mirror.ask(f"SELECT id FROM lake.public.events WHERE {where}")) == theirs, where
    assert [each.verdict for each in mirror.verify()] == ["equal"]
    if kind == "iceberg":
        table = iceberg_table(mirror, "events")
        for where in ("region = 'r1'", "region IS NULL", "id = 17", "n = 25"):
            found = table.scan(where, selected_fields=("id",)).to_arrow()["id"].to_pylist()
            assert sorted((each,) for each in found) == sorted(mirror.rows_of(f"SELECT id FROM events WHERE {where}"))
    mirror.execute("TRUNCATE events", ROWS.format(1, 3))
    mirror.sync()
    mirror.assert_equal("events")


def test_an_iceberg_table_says_how_it_is_partitioned_and_sorted(iceberg_mirror: IcebergMirror) -> None:
    mirror = iceberg_mirror
    mirror.execute(EVENTS, ROWS.format(1, 20))
    mirror.start({"table": "public.events", "partition_by": BY["iceberg"]})
    mirror.execute("UPDATE events SET n = 1 WHERE id < 6")
    mirror.sync()
    table = iceberg_table(mirror, "events")
    assert [(field.name, str(field.transform)) for field in table.spec().fields] == [
        ("created_day", "day"),
        ("region", "identity"),
        ("id_bucket_4", "bucket[4]"),
        ("n_trunc_10", "truncate[10]"),
    ]
    assert [field.source_id for field in table.sort_order().fields] == [table.schema().find_field("id").field_id]
    snapshot = table.current_snapshot()
    assert snapshot is not None
    of: dict[str, Any] = {}
    deletes = []
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            assert (file.spec_id, file.sort_order_id) == (table.spec().spec_id, None)
            if file.content.value == 0:
                of[file.file_path] = file.partition
            else:
                deletes.append(file)
    for file in deletes:
        path = (file.lower_bounds or {})[2147483546].decode()
        assert file.partition == of[path]


def test_the_sort_order_of_an_iceberg_table_follows_its_key(iceberg_mirror: IcebergMirror) -> None:
    mirror = iceberg_mirror
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    mirror.start({"table": "public.t", "partition_by": ["bucket(2, code)"]})
    mirror.execute("ALTER TABLE t DROP id, ADD PRIMARY KEY (code)", "INSERT INTO t VALUES ('c')")
    mirror.execute("UPDATE t SET code = 'd' WHERE code = 'a'")
    mirror.settle()
    mirror.assert_equal("t")
    table = iceberg_table(mirror, "t")
    assert [field.source_id for field in table.sort_order().fields] == [table.schema().find_field("code").field_id]
    assert sorted(table.scan().to_arrow()["code"].to_pylist()) == ["b", "c", "d"]


def test_an_update_searches_only_the_partitions_of_its_key(lake: tuple[str, Mirror]) -> None:
    _, mirror = lake
    mirror.execute("CREATE TABLE t (day date, name text, n int, PRIMARY KEY (name, day))")
    mirror.execute("INSERT INTO t SELECT date '2026-01-01' + i, 'n' || i % 3, 0 FROM generate_series(0, 29) i")
    mirror.start({"table": "public.t", "partition_by": ["name", "day(day)"]})
    looked: list[int] = []
    sink: Any = Interrupted(mirror.m.sink, searched=looked.append)
    mirror.m = replace(mirror.m, sink=sink)
    mirror.execute(
        "UPDATE t SET n = 1 WHERE day = '2026-01-05'",
        "UPDATE t SET name = 'moved' WHERE day = '2026-01-07'",
        "DELETE FROM t WHERE day = '2026-01-09'",
    )
    mirror.captured()
    assert flow.deliver(mirror.m).landed
    assert looked == [3]
    mirror.assert_equal("t")


def test_a_partition_column_may_be_renamed_and_one_that_is_dropped_stops_its_table(lake: tuple[str, Mirror]) -> None:
    _, mirror = lake
    mirror.execute(EVENTS, ROWS.format(1, 10), "CREATE TABLE other (id int PRIMARY KEY)")
    mirror.start({"table": "public.events", "partition_by": ["region"]}, "public.other")
    mirror.execute("ALTER TABLE events RENAME region TO area", "UPDATE events SET area = 'x' WHERE id = 1")
    assert not mirror.settle()
    mirror.assert_equal("events")
    mirror.execute("ALTER TABLE events DROP area", "INSERT INTO events VALUES (100)", "INSERT INTO other VALUES (1)")
    assert not mirror.settle()
    row = next(row for row in mirror.m.state.tables("g") if row.source.name == "events")
    assert row.state == "ERRORED"
    assert "`partition_by` names the column 'region', which is not mirrored" in (row.error or "")
    mirror.assert_equal("other")
    assert any("names the column 'region'" in str(each) for each in checks.check(mirror.config, {}))
    mirror.reopen({"table": "public.events", "partition_by": ["bucket(2, id)"]}, "public.other")
    flow.mirroring.try_again(mirror.m.state, "g")
    assert mirror.settle()
    mirror.assert_equal("events", "other")


def test_other_partitions_in_the_config_copy_the_table_again(lake: tuple[str, Mirror]) -> None:
    kind, mirror = lake
    mirror.execute(EVENTS, ROWS.format(1, 20))
    mirror.start({"table": "public.events", "partition_by": ["region"]})
    mirror.reopen({"table": "public.events", "partition_by": [" region "]})
    assert not mirror.settle()
    for by in (BY[kind], [], ["day(created)"]):
        mirror.reopen({"table": "public.events", "partition_by": by})
        (row,) = mirror.m.state.tables("g")
        assert row.resync == "the config asks for other partitions"
        assert mirror.settle()
        mirror.execute("UPDATE events SET created = created + interval '1 day', region = 'x' WHERE id = 5")
        mirror.sync()
        mirror.assert_equal("events")


def test_the_extension_merges_our_partitioned_files(ducklake_mirror: Mirror) -> None:
    mirror = ducklake_mirror
    mirror.execute(EVENTS, ROWS.format(1, 20))
    mirror.start({"table": "public.events", "partition_by": ["region", "bucket(2, id)"]})
    for first in (100, 200, 300):
        mirror.execute(ROWS.format(first, first + 20), f"UPDATE events SET region = 'x' WHERE id = {first - 90}")
        mirror.sync()
    files = "SELECT count(*) FROM __ducklake_metadata_lake.ducklake_data_file WHERE end_snapshot IS NULL"
    ((before,),) = mirror.ask(files)
    mirror.lake.execute("INSERT INTO lake.public.events VALUES (999, now(), 'r1', 1)")
    mirror.lake.execute("CALL ducklake_merge_adjacent_files('lake')")
    ((after,),) = mirror.ask(files)
    assert after < before
    mirror.lake.execute("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
    mirror.lake.execute("DELETE FROM lake.public.events WHERE id = 999")
    mirror.assert_equal("events")
    mirror.execute("UPDATE events SET n = 2, region = 'r1' WHERE id % 3 = 0")
    mirror.sync()
    mirror.assert_equal("events")
    assert mirror.ask("SELECT count(*) FROM lake.public.events WHERE id = 102") == [(1,)]


def test_a_table_that_another_client_partitions_is_written_so_from_then_on(ducklake_mirror: Mirror) -> None:
    mirror = ducklake_mirror
    mirror.execute(EVENTS, ROWS.format(1, 20))
    mirror.start()
    mirror.lake.execute("ALTER TABLE lake.public.events SET PARTITIONED BY (year(created), region)")
    mirror.execute("UPDATE events SET n = 1 WHERE id < 5", ROWS.format(30, 40))
    mirror.sync()
    mirror.assert_equal("events")
    values = "SELECT count(*) FROM __ducklake_metadata_lake.ducklake_file_partition_value WHERE partition_value = 'r1'"
    assert mirror.ask(values) != [(0,)]
    mirror.lake.execute("ALTER TABLE lake.public.events ADD COLUMN f DOUBLE")
    mirror.lake.execute("ALTER TABLE lake.public.events SET PARTITIONED BY (f)")
    mirror.execute("UPDATE events SET n = 2 WHERE id < 5")
    mirror.sync()
    (row,) = mirror.m.state.tables("g")
    assert "another client has partitioned public.events by identity of column f" in (row.error or "")


def test_an_iceberg_spec_of_another_client_is_followed_and_older_files_keep_theirs(
    iceberg_mirror: IcebergMirror,
) -> None:
    mirror = iceberg_mirror
    mirror.execute(EVENTS, ROWS.format(1, 20))
    mirror.start({"table": "public.events", "partition_by": ["bucket(4, id)"]})
    with iceberg_table(mirror, "events").update_spec() as update:
        update.add_identity("region")
    mirror.execute(
        "UPDATE events SET region = 'x' WHERE id < 5", ROWS.format(30, 40), "DELETE FROM events WHERE id = 7"
    )
    mirror.settle()
    mirror.assert_equal("events")
    mirror.execute("UPDATE events SET n = 3 WHERE id < 10")  # the first delivery was planned on the old spec
    mirror.settle()
    mirror.assert_equal("events")
    files = iceberg_table(mirror, "events").inspect.files().to_pylist()
    assert {each["spec_id"] for each in files} == {0, 1}
    mirror.execute("UPDATE events SET region = NULL WHERE id % 2 = 0")
    mirror.settle()
    mirror.assert_equal("events")
