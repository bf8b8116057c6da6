"""Small deliveries are rows in the lake's catalog: whatever changes in the source arrives, and no file is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conftest import new_database
from tests.mirror import Mirror

SCHEMA = (
    "CREATE TABLE orders (id int PRIMARY KEY, item text, price numeric(10,2), at timestamptz, tags text[], doc jsonb)",
    "CREATE TABLE log (what text, n int)",  # without a key
    "ALTER TABLE log REPLICA IDENTITY FULL",
    "CREATE TABLE large (id uuid PRIMARY KEY, body text, n int)",
    "ALTER TABLE large ALTER body SET STORAGE EXTERNAL",
    "CREATE TABLE audit (id int PRIMARY KEY, what text)",
    "INSERT INTO orders SELECT i, 'item ' || i, i * 1.5, '2026-01-01'::timestamptz + i * interval '1 hour',"
    " ARRAY['a', NULL, 'b''c'], jsonb_build_object('n', i) FROM generate_series(1, 20) i",
    "INSERT INTO log SELECT 'copied', i FROM generate_series(1, 5) i",
    "INSERT INTO large SELECT lpad(i::text, 32, '0')::uuid, repeat(md5(i::text), 200), i FROM generate_series(1, 5) i",
    "INSERT INTO audit VALUES (1, 'copied')",
)
TABLES = ("public.orders", "public.log", "public.large", {"table": "public.audit", "mode": "history"})
STEPS = (
    (
        "INSERT INTO orders VALUES (21, 'new', 1, now(), '{}', 'null'), (22, NULL, NULL, NULL, NULL, NULL)",
        "INSERT INTO log VALUES ('new', 1), ('new', 1)",
    ),
    (
        "UPDATE orders SET item = 'changed', at = 'infinity' WHERE id IN (1, 21)",
        "UPDATE large SET n = -n WHERE n < 3",  # its body is not sent again
        "DELETE FROM log WHERE n = 1",
        "UPDATE audit SET what = 'changed'",
    ),
    (
        "UPDATE orders SET id = id + 100 WHERE id IN (2, 22)",
        "UPDATE large SET n = n + 10 WHERE n < 0",
        "DELETE FROM orders WHERE id IN (3, 21)",
        "DELETE FROM audit",
    ),
    ("ALTER TABLE orders ADD note text DEFAULT 'none'", "UPDATE orders SET note = 'x' WHERE id IN (4, 102)"),
    ("ALTER TABLE orders RENAME item TO title", "UPDATE orders SET title = 'renamed' WHERE id < 6"),
    ("TRUNCATE log", "INSERT INTO log VALUES ('after', 1)"),
    ("ALTER TABLE orders DROP COLUMN price", "INSERT INTO orders (id, title) VALUES (300, 'last')"),
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def small(request: pytest.FixtureRequest, database: str, spark: SparkSession, tmp_path: Path) -> Iterator[Mirror]:
    """A mirror whose small deliveries go into its lake's catalog."""
    with ExitStack() as held:
        catalog = "sqlite:///lake.sqlite"
        if request.param == "postgres":
            catalog = held.enter_context(new_database(request.getfixturevalue("postgres")))
        mirror = held.enter_context(closing(Mirror(database, spark, tmp_path, catalog=catalog)))
        mirror.inline = "{rows: 1000}"
        yield mirror


def files(mirror: Mirror) -> set[Path]:
    return set(mirror.folder.joinpath("lake").rglob("*.parquet"))


def assert_equal(mirror: Mirror) -> None:
    assert {each.table: each.verdict for each in mirror.verify() if each.verdict != "equal"} == {}


def test_every_change_of_a_small_delivery_arrives_without_a_file(small: Mirror) -> None:
    for statement in SCHEMA:
        small.execute(statement)
    small.start(*TABLES)
    before = files(small)
    for statements in STEPS:
        small.transaction(*statements)
        small.sync()
        assert_equal(small)
    # Nothing but what says which rows of a file had been deleted before the TRUNCATE that ended it.
    assert [path.name.rpartition("-")[2] for path in files(small) - before] == ["delete.parquet"]
    assert small.inlined() > 10
    assert small.flush() > 10
    assert small.inlined() == 0
    assert len(files(small)) > len(before)
    assert_equal(small)
    small.transaction("UPDATE orders SET title = 'after' WHERE id IN (1, 300)", "DELETE FROM orders WHERE id = 102")
    small.sync()
    assert_equal(small)


def test_what_is_large_goes_into_a_file_and_replaces_rows_in_the_catalog(small: Mirror) -> None:
    small.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    small.start()
    small.execute("INSERT INTO orders SELECT i, 'small' FROM generate_series(1, 50) i")
    small.sync()
    assert (len(files(small)), small.inlined()) == (0, 50)
    small.execute("INSERT INTO orders SELECT i, 'large' FROM generate_series(40, 3000) i ON CONFLICT (id)"
                  " DO UPDATE SET item = 'replaced'")  # fmt: skip
    small.sync()
    assert small.inlined() == 39
    assert files(small)
    small.assert_equal("orders")


def test_a_table_with_as_many_rows_in_the_catalog_as_it_may_have_gets_files_until_they_are_moved(small: Mirror) -> None:
    small.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    small.start()
    for turn in range(3):
        small.execute(f"INSERT INTO orders SELECT i, 'x' FROM generate_series({turn * 400}, {turn * 400 + 399}) i")
        small.sync()
    assert small.inlined() == 800
    assert len(files(small)) == 1
    small.flush()
    small.execute("INSERT INTO orders VALUES (5000, 'in the catalog again')")
    small.sync()
    assert small.inlined() == 1
    small.assert_equal("orders")
