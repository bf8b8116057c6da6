"""Columns of a source lake in the lakes that they are carried to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from headwater.change import Column, Relation, TableName
from headwater.ducklake.extension import attach
from headwater.ducklake.model import Field
from headwater.ducklake.opening import open_lake
from headwater.ducklake.types import ducklake_type
from headwater.ducklake.url import parse_lake_url
from headwater.errors import TableError
from headwater.feed.types import condition_type, lake_type, postgres_text
from headwater.files import inside
from headwater.iceberg.types import iceberg_type
from headwater.lake.sink import MirrorSpec, Sink
from headwater.lake.stream import FEED
from headwater.lake.target import rows_of
from headwater.sink.ducklake.sink import DuckLakeSink
from headwater.sink.iceberg.address import IcebergAddress
from tests.feed.feedbench import FeedBench, Rows
from tests.feed.feedbench import rows_of as values_of
from tests.feed.test_feed import VALUES
from tests.sink.sinkbench import written

pytestmark = pytest.mark.parametrize("feed_url", ["sqlite"], indirect=True)
COPY = TableName("main", "copied")
ICEBERG = {
    "TINYINT": "int",
    "UTINYINT": "int",
    "USMALLINT": "int",
    "UINTEGER": "long",
    "UBIGINT": "decimal(20,0)",
    "DECIMAL(10,2)": "decimal(10,2)",
    "INTEGER[][]": "list<list<int>>",
    "STRUCT(a INTEGER, b VARCHAR)": "struct<0: a: optional int,1: b: optional string>",
    "MAP(VARCHAR, STRUCT(x DOUBLE))": "map<string,struct<2: x: optional double>>",
}


@pytest.fixture
def source(bench: FeedBench) -> FeedBench:
    """A table with a column of each type, and a row of values and one of NULLs."""
    bench.inline(0)
    columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(VALUES))
    # With another column before, so that its columns have other ids than those of the copies.
    bench.sql(f"CREATE TABLE {{l}}.t (gone INTEGER, {columns})", "ALTER TABLE {l}.t DROP COLUMN gone")
    bench.sql(f"INSERT INTO {{l}}.t VALUES ({', '.join(VALUES.values())})")
    bench.sql(f"INSERT INTO {{l}}.t VALUES ({', '.join(['NULL'] * len(VALUES))})")
    return bench


def copied(source: FeedBench, sink: Sink[Any, Any], columns: Sequence[Field]) -> None:
    """Carry the columns to a table of another lake."""
    kinds = {each.name: lake_type(each) for each in columns}
    relation = Relation(1, 1, COPY, "d", tuple(Column(each.name, 0, -1, False, each.id) for each in columns))
    attempt = sink.begin_copy([sink.new_mirror(MirrorSpec(relation, kinds, COPY))], {})
    units = source.table().scan(source.table().newest())
    rows = pa.concat_tables([table for unit in units for table in unit.read(columns, ())]).select(list(kinds))
    note = written(attempt.target, rows_of(1), [(rows, None)])
    attempt.commit({1: FEED.position(source.newest)}, {rows_of(1): note})


def test_every_type_reaches_a_ducklake(source: FeedBench, tmp_path: Path) -> None:
    columns = source.at(source.newest).table.columns
    assert [ducklake_type(lake_type(each)) for each in columns] == [each.type for each in columns]
    url = f"sqlite:///{tmp_path}/to.sqlite"
    with closing(open_lake(url, str(tmp_path / "to"))) as lake:
        copied(source, DuckLakeSink(lake, "route", FEED), columns)
    attach(source.duck, parse_lake_url(url), "destination")
    try:
        found = source.duck.execute(f"FROM destination.main.{COPY.name}").to_arrow_table()
        described = source.duck.execute(f"DESCRIBE destination.main.{COPY.name}").fetchall()
    finally:
        source.duck.execute("DETACH destination")
    assert values_of(found) == source.shown(source.newest)
    assert [row[:2] for row in described] == [row[:2] for row in source.sql("DESCRIBE {l}.t")]


def test_every_type_reaches_an_iceberg_table(source: FeedBench, tmp_path: Path) -> None:
    endless = {"DATE", "TIME", "TIMESTAMP"}  # whose values here no Iceberg type has
    columns = [
        each for each, type_ in zip(source.at(source.newest).table.columns, VALUES, strict=True) if type_ not in endless
    ]
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/to.sqlite", "warehouse": str(tmp_path / "to")}
    with closing(IcebergAddress(properties).open("route", FEED)) as sink:
        copied(source, sink, columns)
    with closing(load_catalog("default", **properties)) as catalog:
        (task,) = catalog.load_table(tuple(COPY)).scan().plan_files()
    found = pq.read_table(inside(task.file.file_path))  # PyIceberg shows a NULL map as an empty one
    wanted = source.duck.execute(f"SELECT {', '.join(each.name for each in columns)} FROM {source.alias}.t")
    assert plain_values(found) == plain_values(wanted.to_arrow_table())


def plain_values(table: pa.Table) -> Rows:
    """Iceberg's unsigned numbers are decimals."""
    return Rows(tuple(map(str, row)) for row in values_of(table).elements())


