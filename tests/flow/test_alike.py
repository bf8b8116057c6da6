"""Few changes to many tables with the same columns, which are merged in one pass: each gets its own, and no more."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from tests.mirror import Mirror

TENANTS = [f"tenant_{number}" for number in range(6)]
COLUMNS = "(id int, part text, amount numeric(12,2), note text, body text, PRIMARY KEY (part, id))"
SAME_KEYS = "SELECT i, 'p' || mod(i, 3), i, '{}', repeat(md5(i::text), 100) FROM generate_series(1, 20) i"


@pytest.fixture(params=[None, 1_000], ids=["into files", "into the catalog"])
def tenants(mirror: Mirror, request: pytest.FixtureRequest) -> Mirror:
    """The tables have the same keys: what is one table's must not be taken for another's."""
    for table in TENANTS:
        mirror.execute(
            f"CREATE TABLE {table} {COLUMNS}",
            f"ALTER TABLE {table} ALTER body SET STORAGE EXTERNAL",
            f"INSERT INTO {table} {SAME_KEYS.format(table)}",
        )
    mirror.start()
    mirror.m = replace(mirror.m, inline_rows=request.param)
    return mirror


def test_each_table_gets_its_own_changes_though_keys_are_the_same(tenants: Mirror) -> None:
    for number, table in enumerate(TENANTS):
        tenants.execute(
            f"UPDATE {table} SET note = 'updated {number}', body = 'x' WHERE id = {number + 1}",
            f"DELETE FROM {table} WHERE id = {number + 2}",
            f"INSERT INTO {table} VALUES (100, 'p', {number}, 'new', 'short')",
            f"UPDATE {table} SET part = 'moved', body = 'moved' WHERE id = {number + 10}",
        )
    tenants.sync()
    tenants.assert_equal(*TENANTS)
    for table in TENANTS:  # rows that were written just now
        tenants.execute(
            f"UPDATE {table} SET note = 'again' WHERE id = 100", f"DELETE FROM {table} WHERE part = 'moved'"
        )
    tenants.sync()
    tenants.assert_equal(*TENANTS)


def test_what_is_special_about_one_table_is_done_for_it_alone(tenants: Mirror) -> None:
    """A truncate, a large value that was left alone, one that does not fit, a change of columns, an empty result."""
    tenants.execute(
        "UPDATE tenant_0 SET note = 'plain', body = 'x' WHERE id = 1",
        "TRUNCATE tenant_1",
        "INSERT INTO tenant_1 VALUES (7, 'p', 7, 'after', 'the truncate')",
        "UPDATE tenant_2 SET note = 'body left alone'",
        "UPDATE tenant_3 SET amount = 'NaN' WHERE id = 3",
        "UPDATE tenant_4 SET note = 'one', body = 'x' WHERE id = 1",
        "ALTER TABLE tenant_4 ADD extra int",
        "UPDATE tenant_4 SET extra = 4, body = 'y' WHERE id < 3",
        "INSERT INTO tenant_5 VALUES (100, 'p', 5, 'comes and goes', 'x')",
        "DELETE FROM tenant_5 WHERE id = 100",
    )
    tenants.sync()
    tenants.assert_equal(*(table for table in TENANTS if table != "tenant_3"))
    assert tenants.ask("SELECT note FROM lake.public.tenant_3 WHERE amount IS NULL") == [("tenant_3",)]
    assert [each for each in tenants.verify() if not each.ok] == []


@pytest.mark.ducklake_only
def test_a_row_in_the_catalog_that_cannot_be_read_stops_its_table_alone(mirror: Mirror) -> None:
    for table in ("one", "two", "three"):
        mirror.execute(f"CREATE TABLE {table} (id numeric(9,2) PRIMARY KEY, v text)")
    mirror.start()
    tables = ("one", "two", "three")
    mirror.execute(*(f"INSERT INTO {table} VALUES (1.5, '{table}'), (2.5, 'x')" for table in tables))
    mirror.sync()
    with closing(sqlite3.connect(mirror.catalog_file)) as catalog, catalog:
        of_two = catalog.execute(
            "SELECT i.table_name FROM ducklake_inlined_data_tables i JOIN ducklake_table t ON t.table_id = i.table_id"
            " WHERE t.table_name = 'two'"
        ).fetchone()
        catalog.execute(f"UPDATE {of_two[0]} SET id = 'no number' WHERE v = 'x'")
    mirror.execute(*(f"UPDATE {table} SET v = 'changed' WHERE id = 1.5" for table in tables))
    mirror.sync()
    mirror.assert_equal("one", "three")
    errors = {row.source.name: row.error for row in mirror.m.state.tables("g")}
    assert errors["one"] is None
    assert errors["three"] is None
    assert "cannot be read, not even by DuckDB" in str(errors["two"])