@pytest.mark.parametrize("type_", ICEBERG)
def test_how_iceberg_spells_them(source: FeedBench, type_: str) -> None:
    field = source.at(source.newest).table.columns[list(VALUES).index(type_)]
    assert iceberg_type(lake_type(field)) == ICEBERG[type_]


@pytest.mark.parametrize(
    ("type_", "spelled"),
    [
        ("HUGEINT", "int128"),
        ("UHUGEINT", "uint128"),
        ("INTERVAL", "interval"),
        ("TIMETZ", "timetz"),
        ("TIMESTAMP_S", "timestamp_s"),
        ("TIMESTAMP_MS", "timestamp_ms"),
        ("TIMESTAMP_NS", "timestamp_ns"),
        ("VARIANT", "variant"),
        ("STRUCT(a INTEGER, b INTERVAL[])", "struct(a int32, b interval[])"),
        ("MAP(VARCHAR, HUGEINT)", "map(varchar, int128)"),
    ],
)
def test_a_type_that_cannot_be_carried_is_named(bench: FeedBench, type_: str, spelled: str) -> None:
    at = bench.do(f"CREATE TABLE {{l}}.t (id INTEGER, odd {type_})")
    field = bench.at(at).table.columns[1]
    with pytest.raises(TableError) as raised:
        lake_type(field)
    assert f"column 'odd' has the type {spelled!r}" in raised.value.message
    assert raised.value.hint == "leave it out: `exclude: [odd]`"
    assert condition_type(field) is None


def test_such_a_column_can_be_left_out(bench: FeedBench) -> None:
    for limit in (0, 10):
        bench.sql("DROP TABLE IF EXISTS {l}.t")
        bench.inline(limit)
        bench.sql("CREATE TABLE {l}.t (id INTEGER, odd HUGEINT)", "INSERT INTO {l}.t VALUES (1, 2)")
        at = bench.newest
        columns = bench.at(at).table.columns[:1]
        assert bench.scanned(at, columns) == Rows([(1,)])


def test_what_older_rows_show_as_postgresql_prints_it(bench: FeedBench) -> None:
    bench.sql("CREATE TABLE {l}.t (id INTEGER)")
    bench.sql("ALTER TABLE {l}.t ADD COLUMN a INTEGER DEFAULT 7", "ALTER TABLE {l}.t ADD COLUMN b BLOB DEFAULT 'x'")
    bench.sql("ALTER TABLE {l}.t ADD COLUMN c VARCHAR DEFAULT 'it''s'", "ALTER TABLE {l}.t ADD COLUMN d DATE")
    columns = bench.at(bench.newest).table.columns
    assert [postgres_text(each) for each in columns] == [None, "7", "\\x78", "it's", None]
